"""Corpus -> subwords -> token arrays on disk, once.

What is prepared lies in a cache folder under a name made of a hash of everything it
depends on: the text, the tokenizer, the options. So a second run starts at once, a
changed input is never silently reused, and runs share what they have in common. Folders
appear whole or not at all: they are written under another name and then renamed.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from t2t_jax.config import DataConfig
from t2t_jax.data import vocab
from t2t_jax.data.batching import Ragged
from t2t_jax.data.corpus import Corpus
from t2t_jax.data.vocab import Vocabulary
from t2t_jax.errors import UserError

FORMAT = 1  # part of every key: raise it when what is written changes
CHUNK = 10_000  # pairs tokenised at a time: bounds memory


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Tokenised pairs: pair i is `source[i]`, `target[i]`, each ending in EOS."""

    source: Ragged
    target: Ragged
    dropped: dict[str, int]  # why pairs were left out, and how many
    key: str = ""  # a hash of all that they were made from

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
    """Makes `folder` appear whole: `write` fills a temporary one, then a rename."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
    try:
        write(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was first: its bytes are ours
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def tokenizer(corpora: Sequence[Corpus], config: DataConfig) -> Vocabulary:
    """The tokenizer of a training text: an existing one, or trained on both sides."""
    if config.tokenizer:
        return Vocabulary.load(
            Path(config.dir).expanduser() / Path(config.tokenizer).expanduser()
        )
    fingerprints = [corpus.fingerprint() for corpus in corpora]
    key = _key(text=fingerprints, vocab_size=config.vocab_size)
    folder = cache_folder() / "tokenizers" / key

    def write(temporary: Path):
        lines = (line for corpus in corpora for pair in corpus.pairs() for line in pair)
        model = vocab.train(lines, config.vocab_size)
        (temporary / "tokenizer.model").write_bytes(model)

    if not folder.is_dir():
        _publish(folder, write)
    return Vocabulary.load(folder / "tokenizer.model")


def encode_pairs(
    pairs: Iterable[tuple[str, str]], vocabulary: Vocabulary
) -> Iterator[tuple[list[int], list[int]]]:
    """Tokenises pairs of lines in chunks; every side ends in EOS."""
    for chunk in _chunks(pairs):
        sides = (vocabulary.encode(side) for side in zip(*chunk, strict=True))
        for source, target in zip(*sides, strict=True):
            yield [*source, vocabulary.eos], [*target, vocabulary.eos]


def _chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    pairs = iter(pairs)
    while chunk := list(itertools.islice(pairs, CHUNK)):
        yield chunk


def training_pairs(
    corpora: Sequence[Corpus], vocabulary: Vocabulary, config: DataConfig
) -> Pairs:
    """The training text as memory-mapped token arrays, made now or found.

    A pair with an empty side, or a side of more than `config.max_length` pieces, is
    left out and counted.
    """
    key = _key(
        text=[corpus.fingerprint() for corpus in corpora],
        tokenizer=hashlib.sha256(vocabulary.model).hexdigest(),
        max_length=config.max_length,
    )
    folder = cache_folder() / "pairs" / key
    if not folder.is_dir():
        _publish(folder, lambda to: _write_pairs(corpora, vocabulary, config, to))
    return _read_pairs(folder)


def _write_pairs(corpora, vocabulary: Vocabulary, config: DataConfig, folder: Path):
    """Streams the tokens of both sides into flat files in `folder`."""
    dtype = np.uint16 if len(vocabulary) <= 1 << 16 else np.int32
    dropped = {"empty": 0, "too long": 0}
    lengths = ([], [])
    text = itertools.chain.from_iterable(corpus.pairs() for corpus in corpora)
    with contextlib.ExitStack() as stack:
        names = [folder / f"{side}.tokens" for side in ("source", "target")]
        files = [stack.enter_context(open(name, "wb")) for name in names]
        for pair in encode_pairs(text, vocabulary):
            if min(map(len, pair)) <= 1:  # EOS alone
                dropped["empty"] += 1
            elif max(map(len, pair)) > config.max_length:
                dropped["too long"] += 1
            else:
                for side in range(2):
                    files[side].write(np.array(pair[side], dtype).tobytes())
                    lengths[side].append(len(pair[side]))
    if not lengths[0]:
        raise UserError(
            f"no training pair is left of {', '.join(c.place for c in corpora)}: "
            f"{dropped['empty']:,} empty, {dropped['too long']:,} longer than "
            f"config.data.max_length={config.max_length} pieces"
        )
    for side, counts in zip(("source", "target"), lengths, strict=True):
        np.save(folder / f"{side}.offsets.npy", np.cumsum([0, *counts], dtype=np.int64))
    meta = {"dtype": np.dtype(dtype).name, "dropped": dropped}
    (folder / "meta.json").write_text(json.dumps(meta))


def _read_pairs(folder: Path) -> Pairs:
    meta = json.loads((folder / "meta.json").read_text())
    sides = []
    for side in ("source", "target"):
        tokens = np.memmap(folder / f"{side}.tokens", meta["dtype"], mode="r")
        sides.append(Ragged(tokens, np.load(folder / f"{side}.offsets.npy")))
    return Pairs(*sides, meta["dropped"], folder.name)


def small_pairs(pairs: Iterable[tuple[str, str]], vocabulary: Vocabulary) -> Pairs:
    """Tokenises a dev or test set in memory; nothing is ever left out of it."""
    sides = ([], [])
    for pair in encode_pairs(pairs, vocabulary):
        for side in range(2):
            sides[side].append(pair[side])
    return Pairs(*map(ragged, sides), {})


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Rows of ids as one flat array with offsets."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    tokens = np.fromiter(itertools.chain.from_iterable(rows), np.int32, offsets[-1])
    return Ragged(tokens, offsets)
