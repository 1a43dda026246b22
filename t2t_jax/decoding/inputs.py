"""Encodes lines and pairs of lines into token ids; warns of those it cuts."""

import hashlib
import logging
from collections.abc import Sequence
from typing import NamedTuple
from unicodedata import is_normalized, normalize

import jax
import numpy as np
from jax.sharding import Mesh

from t2t_jax.config import Config
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.batches import SHORTEST, longest_output
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.text.words import visible
from t2t_jax.text.words import words as text_words

log = logging.getLogger("t2t_jax")

NAMED = 5  # line numbers that a warning about several lines lists


class Member(NamedTuple):
    """One trained model of a translator; an ensemble has several."""

    config: Config
    model: Model
    # Of one checkpoint, or the average of several; replicated on each device that
    # computes (`decoding/batches.py`).
    parameters: Parameters
    steps: tuple[int, ...]

    @property
    def mesh(self) -> Mesh:
        return jax.tree.leaves(self.parameters)[0].sharding.mesh

    @property
    def weights(self) -> str:
        """The type of the weights of products: float32 or int8."""
        leaves = jax.tree.leaves(self.parameters)
        return "int8" if any(x.dtype == np.int8 for x in leaves) else "float32"

    def parameters_sha256(self) -> str:
        """Returns a digest of all values, which identifies the parameters."""
        digest = hashlib.sha256()
        for leaf in jax.tree.leaves(self.parameters):
            digest.update(np.asarray(leaf).tobytes())
        return digest.hexdigest()


def recorded_weights(members: Sequence[Member]) -> dict[str, list[str]]:
    """What a record says of the types of weights: nothing if all are float32.

    Int8 weights also have another `parameters_sha256`, so neither's scores are taken
    for the other's.
    """
    weights = [member.weights for member in members]
    return {} if {*weights} == {"float32"} else {"weights": weights}


class Source(NamedTuple):
    """An encoded line."""

    # The line's tokens, then EOS; empty if the line has no visible character.
    ids: list[int]
    cut: int  # the number of tokens removed from the end of a line that is too long
    # A number that the random samples of the line depend on besides its tokens; 0 for
    # none.
    number: int = 0


