"""Training text that differs from epoch to epoch: other words, other subwords.

    config.data.augment            changes lines (`extensions/text/damage.py`)
    config.data.subword_dropout    splits its words into other subwords

The tokens of an epoch are a pure function of (seed, epoch, line): a resumed run reads
the same ones, in every process, and any batch can be looked up again. Stored are only
the tokens of the text as it is. An epoch's own are made from the text, which is read
again: memory holds the tokens of two epochs, and of the text a few thousand lines.

Suffix: `p` pairs.
"""

import dataclasses
import itertools
import json
import re
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax.config import DataConfig
from t2t_jax.data.cleaning import read_chunks
from t2t_jax.data.corpus import Corpus, LowScore, Pair
from t2t_jax.data.filling import Ragged, concatenated, take
from t2t_jax.data.pairs import Encode, Pairs, encode_pairs, prepared_key
from t2t_jax.data.shapes import Shape
from t2t_jax.data.tokenizers.training import sample
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, parse_symbols
from t2t_jax.extensions.data.tokenizers.subword_sampling import SubwordSampling
from t2t_jax.extensions.text.damage import MOST_NEIGHBOURS, TRAINABLE
from t2t_jax.extensions.text.word_noise import named_amounts
from t2t_jax.io import ideas
from t2t_jax.io.cache import build_once, cache_folder, cache_key
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import waiting
from t2t_jax.io.threads import in_order
from t2t_jax.text.counter_random import Stream, hashed, uniform
from t2t_jax.text.words import blank_matcher

# The lines of a part. A part is varied as a whole, and a line may be joined with the
# next ones of its part. So another number changes what a run reads.
LINES = 8_192
# The upper bits of a number are the corpus, the lower ones the line in it. So
# consecutive numbers are consecutive lines of one corpus.
LINE_BITS = 40
DEFAULT_SHARE = 0.1  # of lines that `config.data.augment` changes
# About this many pairs are varied to learn how long pairs become.
SAMPLED = 1 << 16
LEARNED_FROM = 200_000  # pairs at most, sampled evenly, that augmentations learn from
# What a line's random numbers are for.
_CHOICE, _CHANGE = range(2)


class LinePart(NamedTuple):
    """The pairs that cleaning kept of `LINES` consecutive lines of one corpus."""

    place: int  # the number of the part in its corpus, from 0
    first_pair: int  # its index in the training text
    number_p: np.ndarray  # of each pair's line, int64
    pairs: list[Pair]


