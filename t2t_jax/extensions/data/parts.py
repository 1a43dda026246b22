"""Prepares a training text in parts, on several machines: the bytes of one process.

A pair is a duplicate of one that may be in any part before its own, and the tokenizer
is trained once, on a sample of all parts. So there are two rounds of two stages:

    hash           of each part: a hash of each of its pairs
    merge=hash     which pairs came before, and the tokenizer
    encode         of each part: its pairs, cleaned and tokenized
    merge          the arrays, in the cache folder, where training finds them

Machines share a folder and nothing else. A part there is complete or absent, so parts
may be made in any order, again, and by several machines at once:

    FOLDER/TEXT/hash.03-of-16             hashes.npy
    FOLDER/TEXT/merged                    duplicate.npy, tokenizer.model
    FOLDER/TEXT/encode-ARRAYS.03-of-16    what `prepare.encode` writes
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from t2t_jax.config import DataConfig
from t2t_jax.data import prepare
from t2t_jax.data.cleaning import Chunk, Cleaner, hashes, read_chunks, with_progress
from t2t_jax.data.corpus import Corpus
from t2t_jax.data.hashing import HashSet
from t2t_jax.data.pairs import Examples, Pairs, prepared_key
from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES, Vocabulary
from t2t_jax.io import sealed
from t2t_jax.io.cache import cache_key, known_size, remember_size
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.io.output_files import changes
from t2t_jax.io.parts import finished_parts, part_of, share_of

STAGES = "hash", "encode"
# Of `config.data`: which pairs are duplicates, and which the tokenizer is trained on.
OPTIONS = "deduplicate", "symbols", "tokenizer", "source_tokenizer", "tokenizer_lines"
ENCODING = "max_length", "max_ratio"  # which pairs are left out by their tokens
BLOCK = 1 << 16  # hashes looked up at a time


def counted(corpora: Sequence[Corpus], fingerprints: Sequence[str]) -> list[int]:
    """The number of pairs of each corpus; reads it if the cache does not know."""
    counts = []
    for corpus, fingerprint in zip(corpora, fingerprints, strict=True):
        if (count := known_size([fingerprint])) is None:
            chunks = with_progress("counting", read_chunks([corpus]), None)
            count = sum(len(chunk.pairs) for chunk in chunks)
            remember_size([fingerprint], count)
        counts.append(count)
    return counts


def spans_of(counts: Sequence[int], part: tuple[int, int]) -> list[tuple[int, int]]:
    """The pairs of each corpus, of so many, that a part of the text has."""
    begin, end = share_of(sum(counts), part)
    starts = np.cumsum([0, *counts])[:-1].tolist()
    return [
        (min(max(begin - start, 0), count), min(max(end - start, 0), count))
        for start, count in zip(starts, counts, strict=True)
    ]


def part_of_text(corpora: Sequence[Corpus], part: tuple[int, int]) -> list[Corpus]:
    """The corpora of a part of a text, each with its lines of that part alone."""
    counts = counted(corpora, [corpus.fingerprint() for corpus in corpora])
    return [
        dataclasses.replace(
            corpus,
            pairs=functools.partial(corpus.span, begin, end),
            pairs_after=None,  # that of the whole
            skipped=begin,
        )
        for corpus, (begin, end) in zip(corpora, spans_of(counts, part), strict=True)
        if begin < end
    ]


@dataclasses.dataclass(frozen=True)
class TextInParts:
    """A training text that is prepared in parts.

    Args:
      corpora: The training text.
      config: The options of cleaning, as for `prepare.training_pairs`.
      examples: How its pairs become examples.
      parts: The folder that all machines share; it may be in a bucket.
      origin: What else the tokenizer depends on, by name; JSON values.
    """

    corpora: Sequence[Corpus]
    config: DataConfig
    examples: Examples
    parts: epath.Path
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def _text(self) -> list[str]:
        """The fingerprints of the corpora."""
        return [corpus.fingerprint() for corpus in self.corpora]

    @functools.cached_property
    def _made_from(self) -> dict:
        """The provenance of the hashes, the duplicates and the tokenizer."""
        # Without its folder: machines may keep the text in different ones.
        names = (f"text {i} ({c.name})" for i, c in enumerate(self.corpora, 1))
        text = dict(zip(names, self._text, strict=True))
        sizes = {"config.data.vocab_size": self.config.vocab_sizes}
        sides = {"sides with text": self.examples.sides}
        made_from = text | self._options(OPTIONS) | sizes | sides | dict(self.origin)
        # Through JSON, to compare equal to what a manifest says.
        return json.loads(json.dumps(made_from))

    def _options(self, names: Sequence[str]) -> dict:
        return {f"config.data.{name}": getattr(self.config, name) for name in names}

    @property
    def folder(self) -> epath.Path:
        """The folder of this text's parts."""
        return self.parts / cache_key(parts=self._made_from)

    @functools.cached_property
    def _pairs(self) -> list[int]:
        """The number of pairs of each corpus."""
        return counted(self.corpora, self._text)

    def _chunks(self, job: str, part: tuple[int, int]) -> Iterator[Chunk]:
        """Yields the pairs of a part of the text, with a progress bar."""
        spans = spans_of(self._pairs, part)
        chunks = read_chunks(self.corpora, spans=spans)
        name = f"{job} part {part[0]}/{part[1]}"
        remaining = sum(end - begin for begin, end in spans)
        for chunk in with_progress(name, chunks, remaining):
            remaining -= len(chunk.pairs)
            yield chunk
        if remaining:
            raise UserError(f"{name} lacks {remaining:,} pairs: the text was changed")

    def _publish(
        self, folder: epath.Path, write: Callable[[Path], None], **made_from: object
    ) -> None:
        """Makes a folder of a part or a merge, unless it is complete already."""
        if not sealed.damage(folder):
            say(f"{folder} is complete")
            return
        sealed.publish(folder, write, made_from=self._made_from | made_from)
        say(f"wrote {folder}")

    def hash(self, part: tuple[int, int]) -> None:
        """Hashes the pairs of a part."""
        # A cleaner that leaves out only empty pairs: they are in no duplicate.
        config = dataclasses.replace(self.config, deduplicate=False)
        cleaner = Cleaner(config, self.examples.sides)

        def write(output: Path) -> None:
            keys = [np.zeros(0, np.uint64)]
            for chunk in self._chunks("hashing", part):
                key_p = np.zeros(len(chunk.pairs), np.uint64)
                nonempty = cleaner.by_text(chunk)
                # As in a `HashSet`, 0 is not a hash.
                key_p[nonempty.lines - chunk.lines[0]] = np.maximum(
                    hashes(nonempty.pairs), 1
                )
                keys.append(key_p)
            np.save(output / "hashes.npy", np.concatenate(keys))

        self._publish(epath.Path(part_of(self.folder / "hash", part)), write)

    def merge_hashes(self, vocabulary: Callable[[], Vocabulary]) -> None:
        """Finds duplicates by the hashes of all parts; stores them and the tokenizer.

        Args:
          vocabulary: Loads or trains the tokenizer.

        Raises:
          UserError: A part is missing or damaged.
        """
        parts = self._finished("hash")

        def write(output: Path) -> None:
            earlier_hashes, duplicate = HashSet(), []
            for part in parts:
                key_p = prepare.load(part / "hashes.npy")
                for begin in range(0, len(key_p), BLOCK):
                    key_b = key_p[begin : begin + BLOCK]
                    duplicate_b = key_b != 0
                    duplicate_b[duplicate_b] = ~earlier_hashes.add(key_b[duplicate_b])
                    duplicate.append(duplicate_b)
            np.save(output / "duplicate.npy", np.concatenate(duplicate))
            for name, content in vocabulary().files.items():
                (output / name).write_bytes(content)

        self._publish(self.folder / "merged", write)

    def encode(self, part: tuple[int, int]) -> None:
        """Cleans and tokenizes the pairs of a part.

        Raises:
          UserError: The hashes are not merged yet.
        """
        vocabulary, config = self.vocabulary(), self._uncut
        duplicate_p = prepare.load(self.folder / "merged" / "duplicate.npy")
        start_c = np.cumsum([0, *self._pairs])

        def is_new(chunk: Chunk) -> np.ndarray:
            return ~duplicate_p[start_c[chunk.corpus] + chunk.lines - 1]

        def write(output: Path) -> None:
            cleaner = Cleaner(config, self.examples.sides, is_new)
            chunks = self._chunks("encoding", part)
            prepare.encode(
                chunks, cleaner, vocabulary, self.examples, len(self.corpora), output
            )

        folder = epath.Path(part_of(self._encoded(vocabulary), part))
        self._publish(folder, write, **self._options(ENCODING))

    def merge(self) -> Pairs:
        """Joins the encoded parts to the arrays of the text, in the cache folder.

        Raises:
          UserError: A part is missing or damaged, or cleaning left nothing.
        """
        vocabulary = self.vocabulary()

        def write(output: Path) -> None:
            parts = self._finished(self._encoded(vocabulary).name)
            specs = [corpus.spec for corpus in self.corpora]
            try:
                prepare.join(parts, specs, self._uncut, output)
            except OSError as e:
                if str(e.filename).startswith(str(self.folder)):
                    raise UserError(f"a part cannot be read: {e}") from None
                raise

        return prepare.prepared_pairs(
            self.corpora, vocabulary, self.config, self.examples, write
        )

    def vocabulary(self) -> Vocabulary:
        """The tokenizer that `merge_hashes` stored."""
        folder = self.folder / "merged"
        self._check(folder, "--merge=hash")
        joint = not (folder / TOKENIZER_FILES[1]).exists()
        return Vocabulary.from_files(folder, joint)

    @property
    def _uncut(self) -> DataConfig:
        return prepare.uncut(self.config, self.examples)

    def _encoded(self, vocabulary: Vocabulary) -> epath.Path:
        """The name that the encoded parts have in common."""
        key = prepared_key(self._text, vocabulary, self._uncut)
        return self.folder / f"encode-{key}"

    def _parts(self, name: str) -> list[epath.Path]:
        """The parts of a stage, in order; raises UserError if one is missing."""
        single = self.folder / name  # part 1/1
        try:
            return [single] if single.exists() else finished_parts(single)
        except UserError as e:
            raise UserError(f"{e}{self._other_parts()}") from None

    def _finished(self, name: str) -> list[epath.Path]:
        """The parts of a stage, if all are complete and intact."""
        parts = self._parts(name)
        for part in parts:
            self._check(part, "the stage of this part")
        return parts

    def _check(self, folder: epath.Path, command: str) -> None:
        """Raises UserError unless a folder is complete and intact."""
        if not sealed.is_sealed(folder):
            raise UserError(
                f"{folder} is not there; run {command} first{self._other_parts()}"
            )
        if trouble := sealed.damage(folder):
            raise UserError(
                f"{folder} is damaged ({trouble}); remove it, and run {command} again"
            )

    def _other_parts(self) -> str:
        """Says how parts of other text or options differ, if there are any."""
        for manifest in sorted(self.parts.glob("*/*/manifest.json")):
            recorded = sealed.notes(manifest.parent).get("made_from", {})
            encoding = self._options(ENCODING)
            encoding = {name: x for name, x in encoding.items() if name in recorded}
            if differences := changes(recorded, self._made_from | encoding):
                return (
                    f"\nOther parts there, such as {manifest.parent}, are of other "
                    f"text or options:{differences}\nAll stages want the same of both"
                )
        return ""

    def status(self) -> list[str]:
        """Lines that say which parts and merges are there, and what comes next."""
        merged = sealed.is_sealed(self.folder / "merged")
        lines = [f"parts of this text are in {self.folder}"]
        names = {"hash": "hash"}
        if merged:
            names["encode"] = self._encoded(self.vocabulary()).name
        for stage, name in names.items():
            try:
                count = len(self._parts(name))
                lines.append(f"--stage={stage}: all {count} parts are finished")
            except UserError as e:
                lines.append(f"--stage={stage}: {e}")
            if stage == "hash":
                lines.append(f"--merge=hash: {'finished' if merged else 'missing'}")
        return lines
