"""Prepares training text once: cleans it, tokenizes it, stores flat arrays on disk.

The arrays are kept in a cache folder (`io/cache.py`), so a second run starts at
once. Text is streamed; memory holds only two lengths and a hash of each pair.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from etils import epath

from t2t_jax.config import DataConfig
from t2t_jax.data.cleaning import FIELDS, Chunk, Cleaner, read_chunks, with_progress
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.drawing import tempered
from t2t_jax.data.filling import Ragged
from t2t_jax.data.pairs import Examples, Pairs, cut, prepared_key
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.cache import build_once, cache_folder, cache_key, is_intact, known_size
from t2t_jax.io.errors import UserError
from t2t_jax.io.tables import text_table
from t2t_jax.io.threads import in_order
from t2t_jax.sections import at_address

if TYPE_CHECKING:  # most text does not vary
    from t2t_jax.extensions.data.variation import Variation

SIDES = "source", "target"
CORPORA = "corpora.txt"
LISTED = 4  # corpora; of more, a report gives three
NO_LIMIT = 1 << 31  # `max_length` of pairs that are cut and never dropped


def training_pairs(
    corpora: Sequence[Corpus],
    vocabulary: Vocabulary,
    config: DataConfig,
    examples: Examples | None = None,
    arrays: Pairs | None = None,
) -> Pairs:
    """Opens a training text: its arrays, and what changes examples in each epoch.

    Args:
      corpora: The training text.
      vocabulary: Its tokenizer.
      config: The options of cleaning, and of what varies from epoch to epoch.
      examples: How its pairs become examples: a task; by default `Examples`.
      arrays: Those of an earlier run, of `find_prepared`; by default they are prepared.

    Raises:
      UserError: No pair is left after cleaning; the cache folder cannot be written; the
        text shall vary and is not what it was when the arrays were prepared, or the
        options of that are wrong.
    """
    examples = examples or Examples()
    # First, since it refuses what cannot vary before the text is prepared.
    variation = None
    if config.augment or config.subword_dropout:
        variation = at_address("extensions.data.variation.variation_of")(
            config, corpora, vocabulary, examples.encode
        )
    pairs = arrays or prepared_pairs(corpora, vocabulary, config, examples)
    texts = [*zip(corpora, pairs.sizes, strict=True)]
    # The lengths of noise are those of stored pairs, so it comes before the variation.
    noise = examples.noise(vocabulary, texts)
    further = examples.further(pairs, corpora, vocabulary)
    names = names_of(corpora)
    pairs = dataclasses.replace(pairs, names=names, noise=noise, further=further)
    return varied(pairs, variation)


def prepared_pairs(
    corpora: Sequence[Corpus],
    vocabulary: Vocabulary,
    config: DataConfig,
    examples: Examples | None = None,
    write: Callable[[Path], None] | None = None,
) -> Pairs:
    """The clean training text as memory-mapped token arrays, from the cache if there.

    Arguments and errors are those of `training_pairs`; nothing changes these pairs from
    epoch to epoch. `write` makes the files of `join` in a folder, if they are not there
    yet; by default from the text.
    """
    examples = examples or Examples()
    fingerprints = [corpus.fingerprint() for corpus in corpora]
    block = config.max_length if examples.cuts else 0
    config = uncut(config, examples)
    key = prepared_key(fingerprints, vocabulary, config)
    folder = cache_folder() / "pairs" / key

    def from_text(output: Path) -> None:
        chunks = with_progress(
            "encoding", read_chunks(corpora), known_size(fingerprints)
        )
        cleaner = Cleaner(config, examples.sides)
        with tempfile.TemporaryDirectory(dir=output.parent) as part:
            encode(chunks, cleaner, vocabulary, examples, len(corpora), Path(part))
            join(
                [epath.Path(part)], [corpus.spec for corpus in corpora], config, output
            )

    build_once(folder, write or from_text, "prepared text")
    pairs = dataclasses.replace(_read_pairs(folder), key=key)
    pairs = cut(pairs, block) if block else pairs
    weights = [float(corpus.weight) for corpus in corpora]
    # After cleaning, which decides how many pairs there are to draw from.
    weights = tempered(pairs.sizes, weights, config.temperature)
    return dataclasses.replace(pairs, weights=weights, names=names_of(corpora))


def names_of(corpora: Sequence[Corpus]) -> tuple[str, ...]:
    """How a config names corpora, with their weights."""
    return tuple(corpus.written or corpus.spec for corpus in corpora)


def uncut(config: DataConfig, examples: Examples) -> DataConfig:
    """The options of cleaning for pairs that are stored, and cut only when opened."""
    if not examples.cuts:
        return config
    return dataclasses.replace(config, max_length=NO_LIMIT)


def varied(pairs: Pairs, variation: "Variation | None") -> Pairs:
    """Makes prepared pairs vary from epoch to epoch; measures their lengths."""
    if variation is None:
        return pairs
    typical = variation.measure(pairs)
    variation = dataclasses.replace(variation, typical=typical)
    return dataclasses.replace(pairs, variation=variation)


def encode(
    chunks: Iterable[Chunk],
    cleaner: Cleaner,
    vocabulary: Vocabulary,
    examples: Examples,
    corpora: int,
    folder: Path,
) -> None:
    """Cleans and encodes chunks of the text, and streams the tokens into files.

    Files in `folder`: `source.tokens` and `target.tokens` (flat integers), the lengths
    of their sentences, `line.npy` (their lines in their corpora) and `part.json`.
    """
    # 16 bits hold the ids of most vocabularies, in half the space.
    dtype = np.uint16 if max(vocabulary.sizes) <= 1 << 16 else np.int32
    sizes = [0] * corpora
    lengths: tuple[list, list] = ([], [])
    lines = [np.zeros(0, np.int32)]

    def encoded(chunk: Chunk) -> tuple[Chunk, tuple[Ragged, Ragged]]:
        # One thread a chunk, because chunks are encoded in parallel already.
        return chunk, examples.encode(chunk.pairs, vocabulary, 1)

    with contextlib.ExitStack() as stack:
        names = [folder / f"{side}.tokens" for side in SIDES]
        files = [stack.enter_context(open(name, "wb")) for name in names]
        # `map` is lazy: cleaning stays in this thread and in order, as finding
        # duplicates needs it.
        for chunk, tokens_of in in_order(encoded, map(cleaner.by_text, chunks)):
            kept_p = cleaner.by_length(chunk, *(side.lengths for side in tokens_of))
            sizes[chunk.corpus] += int(kept_p.sum())
            lines.append(chunk.lines[kept_p].astype(np.int32))
            for side, file, side_lengths in zip(tokens_of, files, lengths, strict=True):
                # Repeating the mask of pairs makes it a mask of tokens.
                tokens = side.tokens[np.repeat(kept_p, side.lengths)]
                file.write(tokens.astype(dtype).tobytes())
                side_lengths.append(side.lengths[kept_p].astype(np.int32))
    # Every pair is either kept or counted as dropped.
    assert cleaner.read == sum(sizes) + sum(cleaner.dropped.values())
    for side, side_lengths in zip(SIDES, lengths, strict=True):
        np.save(
            folder / f"{side}.lengths.npy", np.concatenate([lines[0], *side_lengths])
        )
    np.save(folder / "line.npy", np.concatenate(lines))
    tally = {
        "dtype": np.dtype(dtype).name,
        "read": cleaner.read,
        "dropped": cleaner.dropped,
        "sizes": sizes,
        "examples": cleaner.examples,
        "by_corpus": cleaner.by_corpus,
    }
    (folder / "part.json").write_text(json.dumps(tally))


def join(
    parts: Sequence[epath.Path], specs: Sequence[str], config: DataConfig, folder: Path
) -> None:
    """Joins what `encode` wrote of consecutive parts of a text.

    Files in `folder`: the tokens, their offsets, `line.npy`, `left_out.txt` (examples
    of dropped pairs), `corpora.txt` (a table of what each corpus gave) and `meta.json`.

    Raises:
      UserError: cleaning dropped every pair.
    """
    tallies = [json.loads((part / "part.json").read_text()) for part in parts]
    cleaner = Cleaner(config)
    for tally in tallies:
        # A part of an earlier version counts by no corpus.
        counts = tally["dropped"], tally["examples"], tally.get("by_corpus", {})
        cleaner.add(tally["read"], *counts)
    # A part's pairs are consecutive, so those of each corpus follow one another.
    sizes = np.sum([tally["sizes"] for tally in tallies], axis=0).tolist()
    if not sum(sizes):
        raise UserError(_nothing_left(specs, cleaner, config))

    def joined(name: str) -> np.ndarray:
        return np.concatenate([load(part / name) for part in parts])

    for side in SIDES:
        with open(folder / f"{side}.tokens", "wb") as tokens:
            for part in parts:
                with (part / f"{side}.tokens").open("rb") as file:
                    shutil.copyfileobj(file, tokens)
        offsets = np.zeros(sum(sizes) + 1, np.int64)
        np.cumsum(joined(f"{side}.lengths.npy"), out=offsets[1:])
        np.save(folder / f"{side}.offsets.npy", offsets)
    np.save(folder / "line.npy", joined("line.npy"))
    (folder / "left_out.txt").write_text(cleaner.show(specs), encoding="utf-8")
    columns = ["read", *(rule for rule, count in cleaner.dropped.items() if count)]
    rows = [["corpus", *columns, "kept"]]
    for number, (spec, size) in enumerate(zip(specs, sizes, strict=True)):
        counts = [cleaner.by_corpus[number][column] for column in columns]
        rows.append([spec, *(f"{count:,}" for count in [*counts, size])])
    (folder / CORPORA).write_text("\n".join(text_table(rows)) + "\n", encoding="utf-8")
    meta = {
        "dtype": tallies[0]["dtype"],
        "read": cleaner.read,
        "dropped": cleaner.dropped,
        "sizes": sizes,
    }
    (folder / "meta.json").write_text(json.dumps(meta))


def load(file: epath.PathLike) -> np.ndarray:
    """Reads an array, also from a bucket."""
    with epath.Path(file).open("rb") as stream:
        return np.load(stream)


def _nothing_left(specs: list[str], cleaner: Cleaner, config: DataConfig) -> str:
    """The error message if cleaning dropped every pair: the counts, what to change."""
    counts = [f"{count:,} {rule}" for rule, count in cleaner.dropped.items()]
    fields = [
        f"config.data.{field}={getattr(config, field)}"
        for rule, field in FIELDS.items()
        if field and cleaner.dropped[rule]
    ]
    return (
        f"no training pair is left of {', '.join(specs)}: of {cleaner.read:,} read, "
        f"{', '.join(counts)}; "
        + (f"change {' or '.join(fields)}" if fields else "want lines with words")
    )


def _read_pairs(folder: Path) -> Pairs:
    """Opens the arrays that `join` stored; tokens and lines stay on disk."""
    meta = json.loads((folder / "meta.json").read_text())
    sides = []
    for side in SIDES:
        file = folder / f"{side}.tokens"
        tokens = np.zeros(0, meta["dtype"])  # an empty file cannot be mapped
        if file.stat().st_size:
            tokens = np.memmap(file, meta["dtype"], mode="r")
        sides.append(Ragged(tokens, np.load(folder / f"{side}.offsets.npy")))
    return Pairs(
        *sides,
        dict.fromkeys(FIELDS, 0) | meta["dropped"],  # an earlier version had less rules
        read=meta["read"],
        sizes=tuple(meta["sizes"]),
        folder=folder,
        line=np.load(folder / "line.npy", mmap_mode="r"),
    )


def text_summary(pairs: Pairs, dev: Sequence[Pair]) -> dict:
    """A summary of the training text and a hash of the dev text, for the workdir."""
    lines = json.dumps(list(dev), ensure_ascii=False)
    return {
        # The arrays do not depend on the weights, but what the run trains on does.
        "prepared": cache_key(
            arrays=pairs.key,
            weights=pairs.weights,
            **({"block": pairs.block} if pairs.block else {}),
            **({"further": pairs.further.key} if pairs.further.key else {}),
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
    """Opens the training pairs of a run, by its `text_summary`, from the cache folder.

    Raises:
      UserError: They are not in the cache folder any more, or damaged.
    """
    key, weights = str(text["arrays"]), tuple(map(float, text["weights"]))
    folder = cache_folder() / "pairs" / key
    # The key comes from a file of the workdir, so it must not lead out of the cache.
    cached = re.fullmatch("[0-9a-f]{24}", key) and is_intact(folder)
    if not cached:
        raise UserError(
            f"the prepared training text of this run is not in {cache_folder()}; "
            "python -m t2t_jax.main with the config and --workdir of the run prepares "
            "it again"
        )
    pairs = dataclasses.replace(_read_pairs(folder), key=key, weights=weights)
    block = int(text.get("block", 0))  # workdirs of earlier versions have none
    return cut(pairs, block) if block else pairs


def _drawn(pairs: Pairs) -> str:
    """Says how many pairs an epoch draws, and of which corpora; of many, which most."""
    names = pairs.names or [f"corpus {n}" for n in range(1, len(pairs.sizes) + 1)]
    counted = [*zip(pairs.sizes, pairs.weights, names, strict=True)]
    listed = counted
    if len(counted) > LISTED:
        by_count = sorted(counted, key=lambda row: -row[0] * row[1])
        listed = [by_count[0], by_count[len(by_count) // 2], by_count[-1]]
    rows = [f"{size:,} x {weight:.4g} ({name})" for size, weight, name in listed]
    if listed is counted:
        return f"an epoch draws {' + '.join(rows)}"
    total = sum(size * weight for size, weight, _ in counted)
    ranks = zip(("the largest", "the median", "the smallest"), rows, strict=True)
    table = (pairs.folder or Path()) / CORPORA
    see = f"; see {table}" * table.exists()  # earlier versions wrote none
    return (
        f"an epoch draws {total:,.0f} pairs of {len(counted):,} corpora: "
        f"{', '.join(map(' '.join, ranks))}{see}"
    )


def report_lines(pairs: Pairs) -> list[str]:
    """A report on the training text, in lines for a person: kept, dropped, drawn."""
    left_out = ", ".join(f"{n:,} {rule}" for rule, n in pairs.dropped.items() if n)
    lines = [f"{len(pairs):,} training pairs"]
    if left_out:
        lines[0] += f" of {pairs.read:,}"
        lines.append(f"left out: {left_out}; see {pairs.folder / 'left_out.txt'}")
    texts = pairs.read - sum(pairs.dropped.values())
    if len(pairs) > texts:
        lines.append(f"{texts:,} texts, cut into blocks of {pairs.block:,} tokens")
    if pairs.weights not in ((), (1.0,)):
        lines.append(_drawn(pairs))
    if pairs.further.report:
        lines.append(pairs.further.report)
    return lines
