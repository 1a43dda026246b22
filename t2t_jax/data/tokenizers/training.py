"""The tokenizer of a training text: loaded, or trained once and kept in the cache.

Subwords are a byte-pair encoding of SentencePiece, joint or one model a side
(section 5.1 of the paper).
"""

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import sentencepiece

from t2t_jax.config import DataConfig
from t2t_jax.data.cleaning import Cleaner, read_chunks, with_progress
from t2t_jax.data.corpus import Corpus
from t2t_jax.data.tokenizers.sentencepieces import escape
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, parse_symbols
from t2t_jax.io.cache import (
    build_once,
    cache_folder,
    cache_key,
    known_size,
    remember_size,
)
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say, waiting

T = TypeVar("T")

ROUND_TRIPS = 500  # pairs on which an existing tokenizer is tried


class TextPart(NamedTuple):
    """The part of the text that a tokenizer is for."""

    sides: tuple[int, ...]  # of a pair in it: 0 is the source, 1 the target
    # The fields of `config.data` for an existing tokenizer, and for the number of
    # pieces of a new one.
    tokenizer: str = "tokenizer"
    size: str = "vocab_size"
    cleaned: tuple[int, ...] = (0, 1)  # the sides of a pair that must not be empty


JOINT = TextPart((0, 1))

# In the order of `Vocabulary.sides`.
SEPARATE = TextPart((1,)), TextPart((0,), "source_tokenizer", "source_vocab_size")


def make_tokenizer(
    corpora: Sequence[Corpus], config: DataConfig, sides: tuple[int, ...] = JOINT.sides
) -> Vocabulary:
    """The tokenizer of a training text, or one for each side: loaded or trained.

    Training uses pairs sampled evenly from the text, at most `config.tokenizer_lines`
    lines. The rules that need no tokenizer clean the text first, so that a page that
    occurs a thousand times does not shape the tokenizer. The weights of the corpora do
    not matter.

    Args:
      corpora: The training text.
      config: `tokenizer` and `source_tokenizer` are existing models, relative to
        `dir`; empty trains one.
      sides: The sides of a pair that hold text: 0 is the source, 1 the target.

    Raises:
      UserError: An existing tokenizer splits one of `config.symbols`; a vocabulary size
        that does not fit the text; the cache folder cannot be written.
    """
    if config.joint_vocabulary:
        part = TextPart(sides, cleaned=sides)
        return _tokenizer_for(part, corpora, config, *config.vocab_sizes)
    target, source = (
        _tokenizer_for(part, corpora, config, size)
        for part, size in zip(SEPARATE, config.vocab_sizes, strict=True)
    )
    return Vocabulary(target.model, target.name, source)


def make_source_tokenizer(corpora: Sequence[Corpus], config: DataConfig) -> Vocabulary:
    """Makes a tokenizer of the source alone, for a target that is not text."""
    return _tokenizer_for(SEPARATE[1], corpora, config, config.vocab_sizes[-1])


def existing_tokenizer(config: DataConfig, field: str) -> Vocabulary | None:
    """Loads the tokenizer that a field of `config.data` names; None if it is empty."""
    if not (path := getattr(config, field)):
        return None
    return Vocabulary.load(Path(config.dir).expanduser() / Path(path).expanduser())


