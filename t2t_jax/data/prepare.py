"""Corpus -> clean -> subwords -> token arrays on disk, once.

What is prepared lies in a cache folder under a name made of a hash of everything it
depends on: the text, the tokenizer, the options. So a second run starts at once, a
changed input is never silently reused, and runs share what they have in common. Folders
appear whole or not at all: they are written under another name and then renamed.

Text is streamed: what is kept in memory of a pair is two lengths and a hash.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from etils import epath

from t2t_jax.config import DataConfig
from t2t_jax.data import tokenizer
from t2t_jax.data.batching import Ragged
from t2t_jax.data.cleaning import FIELDS, Chunk, Cleaner, read_chunks
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.files import atomic, sealed
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.terminal.progress import Progress, waiting

FORMAT = 3  # part of every key: raise it when what is written changes
ROUND_TRIPS = 500  # pairs that a tokenizer brought along is tried on

T, Made = TypeVar("T"), TypeVar("Made")


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Tokenised pairs: pair i is `source[i]`, `target[i]`, each ending in EOS.

    dropped: rule of `data/cleaning.py` -> pairs left out for it, of `read`.
    key: a hash of all that they were made from.
    sizes, weights: of each corpus, how many pairs it has here, one after the other, and
        how many times an epoch has them; empty means all of them once.
    folder: where they lie, with examples of what was left out.
    line: int32 [pairs], where each stands in its corpus, from 1; empty if not known.
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

    def __len__(self) -> int:
        return len(self.source.offsets) - 1


def cache_folder() -> Path:
    """`$T2T_JAX_CACHE`, or `t2t_jax` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("T2T_JAX_CACHE") or Path(home) / "t2t_jax")


