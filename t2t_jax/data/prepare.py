"""Prepares training text once: cleans it, tokenizes it, stores flat arrays on disk.

The arrays and the tokenizer are kept in a cache folder (`prepared_cache.py`), so a
second run starts at once. Text is streamed; memory holds only two lengths and a hash of
each pair.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from t2t_jax.config import DataConfig
from t2t_jax.data import tokenizer
from t2t_jax.data.batching import Layout, Ragged, fill
from t2t_jax.data.cleaning import FIELDS, Chunk, Cleaner, read_chunks
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.mixing import tempered
from t2t_jax.data.noise import Noise
from t2t_jax.data.prepared_cache import (
    build_once,
    cache_key,
    is_intact,
    known_size,
    remember_size,
)
from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.files.cache import cache_folder
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.terminal.progress import Progress, waiting

ROUND_TRIPS = 500  # pairs on which an existing tokenizer is tried
NO_LIMIT = 1 << 31  # `max_length` of pairs that are cut and never dropped

T, Made = TypeVar("T"), TypeVar("Made")
# (pairs, vocabulary, threads) -> the tokens of their sources and of their targets
Encode = Callable[[Sequence[Pair], Vocabulary, int], tuple[Ragged, Ragged]]


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Tokenized pairs: pair i is `source[i]` and `target[i]`, each ending in EOS.

    Attributes:
      source, target: The tokens of the pairs.
      dropped: The number of pairs that each rule of `data/cleaning.py` dropped.
      key: A hash of everything that the arrays depend on.
      read: The number of pairs before cleaning.
      sizes: The number of pairs of each corpus; the corpora follow one another.
      weights: How many times an epoch reads each corpus; empty means once.
      folder: The folder of the arrays and of examples of the dropped pairs.
      line: The line of each pair in its corpus, from 1, int32 [pairs]; empty if not
        known.
      noise: What makes the examples of an epoch of the pairs; None if they are the
        pairs themselves.
      block: The most tokens of a target, if longer ones were cut into blocks; else 0.
    """

    source: Ragged
    target: Ragged
    dropped: dict[str, int]
    key: str = ""
    read: int = 0
    sizes: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    folder: Path | None = None
    line: Sequence[int] | np.ndarray = ()
    noise: Noise | None = None
    block: int = 0

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of each example on each side; the same in every epoch."""
        if self.noise is not None:
            return self.noise.lengths(self)
        return self.source.lengths, self.target.lengths

    def batch(self, layout: Layout, seed: int, epoch: int) -> dict[str, np.ndarray]:
        """The arrays of a batch, as `filling.fill` returns them.

        Args:
          layout: The batch, from the plan of the epoch.
          seed, epoch: What noise depends on.
        """
        if self.noise is not None:
            return self.noise.fill(layout, self, seed, epoch)
        return fill(layout, self.source, self.target)


def cut(pairs: Pairs, block: int) -> Pairs:
    """Cuts targets into consecutive blocks, which become pairs of their own.

    Only the last block of a target ends in EOS. Tokens are not copied: the blocks are
    more offsets into the same array. Sources are empty.

    Args:
      block: The most tokens of a block.
    """
    lengths = pairs.target.lengths
    blocks = -(-lengths // block)  # of each pair, rounded up
    first = np.repeat(np.cumsum(blocks) - blocks, blocks)
    start = np.repeat(pairs.target.offsets[:-1], blocks)
    start += (np.arange(len(start)) - first) * block
    before = np.append(0, np.cumsum(blocks))
    ends = np.cumsum(pairs.sizes, dtype=np.int64)
    return dataclasses.replace(
        pairs,
        source=Ragged(pairs.source.tokens, np.zeros(len(start) + 1, np.int64)),
        target=Ragged(pairs.target.tokens, np.append(start, pairs.target.offsets[-1])),
        sizes=tuple(np.diff(before[ends], prepend=0).tolist()),
        line=np.repeat(pairs.line, blocks) if len(pairs.line) else pairs.line,
        block=block,
    )


class Part(NamedTuple):
    """The part of the text that a tokenizer is for.

    Attributes:
      sides: The sides of a pair in it: 0 is the source, 1 the target.
      cleaned: The sides of a pair that must not be empty.
      tokenizer, size: The fields of `config.data` for an existing tokenizer, and for
        the number of pieces of a new one.
    """

    sides: tuple[int, ...]
    tokenizer: str = "tokenizer"
    size: str = "vocab_size"
    cleaned: tuple[int, ...] = (0, 1)


JOINT = Part((0, 1))
# In the order of `Vocabulary.sides`.
SEPARATE = Part((1,)), Part((0,), "source_tokenizer", "source_vocab_size")


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
        part = Part(sides, cleaned=sides)
        return _tokenizer_for(part, corpora, config, *config.vocab_sizes)
    target, source = (
        _tokenizer_for(part, corpora, config, size)
        for part, size in zip(SEPARATE, config.vocab_sizes, strict=True)
    )
    return Vocabulary(target.model, target.name, source)


def make_source_tokenizer(corpora: Sequence[Corpus], config: DataConfig) -> Vocabulary:
    """As `make_tokenizer`, of the source alone: for a target that is not text."""
    return _tokenizer_for(SEPARATE[1], corpora, config, config.vocab_sizes[-1])


def existing_tokenizer(config: DataConfig, field: str) -> Vocabulary | None:
    """Loads the tokenizer that a field of `config.data` names; None if it is empty."""
    if not (path := getattr(config, field)):
        return None
    return Vocabulary.load(Path(config.dir).expanduser() / Path(path).expanduser())


def _tokenizer_for(
    part: Part, corpora: Sequence[Corpus], config: DataConfig, vocab_size: int
) -> Vocabulary:
    """The tokenizer of a part of the text; see `make_tokenizer`."""
    symbols = tokenizer.parse_symbols(config.symbols)
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
        most = max(1, config.tokenizer_lines // len(part.sides))
        samples = tokenizer.sample(clean_lines(), most)
        # SentencePiece copies the lines, so this list is emptied as they are read.
        lines = itertools.chain.from_iterable(tokenizer.consume(samples))
        with waiting(f"training a tokenizer of {vocab_size:,} pieces"):
            model = tokenizer.train(lines, vocab_size, symbols, part.size)
        (temporary / "tokenizer.model").write_bytes(model)

    def clean_lines() -> Iterator[tuple[str, ...]]:
        cleaner = Cleaner(config, part.cleaned)
        chunks = _with_progress("reading", read_chunks(corpora), known_size(text))
        for chunk in chunks:
            for pair in cleaner.by_text(chunk).pairs:
                yield tuple(pair[side] for side in part.sides)
        remember_size(text, cleaner.read)

    build_once(folder, write)
    return Vocabulary.load(folder / "tokenizer.model")


def _warn_if_lossy(
    vocabulary: Vocabulary, part: Part, corpora: Sequence[Corpus]
) -> None:
    """Warns if an existing tokenizer does not give lines back as they were."""
    pairs = itertools.chain.from_iterable(corpus.pairs() for corpus in corpora)
    first = itertools.islice(pairs, ROUND_TRIPS)
    lines = [pair[side] for pair in first for side in part.sides]
    decoded = vocabulary.decode(vocabulary.encode(lines))
    round_trips = zip(lines, decoded, strict=True)
    changed = [(before, after) for before, after in round_trips if before != after]
    if changed:
        say(
            f"warning: {vocabulary.name} changes {len(changed):,} of the first "
            f"{len(lines):,} lines, such as {changed[0][0]!r} into {changed[0][1]!r}; "
            "the model neither learns nor writes what this tokenizer cannot spell"
        )


def _with_progress(
    job: str, chunks: Iterable[Chunk], total: int | None
) -> Iterator[Chunk]:
    """Yields the chunks, and reports the progress of a job as they are consumed."""
    with Progress(job, "pairs", total) as progress:
        for chunk in chunks:
            yield chunk
            progress.add(len(chunk.pairs))


def training_pairs(
    corpora: Sequence[Corpus],
    vocabulary: Vocabulary,
    config: DataConfig,
    encode: Encode | None = None,
    sides: tuple[int, ...] = JOINT.sides,
    cuts: bool = False,
) -> Pairs:
    """The clean training text as memory-mapped token arrays, from the cache if there.

    Args:
      corpora: The training text.
      vocabulary: Its tokenizer.
      config: The options of cleaning.
      encode: Encodes pairs; by default `encode_pairs`. Another function needs corpora
        with fingerprints of their own.
      sides: The sides of a pair that hold text: 0 is the source, 1 the target.
      cuts: Cut pairs that are too long, as `cut` does; do not drop them.

    Raises:
      UserError: No pair is left after cleaning; the cache folder cannot be written.
    """
    text = [corpus.fingerprint() for corpus in corpora]
    block = config.max_length if cuts else 0
    if cuts:
        config = dataclasses.replace(config, max_length=NO_LIMIT)
    # Every option that changes the arrays. Weights and the temperature do not; the plan
    # applies them.
    names = ("max_length", "max_ratio", "deduplicate", "symbols")
    hashes = {
        part.tokenizer: hashlib.sha256(side.model).hexdigest()
        for part, side in zip(SEPARATE, vocabulary.sides, strict=False)
    }
    key = cache_key(
        text=text, **hashes, **{name: getattr(config, name) for name in names}
    )
    folder = cache_folder() / "pairs" / key
    build_once(
        folder,
        lambda to: _write_pairs(
            corpora,
            vocabulary,
            config,
            encode or partial(encode_pairs, sides=sides),
            sides,
            to,
            known_size(text),
        ),
    )
    pairs = dataclasses.replace(_read_pairs(folder), key=key)
    pairs = cut(pairs, block) if block else pairs
    weights = [float(corpus.weight) for corpus in corpora]
    # After cleaning, which decides how many pairs there are to draw from.
    weights = tempered(pairs.sizes, weights, config.temperature)
    return dataclasses.replace(pairs, weights=weights)


def _write_pairs(
    corpora, vocabulary: Vocabulary, config: DataConfig, encode, sides, folder, total
):
    """Cleans and encodes the text, and streams the tokens into files in `folder`.

    Files: `source.tokens` and `target.tokens` (flat integers), their offsets,
    `line.npy`, `left_out.txt` (examples of dropped pairs) and `meta.json`.
    """
    # 16 bits hold the ids of most vocabularies, in half the space.
    dtype = np.uint16 if max(vocabulary.sizes) <= 1 << 16 else np.int32
    places = [corpus.place for corpus in corpora]
    cleaner = Cleaner(config, sides)
    sizes = [0] * len(corpora)
    lengths: tuple[list, list] = ([], [])
    lines: list[np.ndarray] = []

    def encoded(chunk: Chunk) -> tuple[Chunk, tuple[Ragged, Ragged]]:
        # One thread a chunk, because chunks are encoded in parallel already.
        return chunk, encode(chunk.pairs, vocabulary, 1)

    with contextlib.ExitStack() as stack:
        names = [folder / f"{side}.tokens" for side in ("source", "target")]
        files = [stack.enter_context(open(name, "wb")) for name in names]
        chunks = _with_progress("encoding", read_chunks(corpora), total)
        # `map` is lazy: cleaning stays in this thread and in order, as finding
        # duplicates needs it.
        for chunk, tokens_of in in_order(encoded, map(cleaner.by_text, chunks)):
            kept_p = cleaner.by_length(chunk, *(side.lengths for side in tokens_of))
            sizes[chunk.corpus] += int(kept_p.sum())
            lines.append(chunk.lines[kept_p].astype(np.int32))
            for side, file, kept in zip(tokens_of, files, lengths, strict=True):
                # Repeating the mask of pairs makes it a mask of tokens.
                tokens = side.tokens[np.repeat(kept_p, side.lengths)]
                file.write(tokens.astype(dtype).tobytes())
                kept.append(side.lengths[kept_p].astype(np.int32))
    # Every pair is either kept or counted as dropped.
    assert cleaner.read == sum(sizes) + sum(cleaner.dropped.values())
    if not sum(sizes):
        raise UserError(_nothing_left(places, cleaner, config))
    for side, kept in zip(("source", "target"), lengths, strict=True):
        offsets = np.zeros(sum(sizes) + 1, np.int64)
        np.cumsum(np.concatenate(kept), out=offsets[1:])
        np.save(folder / f"{side}.offsets.npy", offsets)
    np.save(folder / "line.npy", np.concatenate(lines))
    (folder / "left_out.txt").write_text(cleaner.show(places), encoding="utf-8")
    meta = {
        "dtype": np.dtype(dtype).name,
        "read": cleaner.read,
        "dropped": cleaner.dropped,
        "sizes": sizes,
    }
    (folder / "meta.json").write_text(json.dumps(meta))


def _nothing_left(places: list[str], cleaner: Cleaner, config: DataConfig) -> str:
    """The error message if cleaning dropped every pair: the counts, what to change."""
    counts = [f"{count:,} {rule}" for rule, count in cleaner.dropped.items()]
    fields = [
        f"config.data.{field}={getattr(config, field)}"
        for rule, field in FIELDS.items()
        if field and cleaner.dropped[rule]
    ]
    return (
        f"no training pair is left of {', '.join(places)}: of {cleaner.read:,} read, "
        f"{', '.join(counts)}; "
        + (f"change {' or '.join(fields)}" if fields else "want lines with words")
    )


def _read_pairs(folder: Path) -> Pairs:
    """Opens the arrays that `_write_pairs` stored; tokens and lines stay on disk."""
    meta = json.loads((folder / "meta.json").read_text())
    sides = []
    for side in ("source", "target"):
        file = folder / f"{side}.tokens"
        tokens = np.zeros(0, meta["dtype"])  # an empty file cannot be mapped
        if file.stat().st_size:
            tokens = np.memmap(file, meta["dtype"], mode="r")
        sides.append(Ragged(tokens, np.load(folder / f"{side}.offsets.npy")))
    return Pairs(
        *sides,
        meta["dropped"],
        read=meta["read"],
        sizes=tuple(meta["sizes"]),
        folder=folder,
        line=np.load(folder / "line.npy", mmap_mode="r"),
    )


def text_summary(pairs: Pairs, dev: Sequence[Pair]) -> dict:
    """A summary of the training text and a hash of the dev text, for the workdir.

    Args:
      pairs: The training text, as prepared.
      dev: The pairs of the dev text.
    """
    lines = json.dumps(list(dev), ensure_ascii=False)
    return {
        # The arrays do not depend on the weights, but what the run trains on does.
        "prepared": cache_key(
            arrays=pairs.key,
            weights=pairs.weights,
            **({"block": pairs.block} if pairs.block else {}),
        ),
        "dev": hashlib.sha256(lines.encode()).hexdigest(),
        "arrays": pairs.key,
        "block": pairs.block,
        "weights": list(pairs.weights),
        "read": pairs.read,
        "kept": len(pairs),
        "left_out": pairs.dropped,
    }


def find_prepared(text: dict) -> Pairs:
    """Opens the training pairs of a run from the cache folder.

    Args:
      text: What `text_summary` returned when the run prepared them.

    Raises:
      UserError: They are not in the cache folder any more, or damaged.
    """
    key, weights = str(text["arrays"]), tuple(map(float, text["weights"]))
    folder = cache_folder() / "pairs" / key
    # The key comes from a file of the workdir, so it must not lead out of the cache.
    known = re.fullmatch("[0-9a-f]{24}", key) and is_intact(folder)
    if not known:
        raise UserError(
            f"the prepared training text of this run is not in {cache_folder()}; "
            "python -m t2t_jax.main with the config and --workdir of the run prepares "
            "it again"
        )
    pairs = dataclasses.replace(_read_pairs(folder), key=key, weights=weights)
    block = int(text.get("block", 0))  # workdirs of earlier versions have none
    return cut(pairs, block) if block else pairs


def report_lines(pairs: Pairs) -> list[str]:
    """A report on the training text, in lines for a person: kept, dropped, drawn."""
    left_out = ", ".join(f"{n:,} {rule}" for rule, n in pairs.dropped.items() if n)
    lines = [f"{len(pairs):,} training pairs"]
    if left_out:
        lines[0] += f" of {pairs.read:,}"
        lines.append(f"left out: {left_out}; see {pairs.folder / 'left_out.txt'}")
    texts = pairs.read - sum(pairs.dropped.values())
    if len(pairs) > texts:
        lines.append(f"{texts:,} texts, cut into blocks of {pairs.block:,} pieces")
    if pairs.weights not in ((), (1.0,)):
        each = zip(pairs.sizes, pairs.weights, strict=True)
        drawn = " + ".join(f"{size:,} x {weight:.4g}" for size, weight in each)
        lines.append(f"an epoch draws {drawn}")
    return lines


def tokenize_in_memory(
    pairs: Iterable[Pair],
    vocabulary: Vocabulary,
    encode: Encode | None = None,
    block: int = 0,
) -> Pairs:
    """Tokenizes a dev or test set in memory; never drops a pair.

    Args:
      encode: As for `training_pairs`.
      block: Cut targets into blocks of at most this many tokens; 0 does not.
    """
    pairs = list(pairs)
    tokens_of = (encode or encode_pairs)(pairs, vocabulary, -1)
    tokenized = Pairs(*tokens_of, {}, sizes=(len(pairs),))
    return cut(tokenized, block) if block else tokenized


def encode_pairs(
    pairs: Sequence[Pair],
    vocabulary: Vocabulary,
    threads: int = -1,
    sides: Sequence[int] = JOINT.sides,
) -> tuple[Ragged, Ragged]:
    """Encodes the source and the target lines of some pairs; each ends in EOS.

    A side that is not one of `sides` has no tokens, not even EOS.
    """
    encoded = []
    for side, of_side in enumerate((vocabulary.source, vocabulary)):
        lines = [pair[side] for pair in pairs]
        if side in sides:
            encoded.append(ragged(of_side.encode(lines, end=True, threads=threads)))
        else:
            encoded.append(ragged([()] * len(lines)))
    return encoded[0], encoded[1]


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Concatenates rows of ids into one flat array with offsets."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    tokens = np.fromiter(itertools.chain.from_iterable(rows), np.int32, offsets[-1])
    return Ragged(tokens, offsets)


def in_order(make: Callable[[T], Made], items: Iterable[T]) -> Iterator[Made]:
    """Maps `make` over items in as many threads as there are cores; keeps the order.

    Threads suffice if `make` is mostly SentencePiece, which releases the interpreter's
    lock. The caller's thread draws the items, only a few ahead of the results.

    Args:
      make: A function of one item.
      items: The items, consumed lazily.

    Yields:
      The result of each item.
    """
    if hasattr(os, "sched_getaffinity"):  # the cores of this process, e.g. in Slurm
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    pending = collections.deque()
    with ThreadPoolExecutor(cores, "encoder") as pool:
        try:
            for item in items:
                pending.append(pool.submit(make, item))
                if len(pending) > 2 * cores:  # bounds memory
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            # After an error, do not encode what nobody will read.
            for future in pending:
                future.cancel()