def read_parts(pairs: Pairs, corpora: Sequence[Corpus]) -> Iterator[LinePart]:
    """Yields the text of prepared pairs in order, from the corpora that they are of."""
    end_c = np.cumsum(pairs.sizes)
    line_p = np.asarray(pairs.line)
    for chunk in read_chunks(corpora, LINES):
        end = int(end_c[chunk.corpus])
        begin = end - pairs.sizes[chunk.corpus]
        lines_before, last_line = int(chunk.lines[0]) - 1, int(chunk.lines[-1])
        # Lines rise within a corpus.
        low = begin + int(np.searchsorted(line_p[begin:end], lines_before, "right"))
        high = begin + int(np.searchsorted(line_p[begin:end], last_line, "right"))
        if low == high:
            continue
        kept_p = line_p[low:high].astype(np.int64)
        text = [chunk.pairs[i] for i in (kept_p - lines_before - 1).tolist()]
        number_p = (np.int64(chunk.corpus) << LINE_BITS) + kept_p
        yield LinePart(lines_before // LINES, low, number_p, text)


@dataclasses.dataclass(frozen=True)
class TextVariation:
    """Changes a share of the lines in each epoch."""

    # Above 0 and at most 1, by the name in `TRAINABLE`, in the order of the table.
    shares: dict[str, float]
    # Strings that are one token, such as tags. Those that begin a line stay there
    # unchanged; a line with another one further on is not changed.
    symbols: tuple[str, ...] = ()
    # What `Damage.learn` returned, by the name of the augmentation.
    learned: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def changing_target(self) -> list[str]:
        """The names of the augmentations that may change targets."""
        return [name for name in self.shares if TRAINABLE[name].changes_target]

    def __call__(
        self, pairs: Sequence[Pair], numbers: np.ndarray, seed: int, epoch: int
    ) -> list[Pair]:
        """Returns as many pairs, as an epoch has them; unchanged ones are the same.

        A line depends on its number alone, not on the others of the chunk, with one
        exception: `neighbours` and `joined` join lines of a chunk, whose numbers follow
        one another. So chunks must begin at the same lines in every run.
        """
        varied = list(pairs)
        written = {s for name in self.shares for s in TRAINABLE[name].symbols}
        for name, share in self.shares.items():
            # A hash of the name, so that no augmentation depends on the others given.
            keys = seed, epoch, zlib.crc32(name.encode()), numbers
            selected = np.flatnonzero(uniform(*keys, _CHOICE) < share)
            starts = hashed(*keys, _CHANGE)[selected].tolist()
            damage = TRAINABLE[name]
            change = damage.change
            if damage.learn:
                change = partial(change, self.learned[name])
            symbols = [
                s for s in self.symbols if s not in written or not damage.symbols
            ]
            for i, start in zip(selected.tolist(), starts, strict=True):
                following = self._following(pairs, numbers, i)
                varied[i] = self._changed(
                    change, varied[i], Stream(start), following, symbols
                )
        return varied

    def _following(self, pairs, numbers: np.ndarray, i: int) -> list[Pair]:
        """The next lines of the chunk as far as none was left out between them."""
        places = range(i + 1, min(i + 1 + MOST_NEIGHBOURS, len(pairs)))
        follow = itertools.takewhile(lambda n: numbers[n] - numbers[i] == n - i, places)
        return [pairs[n] for n in follow]

    def _changed(self, change, pair: Pair, draws: Stream, following, symbols) -> Pair:
        """Changes a pair without `symbols`, except those that its lines begin with."""
        tags, text = self._split(pair)
        if not all(side.strip() for side in text):
            return pair  # one-sided text, or nothing to change
        if _has_symbol(text, symbols):
            return pair
        # Lines of different tags do not form one text.
        alike = itertools.takewhile(
            lambda line: line[0] == tags and not _has_symbol(line[1], symbols),
            map(self._split, following),
        )
        changed = change(text, draws, [untagged for _, untagged in alike])
        if changed is text:
            return pair
        return tags[0] + changed[0], tags[1] + changed[1]

    def _split(self, pair: Pair) -> tuple[Pair, Pair]:
        """Splits both sides into the symbols they begin with, and text."""
        if not self.symbols:
            return ("", ""), pair
        tags = re.compile(rf"(?:(?:{'|'.join(map(re.escape, self.symbols))})\s*)*")
        begun = [(side, tags.match(side).end()) for side in pair]
        return tuple(s[:end] for s, end in begun), tuple(s[end:] for s, end in begun)


def _has_symbol(text: Pair, symbols: Iterable[str]) -> bool:
    return any(symbol in side for symbol in symbols for side in text)


def _learned(name: str, corpora: Sequence[Corpus]) -> Any:
    """Returns what an augmentation learns from corpora, from the cache if there."""
    text = [corpus.fingerprint() for corpus in corpora]
    code = ideas.foreign_code(TRAINABLE[name].learn)
    key = cache_key(learned=name, text=text, **({"code": code} if code else {}))
    folder = cache_folder() / "learned" / key

    def write(temporary: Path) -> None:
        with waiting(f"learning what augment={name} needs"):
            read = itertools.chain.from_iterable(corpus.pairs() for corpus in corpora)
            pairs = (pair for pair in read if not isinstance(pair, LowScore))
            learned = TRAINABLE[name].learn(sample(pairs, LEARNED_FROM))
        (temporary / "learned.json").write_text(json.dumps(learned))

    build_once(folder, write)
    return json.loads((folder / "learned.json").read_text())


def text_variation_of(
    augment: str, symbols: Sequence[str] = ()
) -> TextVariation | None:
    """Reads `config.data.augment`: "typos,case@0.05"; None if it is empty.

    Raises:
      UserError: An unknown name, one given twice, a share that is not above 0 and at
        most 1, or one whose symbols are not among `symbols`.
    """
    field = f"config.data.augment={augment!r}"
    parts = filter(None, map(str.strip, augment.split(",")))
    amounts = named_amounts(parts, TRAINABLE, field, "augmentation")
    shares = {}
    for name in (name for name in TRAINABLE if name in amounts):
        try:
            amount = amounts[name]
            shares[name] = DEFAULT_SHARE if amount is None else float(amount)
        except ValueError:
            shares[name] = np.nan
        if not 0 < shares[name] <= 1:
            raise UserError(
                f"{field}: {name}@{amount} has no valid share; want {name}@SHARE with "
                "the share of lines that it changes in an epoch, above 0 and at most "
                f"1, such as {name}@{DEFAULT_SHARE}"
            )
    for name in shares:
        if lacking := [s for s in TRAINABLE[name].symbols if s not in symbols]:
            raise UserError(
                f"{field}: {name} writes {', '.join(lacking)}, and config.data.symbols="
                f"{','.join(symbols)!r} does not have them: the tokenizer would split "
                f"them; want --config.data.symbols='{','.join([*symbols, *lacking])}'"
            )
    return TextVariation(shares, tuple(symbols)) if shares else None


class Varied(NamedTuple):
    """The tokens of a part in one epoch, and how many pairs kept those stored."""

    source: Ragged
    target: Ragged
    unvaried: int


class Typical(NamedTuple):
    """Lengths of the pairs in a typical epoch, from which static shapes are chosen.

    Some pairs are varied to learn them. The lengths of the others follow from their
    stored lengths, and from how much those of the sample grew.
    """

    source_p: np.ndarray  # tokens including EOS, int64
    target_p: np.ndarray
    sampled: int  # the number of pairs that were varied
    unvaried: int  # those that keep their stored tokens: varied, too long or empty


@dataclasses.dataclass(frozen=True, eq=False)
class Variation:
    """Makes the pairs of an epoch from the text of prepared pairs."""

    corpora: tuple[Corpus, ...]  # the text; `Pairs.line` says which lines are kept
    vocabulary: Vocabulary
    config: DataConfig  # for `max_length` and `symbols`, and to describe the variation
    text: TextVariation | None = None  # None leaves pairs of lines as they are
    subwords: SubwordSampling | None = None  # None encodes lines as `encode` does
    encode: Encode = encode_pairs  # that of the preparation
    typical: Typical | None = None  # of `measure`
    # The epochs that somebody still holds: what the feeder has need not be made again
    # to look up a batch. Weak references, as two epochs take memory enough.
    _alive: weakref.WeakValueDictionary = dataclasses.field(
        default_factory=weakref.WeakValueDictionary, init=False, repr=False
    )

    def epoch_pairs(
        self, pairs: Pairs, seed: int, epoch: int, within: Shape | None = None
    ) -> Pairs:
        """Makes the pairs of an epoch: as many, of the same lines, in the same order.

        A pair keeps its stored tokens if it would become empty on a side, or longer
        than `config.data.max_length` or the rows of `within`, the largest shape of the
        batches: no pair is dropped.

        Raises:
          UserError: The text has changed since it was prepared, or cannot be read.
        """
        cache_key = seed, epoch, within
        if (epoch_pairs := self._alive.get(cache_key)) is not None:
            return epoch_pairs
        self._check_text(pairs)
        limits = self._limits(within)
        vary = partial(self._vary, pairs, seed, epoch, limits)
        # Bytes that grow in place: arrays that are joined at the end would take twice
        # the memory.
        tokens, lengths = (bytearray(), bytearray()), ([], [])
        for part in in_order(vary, read_parts(pairs, self.corpora)):
            for side, encoded in enumerate(part[:2]):
                stored_type = (pairs.source, pairs.target)[side].tokens.dtype
                tokens[side].extend(encoded.tokens.astype(stored_type).tobytes())
                lengths[side].append(encoded.lengths)
        sides = [
            Ragged(
                np.frombuffer(side_tokens, stored.tokens.dtype),
                np.append(0, np.cumsum(np.concatenate(length_p), dtype=np.int64)),
            )
            for side_tokens, length_p, stored in zip(
                tokens, lengths, (pairs.source, pairs.target), strict=True
            )
        ]
        epoch_pairs = dataclasses.replace(
            pairs, source=sides[0], target=sides[1], variation=None
        )
        self._alive[cache_key] = epoch_pairs
        return epoch_pairs

    def measure(self, pairs: Pairs) -> Typical:
        """Varies a sample of the text to learn how long pairs become."""
        self._check_text(pairs)
        every = -(-len(pairs) // SAMPLED)  # of each corpus the first part, ...
        parts = (p for p in read_parts(pairs, self.corpora) if p.place % every == 0)
        vary = partial(self._vary, pairs, 0, 0, self._limits(None))
        stored_lengths = pairs.source.lengths, pairs.target.lengths
        lengths = [length_p.copy() for length_p in stored_lengths]
        sampled_p = np.zeros(len(pairs), bool)
        unvaried = 0
        for first, varied in in_order(lambda p: (p.first_pair, vary(p)), parts):
            place = slice(first, first + len(varied.source))
            sampled_p[place] = True
            for length_p, side in zip(lengths, varied[:2], strict=True):
                length_p[place] = side.lengths
            unvaried += varied.unvaried
        for was_p, length_p in zip(stored_lengths, lengths, strict=True):
            # In integers: exact, and the same on every machine.
            stored_sum = int(was_p[sampled_p].sum())
            varied_sum = int(length_p[sampled_p].sum())
            if stored_sum:
                length_p[~sampled_p] = was_p[~sampled_p] * varied_sum // stored_sum
            np.minimum(length_p, self.config.max_length, out=length_p)
            np.maximum(length_p, np.minimum(was_p, 1), out=length_p)
        return Typical(*lengths, int(sampled_p.sum()), unvaried)

    def describe(self, pairs: Pairs, within: Shape) -> str:
        """Describes in one line what varies, and what that does to the lengths."""
        kinds = []
        if self.text is not None:
            kinds.append(f"text (augment={self.config.augment})")
        if self.subwords is not None:
            kinds.append(f"subwords (dropout {self.config.subword_dropout:g})")
        source_p, target_p, sampled, unvaried = self.typical
        growth = [
            f"{after.sum() / max(1, before.sum()):.2f}"
            for after, before in zip((source_p, target_p), pairs.lengths(), strict=True)
        ]
        line = (
            f"{' and '.join(kinds)} vary from epoch to epoch: {growth[0]} times the "
            f"source tokens, {growth[1]} times the target tokens"
        )
        longer = np.mean((source_p > within.source) | (target_p > within.target))
        if share := unvaried / sampled + longer:
            line += f"; {share:.2%} of pairs would be too long or empty, and do not"
        return line

    def _check_text(self, pairs: Pairs) -> None:
        """Raises UserError if the text is not what it was when it was prepared."""
        fingerprints = [corpus.fingerprint() for corpus in self.corpora]
        if pairs.key != prepared_key(fingerprints, self.vocabulary, self.config):
            specs = ", ".join(corpus.spec for corpus in self.corpora)
            raise UserError(
                f"the text of {specs} has changed since it was prepared, and epochs "
                "of varied text are made from it; put the text back"
            )

    def _limits(self, within: Shape | None) -> tuple[int, int]:
        """The most tokens of a varied source and target."""
        longest = self.config.max_length
        if within is None:
            return longest, longest
        return min(longest, within.source), min(longest, within.target)

    def _vary(
        self,
        pairs: Pairs,
        seed: int,
        epoch: int,
        limits: tuple[int, int],
        part: LinePart,
    ) -> Varied:
        """Encodes a part as it is in an epoch."""
        before, number_p = part.pairs, part.number_p
        after = before
        if self.text is not None:
            after = self.text(before, number_p, seed, epoch)
            if len(after) != len(before):
                raise UserError(
                    f"config.data.augment={self.config.augment!r} made {len(after)} "
                    f"pairs of {len(before)}; want as many"
                )
        changed_p = np.array([a != b for a, b in zip(after, before, strict=True)])
        if self.subwords is None:
            # Unchanged text has the tokens that are stored already.
            new = np.flatnonzero(changed_p)
            encoded = self.encode([after[i] for i in new], self.vocabulary, 1)
        else:
            new = np.arange(len(after))
            encoded = tuple(
                self.subwords.encode(
                    [pair[side] for pair in after], number_p, seed, epoch, side
                )
                for side in (0, 1)
            )
        is_blank = blank_matcher(parse_symbols(self.config.symbols))
        fits = ~np.array(
            [changed_p[i] and any(map(is_blank, after[i])) for i in new], bool
        )
        for side, longest in zip(encoded, limits, strict=True):
            fits &= (side.lengths >= 1) & (side.lengths <= longest)
        sides = [
            kept_within(_slice(stored, part.first_pair, len(before)), side, new, fits)
            for stored, side in zip((pairs.source, pairs.target), encoded, strict=True)
        ]
        return Varied(*sides, int((~fits).sum()))


def kept_within(
    stored: Ragged, encoded: Ragged, new: np.ndarray, fits: np.ndarray
) -> Ragged:
    """Replaces stored sentences of a part by newly encoded ones, where these fit.

    `new` holds the indices in `stored` of the encoded sentences, which may be fewer.
    """
    index_p = len(encoded) + np.arange(len(stored))
    index_p[new[fits]] = np.flatnonzero(fits)
    return take(concatenated([encoded, stored]), index_p)


def _slice(sentences: Ragged, begin: int, count: int) -> Ragged:
    """Some consecutive sentences, without copying them."""
    offsets = sentences.offsets[begin : begin + count + 1]
    tokens = sentences.tokens[offsets[0] : offsets[-1]]
    return Ragged(tokens, offsets - offsets[0])


def variation_of(
    config: DataConfig,
    corpora: Sequence[Corpus],
    vocabulary: Vocabulary,
    encode: Encode = encode_pairs,
) -> Variation | None:
    """Builds the variation that a config asks for; None if nothing varies.

    Raises:
      UserError: The fields are wrong, or the tokenizer cannot sample subwords.
    """
    text = text_variation_of(config.augment, parse_symbols(config.symbols))
    subwords = None
    if config.subword_dropout:
        subwords = SubwordSampling(vocabulary, config.subword_dropout)
    if text is None and subwords is None:
        return None
    if text is not None:
        learns = (name for name in text.shares if TRAINABLE[name].learn)
        learned = {name: _learned(name, corpora) for name in learns}
        text = dataclasses.replace(text, learned=learned)
    return Variation(tuple(corpora), vocabulary, config, text, subwords, encode)