def _key(**parts) -> str:
    text = json.dumps({"format": FORMAT, **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _publish(folder: Path, write: Callable[[Path], None]) -> Path:
    """Makes `folder` appear whole: `write` fills a temporary one, then a rename.

    One that is there and damaged makes way for it.

    Raises:
      UserError: it cannot be written.
    """
    try:
        return _published(folder, write)
    except OSError as e:
        raise UserError(_unwritable(e)) from e


def _published(folder: Path, write: Callable[[Path], None]) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
    try:
        write(temporary)
        sealed.seal(temporary)
        if folder.is_file():
            folder.unlink()
        if folder.is_dir() and sealed.damage(folder):
            with contextlib.suppress(FileNotFoundError):  # another process did
                sealed.remove(epath.Path(folder))
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was first: its bytes are ours
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _made_once(folder: Path, write: Callable[[Path], None]) -> None:
    """Publishes a folder that is not there, and of several processes on a disk one.

    The others wait for it.
    """
    if _is_whole(folder):
        return
    try:
        turn = atomic.exclusive(cache_folder() / "turns" / folder.name)
        with turn:
            if not folder.is_dir() or sealed.damage(folder):
                _publish(folder, write)
    except OSError as e:
        raise UserError(_unwritable(e)) from e


def _unwritable(error: OSError) -> str:
    return (
        f"{cache_folder()} cannot be written: {error}. Mend that, or name another "
        "folder for prepared text in the environment variable T2T_JAX_CACHE"
    )


def _is_whole(folder: Path) -> bool:
    """True if a folder is there as it was written; says so if it is damaged."""
    if not folder.is_dir():
        return False
    if trouble := sealed.damage(folder):
        say(f"warning: {folder} is damaged ({trouble}); it is made again")
    return not trouble


def make_tokenizer(corpora: Sequence[Corpus], config: DataConfig) -> Vocabulary:
    """The tokenizer of a training text: an existing one, or trained on both sides.

    It is trained on the text that is left by the rules that need no tokenizer, so a
    page that occurs a thousand times does not shape it, and of that on pairs of lines
    sampled evenly: at most `config.tokenizer_lines` lines. A corpus counts by its lines
    there, whatever its weight.

    Raises:
      UserError: an existing one that does not fit `config.symbols`; a vocabulary size
        that does not fit the text.
    """
    symbols = tokenizer.parse_symbols(config.symbols)
    if config.tokenizer:
        vocabulary = Vocabulary.load(
            Path(config.dir).expanduser() / Path(config.tokenizer).expanduser()
        )
        vocabulary.check_symbols(
            symbols,
            f"train it with --user_defined_symbols={','.join(symbols)}, or leave "
            "config.data.tokenizer empty, and one is trained",
        )
        _tell_if_lossy(vocabulary, corpora)
        return vocabulary
    text = [corpus.fingerprint() for corpus in corpora]
    names = ("vocab_size", "tokenizer_lines", "symbols", "deduplicate")
    key = _key(text=text, **{name: getattr(config, name) for name in names})
    folder = cache_folder() / "tokenizers" / key

    def write(temporary: Path):
        pairs = tokenizer.sample(clean_pairs(), max(1, config.tokenizer_lines // 2))
        lines = itertools.chain.from_iterable(tokenizer.drained(pairs))
        with waiting(f"training a tokenizer of {config.vocab_size:,} pieces"):
            model = tokenizer.train(lines, config.vocab_size, symbols)
        (temporary / "tokenizer.model").write_bytes(model)

    def clean_pairs() -> Iterator[Pair]:
        cleaner = Cleaner(config)
        for chunk in _shown("reading", read_chunks(corpora), _known_size(text)):
            yield from cleaner.by_text(chunk).pairs
        _remember_size(text, cleaner.read)

    _made_once(folder, write)
    return Vocabulary.load(folder / "tokenizer.model")


def _tell_if_lossy(vocabulary: Vocabulary, corpora: Sequence[Corpus]) -> None:
    """Says so where lines do not survive a tokenizer that was brought along."""
    pairs = itertools.chain.from_iterable(corpus.pairs() for corpus in corpora)
    lines = [line for pair in itertools.islice(pairs, ROUND_TRIPS) for line in pair]
    back = vocabulary.decode(vocabulary.encode(lines))
    changed = [both for both in zip(lines, back, strict=True) if both[0] != both[1]]
    if changed:
        say(
            f"warning: {vocabulary.name} changes {len(changed):,} of the first "
            f"{len(lines):,} lines, such as {changed[0][0]!r} into {changed[0][1]!r}; "
            "what it cannot spell is neither learned nor written"
        )


def _size_folder(text: list[str]) -> Path:
    return cache_folder() / "sizes" / _key(text=text)


def _remember_size(text: list[str], pairs: int) -> None:
    """Keeps how many pairs a text has, to tell next time how many are left to read."""
    folder = _size_folder(text)
    if not folder.is_dir():
        _publish(folder, lambda to: (to / "pairs").write_text(str(pairs)))


def _known_size(text: list[str]) -> int | None:
    file = _size_folder(text) / "pairs"
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None  # it is only to tell how much is left


def _shown(what: str, chunks: Iterable[Chunk], total: int | None) -> Iterator[Chunk]:
    """The same chunks, and progress is shown as they are asked for."""
    with Progress(what, "pairs", total) as progress:
        for chunk in chunks:
            yield chunk
            progress.add(len(chunk.pairs))


def training_pairs(
    corpora: Sequence[Corpus], vocabulary: Vocabulary, config: DataConfig
) -> Pairs:
    """The clean training text as memory-mapped token arrays, made now or found.

    Raises:
      UserError: no pair is left.
    """
    text = [corpus.fingerprint() for corpus in corpora]
    names = ("max_length", "max_ratio", "deduplicate", "symbols")
    key = _key(
        text=text,
        tokenizer=hashlib.sha256(vocabulary.model).hexdigest(),
        **{name: getattr(config, name) for name in names},
    )
    folder = cache_folder() / "pairs" / key
    _made_once(
        folder,
        lambda to: _write_pairs(corpora, vocabulary, config, to, _known_size(text)),
    )
    weights = tuple(float(corpus.weight) for corpus in corpora)
    return dataclasses.replace(_read_pairs(folder), key=key, weights=weights)


def _write_pairs(corpora, vocabulary: Vocabulary, config: DataConfig, folder, total):
    """Streams the tokens of both sides into flat files in `folder`."""
    dtype = np.uint16 if len(vocabulary) <= 1 << 16 else np.int32
    places = [corpus.place for corpus in corpora]
    cleaner = Cleaner(config)
    sizes = [0] * len(corpora)
    lengths: tuple[list, list] = ([], [])
    lines: list[np.ndarray] = []

    def encoded(chunk: Chunk) -> tuple[Chunk, tuple[Ragged, Ragged]]:
        return chunk, encode_pairs(chunk.pairs, vocabulary, threads=1)

    with contextlib.ExitStack() as stack:
        names = [folder / f"{side}.tokens" for side in ("source", "target")]
        atomic = [stack.enter_context(open(name, "wb")) for name in names]
        text = map(cleaner.by_text, _shown("encoding", read_chunks(corpora), total))
        for chunk, sides in in_order(encoded, text):
            kept_p = cleaner.by_length(chunk, *(side.lengths for side in sides))
            sizes[chunk.corpus] += int(kept_p.sum())
            lines.append(chunk.lines[kept_p].astype(np.int32))
            for side, file, kept in zip(sides, atomic, lengths, strict=True):
                tokens = side.tokens[np.repeat(kept_p, side.lengths)]
                file.write(tokens.astype(dtype).tobytes())
                kept.append(side.lengths[kept_p].astype(np.int32))
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
    meta = json.loads((folder / "meta.json").read_text())
    sides = []
    for side in ("source", "target"):
        tokens = np.memmap(folder / f"{side}.tokens", meta["dtype"], mode="r")
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
    """What became of the training text, and a hash of the dev text, as a workdir keeps
    them."""
    lines = json.dumps(list(dev), ensure_ascii=False)
    return {
        # The arrays do not depend on weights, but what is trained on does.
        "prepared": _key(arrays=pairs.key, weights=pairs.weights),
        "dev": hashlib.sha256(lines.encode()).hexdigest(),
        "arrays": pairs.key,
        "weights": list(pairs.weights),
        "read": pairs.read,
        "kept": len(pairs),
        "left_out": pairs.dropped,
    }


def find_prepared(text: dict) -> Pairs:
    """The training pairs that a workdir's `summary` tells of, from the cache folder.

    Raises:
      UserError: they are not there any more, or damaged.
    """
    key, weights = str(text["arrays"]), tuple(map(float, text["weights"]))
    folder = cache_folder() / "pairs" / key
    known = re.fullmatch("[0-9a-f]{24}", key) and _is_whole(folder)
    if not known:
        raise UserError(
            f"the prepared training text of this run is not in {cache_folder()}; "
            "python -m t2t_jax.main with the config and --workdir of the run prepares "
            "it again"
        )
    return dataclasses.replace(_read_pairs(folder), key=key, weights=weights)


def report_lines(pairs: Pairs) -> list[str]:
    """What became of the training text, in lines for a person."""
    left_out = ", ".join(f"{n:,} {rule}" for rule, n in pairs.dropped.items() if n)
    lines = [f"{len(pairs):,} training pairs"]
    if left_out:
        lines[0] += f" of {pairs.read:,}"
        lines.append(f"left out: {left_out}; see {pairs.folder / 'left_out.txt'}")
    if pairs.weights not in ((), (1.0,)):
        each = zip(pairs.sizes, pairs.weights, strict=True)
        drawn = " + ".join(f"{size:,} x {weight:g}" for size, weight in each)
        lines.append(f"an epoch draws {drawn}")
    return lines


def tokenize_in_memory(pairs: Iterable[Pair], vocabulary: Vocabulary) -> Pairs:
    """Tokenises a dev or test set in memory; nothing is ever left out of it."""
    return Pairs(*encode_pairs(list(pairs), vocabulary), {})


def encode_pairs(
    pairs: Sequence[Pair], vocabulary: Vocabulary, threads: int = -1
) -> tuple[Ragged, Ragged]:
    """Both sides of some pairs of lines as tokens; every line ends in EOS."""
    source, target = zip(*pairs, strict=True) if pairs else ((), ())
    return (
        ragged(vocabulary.encode(source, end=True, threads=threads)),
        ragged(vocabulary.encode(target, end=True, threads=threads)),
    )


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Rows of ids as one flat array with offsets."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    tokens = np.fromiter(itertools.chain.from_iterable(rows), np.int32, offsets[-1])
    return Ragged(tokens, offsets)


def in_order(make: Callable[[T], Made], items: Iterable[T]) -> Iterator[Made]:
    """`make` of each item, in order, made by as many threads as there are cores.

    Threads are enough where `make` is mostly SentencePiece, which runs without the
    interpreter's lock. The items are asked for by the caller's thread, a few ahead.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    waiting_for = collections.deque()
    with ThreadPoolExecutor(cores, "encoder") as pool:
        try:
            for item in items:
                waiting_for.append(pool.submit(make, item))
                if len(waiting_for) > 2 * cores:
                    yield waiting_for.popleft().result()
            while waiting_for:
                yield waiting_for.popleft().result()
        finally:
            for future in waiting_for:
                future.cancel()