class InputReader:
    """Encodes lines for the models of a translator.

    Args:
      warn: if True, log warnings to the logger `t2t_jax`; else log at level DEBUG.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        members: Sequence[Member],
        first_line: int = 1,
        warn: bool = True,
        tag: str = "",
    ):
        self._before = f"{tag} " if tag else ""
        self._vocabulary = vocabulary
        # The strictest member of an ensemble limits all of them.
        self._longest, self._why = min(
            longest_source(member.config, member.model) for member in members
        )
        self._decode = members[0].config.decode
        # No training sentence was longer; an imported model's config does not say.
        config = members[0].config
        is_trained = config.data.train and not config.train.init_from
        self._trained = config.data.max_length if is_trained else self._longest
        self._first = first_line
        self._log = log.warning if warn else log.debug

    def warn(self, rows: Sequence[int], total: int, single: str, several: str) -> None:
        """Logs one warning about some of `total` lines, if there are any.

        Args:
          rows: the lines, from 0.
          single: the message about one line, after its number.
          several: the message about more, after their count; the first are listed.
        """
        numbers = [self._first + row for row in rows]
        if len(numbers) == 1:
            self._log("line %d%s", numbers[0], single)
        elif numbers:
            listed = ", ".join(map(str, numbers[:NAMED]))
            listed += ", ..." if len(numbers) > NAMED else ""
            self._log("%d of %d %s: lines %s", len(numbers), total, several, listed)

    def sources(self, lines: Sequence[str]) -> list[Source]:
        """Encodes each line; cuts those that are too long, with a warning."""
        check_lines(lines)
        vocabulary, limit, sources = self._vocabulary.source, self._longest - 1, []
        encoded = vocabulary.encode([f"{self._before}{line}" for line in lines])
        for line, ids in zip(lines, encoded, strict=True):
            if visible(line):
                cut = max(0, len(ids) - limit)
                sources.append(Source([*ids[:limit], vocabulary.eos], cut))
            else:
                sources.append(Source([], 0))
        cut = [row for row, source in enumerate(sources) if source.cut]
        pieces = sources[cut[0]].cut + limit if cut else 0
        only = f"only the first {limit} are read ({self._why})"
        self.warn(
            cut,
            len(lines),
            f" has {pieces} tokens; {only}",
            f"lines have more than {limit} tokens; {only}",
        )
        trained = [n for n, s in enumerate(sources) if self._trained < len(s.ids)]
        self._warn_alike(
            [row for row in trained if not sources[row].cut],
            lines,
            f"more tokens than any training sentence (config.data.max_length="
            f"{self._trained}); split=sentences translates each by itself",
        )
        self._warn_of_unknown(vocabulary, lines, encoded)
        decomposed = [n for n, x in enumerate(lines) if not is_normalized("NFC", x)]
        nfc = [f"{self._before}{normalize('NFC', lines[n])}" for n in decomposed]
        shorter = zip(decomposed, vocabulary.encode(nfc), strict=True)
        self._warn_alike(
            [n for n, ids in shorter if len(ids) < len(encoded[n])],
            lines,
            "decomposed letters; in Unicode's form NFC they have fewer tokens",
        )
        return sources

    def _warn_alike(self, rows: Sequence[int], lines: Sequence, problem: str) -> None:
        """Warns of lines with a problem, in the same words for one and several."""
        self.warn(rows, len(lines), f" has {problem}", f"lines have {problem}")

    def _warn_of_unknown(
        self, side: Vocabulary, texts: Sequence[str], encoded: Sequence
    ) -> None:
        """Warns of what a tokenizer without bytes cannot spell."""
        rows = [row for row, ids in enumerate(encoded) if side.unknown in ids]
        named = [texts[row] for row in rows[:NAMED]]
        words = [*dict.fromkeys(t[b:e] for t in named for b, e in text_words(t))]
        word_ids = zip(words, side.encode(words), strict=True)
        quoted = [repr(word) for word, ids in word_ids if side.unknown in ids][:NAMED]
        count = sum(ids.count(side.unknown) for ids in encoded)
        problem = f"unknown tokens ({count}): {side.name} cannot spell "
        self._warn_alike(rows, texts, problem + ", ".join(quoted))

    def fits(self, line: str, longest: int | None = None) -> bool:
        """True if a line is read to its end, or has at most so many tokens with EOS."""
        ids = self._vocabulary.source.encode([f"{self._before}{line}"])[0]
        return len(ids) < min(self._longest, longest or self._longest)

    def prompts(self, lines: Sequence[str]) -> list[Source]:
        """Encodes each line as the beginning of a text, for a model without a source.

        No line is empty here: that of a text from nothing is EOS alone. The number of a
        line is part of it, since the same beginning goes on differently each time.
        """
        check_lines(lines)
        encoded = self._vocabulary.encode([line.rstrip() for line in lines], end=True)
        for number, ids in enumerate(encoded, self._first):
            if len(ids) > self._longest:
                raise UserError(
                    f"line {number}: the beginning of the text has {len(ids) - 1} "
                    f"tokens; want at most {self._longest - 1} ({self._why})"
                )
        self._warn_of_unknown(self._vocabulary, lines, encoded)
        return [Source(ids, 0, n) for n, ids in enumerate(encoded, self._first)]

    def pairs(self, pairs: Sequence[tuple]) -> list[tuple[list[int], list[int]]]:
        """Encodes (source, target) pairs into (source ids, target ids), with EOS.

        A target is a text, or a `Hypothesis` or `Translation`, whose own tokens are
        used, unless they are of another model's vocabulary: then its text is encoded. A
        target longer than any translation is cut, with a warning; one that is cut, or
        that did not end, has no EOS.
        """
        kinds = str, Hypothesis, Translation
        for pair in pairs:
            if isinstance(pair, str) or len(pair) != 2:
                raise UserError(f"{pair!r} is not a pair; want (source, target)")
            if not all(isinstance(side, kinds) for side in pair):
                raise UserError(f"{pair!r}: want texts, Hypothesis or Translation")
            check_text(str(pair[1]))
        sources = self.sources([str(source) for source, _ in pairs])
        encoded = self.targets([target for _, target in pairs])
        # An empty source is EOS alone, so that there is a token to attend to.
        end = [self._vocabulary.source.eos]
        source_ids = [source.ids or end for source in sources]
        return list(zip(source_ids, encoded, strict=True))

    def targets(
        self, targets: Sequence[str | Hypothesis | Translation]
    ) -> list[list[int]]:
        """Encodes targets, as for `pairs`."""
        texts = [str(target) for target in targets]
        encoded = self._vocabulary.encode(texts, end=True)
        # Of a translation, its own tokens count.
        is_text = [text is target for text, target in zip(texts, targets, strict=True)]
        text_ids = [ids * plain for ids, plain in zip(encoded, is_text, strict=True)]
        self._warn_of_unknown(self._vocabulary, texts, text_ids)
        for row, target in enumerate(targets):
            # Encoding the text again could give other subwords, of another probability.
            best = target.best if isinstance(target, Translation) else target
            if isinstance(best, Hypothesis) and best.tokens:
                if best.vocabulary in ("", self._vocabulary.sha256[0]):
                    encoded[row] = [*best.tokens]
                elif not best.ended:  # in these tokens, too
                    del encoded[row][max(1, len(encoded[row]) - 1) :]
        check_ids(encoded, self._vocabulary)
        limit = longest_output(self._longest, self._decode)
        cut = [row for row, ids in enumerate(encoded) if len(ids) > limit]
        pieces = len(encoded[cut[0]]) - 1 if cut else 0
        only = f"only {limit} are read ({self._why})"
        self.warn(
            cut,
            len(encoded),
            f": its target has {pieces} tokens; {only}",
            f"targets have more than {limit} tokens; {only}",
        )
        for row in cut:
            del encoded[row][limit:]
        return encoded


def longest_source(config: Config, model: Model) -> tuple[int, str]:
    """Returns the longest input in tokens, with EOS, and the field that limits it."""
    longest = config.decode.max_source
    if model.longest is not None:
        # Sources are padded to a bucket, a power of two, and outputs may be longer than
        # the bucket by `extra_length`; all these positions must exist.
        extra, positions = config.decode.extra_length, model.longest
        room = positions - extra
        if room < SHORTEST:
            raise UserError(
                f"extra_length={extra}: the model has {positions} positions "
                f"(config.model.max_positions), and sources take {SHORTEST} or more; "
                f"want extra_length at most {positions - SHORTEST}"
            )
        room = 1 << (room.bit_length() - 1)  # the power of two below
        if room < longest:
            limit = f"config.model.max_positions={positions}, extra_length={extra}"
            return room, limit
    return longest, f"config.decode.max_source={longest}"


def check_lines(lines) -> None:
    """Raises UserError unless `lines` is a list of valid strings."""
    if isinstance(lines, str):
        raise UserError("translate takes a list of lines; got one string: put it in []")
    for line in lines:
        if not isinstance(line, str):
            raise UserError(f"{line!r} is not a line of text; want strings")
        check_text(line)


def check_ids(rows: Sequence[Sequence[int]], vocabulary: Vocabulary) -> None:
    """Raises UserError for token ids that a vocabulary does not have."""
    for number, ids in enumerate(rows, 1):
        if not all(0 <= i < len(vocabulary) for i in ids):
            raise UserError(
                f"line {number} has the token ids {str([*ids])[:60]}; want ids from 0 "
                f"to {len(vocabulary) - 1}, those of this model's vocabulary"
            )


def check_text(text: str) -> None:
    """Raises UserError for lone surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise UserError(
            f"{text[:60]!r}: character {e.start + 1} is a lone surrogate, which is not "
            "text; decode the input as UTF-8"
        ) from None