def _tokenizer_for(
    part: TextPart, corpora: Sequence[Corpus], config: DataConfig, vocab_size: int
) -> Vocabulary:
    """The tokenizer of a part of the text; see `make_tokenizer`."""
    symbols = parse_symbols(config.symbols)
    if vocabulary := existing_tokenizer(config, part.tokenizer):
        vocabulary.check_symbols(
            symbols,
            f"train it with --user_defined_symbols={','.join(symbols)}, or leave "
            f"config.data.{part.tokenizer} empty to have one trained",
        )
        _warn_if_lossy(vocabulary, part, corpora)
        return vocabulary
    text = [corpus.fingerprint() for corpus in corpora]
    # Every option that changes the tokenizer.
    names = ("tokenizer_lines", "symbols", "deduplicate")
    options = {name: getattr(config, name) for name in names}
    if part != JOINT:
        options["sides"] = part.sides
    key = cache_key(text=text, vocab_size=vocab_size, **options)
    folder = cache_folder() / "tokenizers" / key

    def write(temporary: Path):
        say("training the tokenizer")
        sample_size = max(1, config.tokenizer_lines // len(part.sides))
        samples = sample(clean_lines(), sample_size)
        # SentencePiece copies the lines, so this list is emptied as they are read.
        lines = itertools.chain.from_iterable(consume(samples))
        with waiting(f"training a tokenizer of {vocab_size:,} pieces"):
            model = train_tokenizer(lines, vocab_size, symbols, part.size)
        (temporary / "tokenizer.model").write_bytes(model)

    def clean_lines() -> Iterator[tuple[str, ...]]:
        cleaner = Cleaner(config, part.cleaned)
        chunks = with_progress("reading", read_chunks(corpora), known_size(text))
        for chunk in chunks:
            for pair in cleaner.by_text(chunk).pairs:
                yield tuple(pair[side] for side in part.sides)
        remember_size(text, cleaner.read)

    build_once(folder, write, "tokenizer")
    return Vocabulary.load(folder / "tokenizer.model")


def _warn_if_lossy(
    vocabulary: Vocabulary, part: TextPart, corpora: Sequence[Corpus]
) -> None:
    """Warns if an existing tokenizer does not give lines back as they were."""
    pairs = itertools.chain.from_iterable(corpus.pairs() for corpus in corpora)
    tried_pairs = itertools.islice(pairs, ROUND_TRIPS)
    lines = [pair[side] for pair in tried_pairs for side in part.sides]
    decoded = vocabulary.decode(vocabulary.encode(lines))
    round_trips = zip(lines, decoded, strict=True)
    changed = [(before, after) for before, after in round_trips if before != after]
    if changed:
        say(
            f"warning: {vocabulary.name} changes {len(changed):,} of the first "
            f"{len(lines):,} lines, such as {changed[0][0]!r} into {changed[0][1]!r}; "
            "the model neither learns nor writes what this tokenizer cannot spell"
        )


def sample(items: Iterable[T], size: int) -> list[T]:
    """Samples at most `size` items, in order, each with equal probability.

    Every item draws a random number, and those with the smallest numbers are kept. The
    same items always give the same sample. Memory holds at most about 1.25 * `size`
    items at a time.
    """
    bits = np.random.Philox(0)  # its raw bits are the same in every version of NumPy
    numbers = itertools.chain.from_iterable(
        iter(lambda: bits.random_raw(4096).tolist(), None)
    )
    sampled: list[T] = []
    drawn: list[int] = []
    limit = 1 << 64  # above all numbers: at first every item is kept

    def trim():
        """Keeps the `size` items with the smallest numbers; returns the new limit."""
        limit = int(np.partition(np.array(drawn, np.uint64), size)[size])
        below = [number < limit for number in drawn]
        sampled[:] = itertools.compress(sampled, below)
        drawn[:] = itertools.compress(drawn, below)
        return limit

    for item, number in zip(items, numbers, strict=False):
        if number < limit:
            sampled.append(item)
            drawn.append(number)
            if (
                len(sampled) > size + size // 4 + 1000
            ):  # seldom: a trim reads all of them
                limit = trim()
    if len(sampled) > size:
        trim()
    return sampled


def train_tokenizer(
    lines: Iterable[str],
    vocab_size: int,
    symbols: Sequence[str] = (),
    field: str = "vocab_size",
) -> bytes:
    """Trains a byte-pair encoding.

    Args:
      lines: The text of both languages, or of one, streamed.
      vocab_size: The number of pieces, including 4 special ones, 256 bytes and the
        symbols.
      symbols: Strings that are always one piece: never split, never merged with their
        neighbours.
      field: The field of `config.data` that error messages name for `vocab_size`.

    Returns:
      The serialized SentencePiece model.

    Raises:
      UserError: `vocab_size` is too small or too large for this text.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(escape(line) for line in lines),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="bpe",
            # The next three settings make the tokenizer lossless.
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            byte_fallback=True,
            character_coverage=0.9999,  # rarer characters are spelled in bytes
            max_sentence_length=1 << 20,  # in bytes; longer lines are skipped
            user_defined_symbols=list(symbols),
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            minloglevel=2,  # errors only
        )
    except RuntimeError as e:
        raise UserError(_unfit(str(e), f"config.data.{field}=", vocab_size)) from None
    return model.getvalue()


def _unfit(reason: str, flag: str, vocab_size: int) -> str:
    """Rewords SentencePiece's error about a vocabulary size, with a size that fits."""
    message = f"{flag}{vocab_size} does not fit the training text: "
    if too_large := re.search(r"size too high .* value <= (\d+)", reason):
        return message + (
            f"it has no more than {int(too_large[1]):,} different pieces; "
            f"want --{flag}{too_large[1]} or less, or more text"
        )
    if too_small := re.search(r"smaller than required_chars. \d+ vs (\d+)", reason):
        return message + (
            f"its characters, 256 bytes, 4 special pieces and config.data.symbols are "
            f"{int(too_small[1]):,} already; want --{flag}{too_small[1]} or more"
        )
    if "sentences_.empty()" in reason:
        return "no text for a tokenizer: all is empty, or below config.data.min_score"
    # SentencePiece puts its source line and condition before "] ".
    return message + f"SentencePiece says {reason.rsplit('] ', 1)[-1].strip()}"


def consume(items: list[T]) -> Iterator[T]:
    """Yields the items of a list in order, and removes each from it: frees memory."""
    # Reversed once, because `pop` is O(1) only at the end.
    items.reverse()
    while items:
        yield items.pop()
