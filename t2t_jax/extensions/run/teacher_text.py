"""The text that a teacher translates for a student: its lines, and its files.

Kim and Rush 2016, section 3.2: the source lines of a parallel text with the teacher's
best translations, found by beam search. Section 3.3, "sequence-level interpolation":
of its N best, the one nearest to the reference.

    PREFIX.pairs.partial         while it is made: pairs, and the record of a job
    PREFIX.pairs.2-of-3          a finished part of several machines
    PREFIX.en, .de, .hashes      the text, as `file_corpus` reads and checks it
    PREFIX.json                  its provenance; the text is complete once this is there

In a file of pairs, each source line is followed by its translation, so that nothing can
bring them out of step. Its record (`io/parts.py`) has the provenance, which resumed and
joined parts have to share.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_jax import __version__
from t2t_jax.config import DecodeConfig
from t2t_jax.data.corpus import Corpus, Pair, file_corpus, open_corpus, open_specs
from t2t_jax.data.text_files import (
    HASHES_ENDING,
    encode_line,
    file_hash,
    find_file,
    read_lines,
)
from t2t_jax.decoding.jobs import InputLines, run_job
from t2t_jax.decoding.results import Translation
from t2t_jax.extensions.run.translated_pairs import complete_texts, write_sides
from t2t_jax.io import parts
from t2t_jax.io.atomic import (
    checked_json,
    read_checked_json,
    together,
    write_atomically,
)
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.lock import exclusive
from t2t_jax.io.messages import say
from t2t_jax.io.output_files import changes
from t2t_jax.metrics.text_measures import UTILITIES
from t2t_jax.parallel import processes

if TYPE_CHECKING:  # imports JAX
    from t2t_jax.decoding.translator import Translator

PROBABILITY = "probability"
CRITERIA = (PROBABILITY, *UTILITIES)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Options of a teacher's text: everything but the teacher and the lines."""

    nbest: int = 1  # the number of translations that one is chosen of
    # `probability`, the teacher's own score; or the metric of sentences by which the
    # nearest to the reference is chosen. "" is `chrf` if there are several.
    by: str = ""
    # Some of `SearchOptions`; the others are the teacher's, but with a beam of at least
    # `nbest`.
    search: Mapping = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.nbest < 1:
            raise UserError(f"--nbest={self.nbest}; want at least 1")
        if not self.by:
            by = PROBABILITY if self.nbest == 1 else "chrf"
            object.__setattr__(self, "by", by)
        if self.by not in CRITERIA:
            raise UserError(f"--by={self.by!r}{did_you_mean(self.by, CRITERIA)}")
        if self.by != PROBABILITY and self.nbest == 1:
            raise UserError(
                f"--by={self.by} chooses among several translations; add --nbest=8 or "
                "so, or leave --by out"
            )

    def options(self, decode: DecodeConfig) -> dict:
        """The options of the search; those of `decode`, the teacher's, if not given."""
        search = {name: x for name, x in self.search.items() if x is not None}
        beam = max(decode.beam, self.nbest)
        options = decode.override(**{"beam": beam} | search)
        nbest = self.nbest if self.by != PROBABILITY else 1
        # The teacher's own is part of its provenance.
        given = {name: x for name, x in search.items() if name == "extra_length"}
        return {"nbest": nbest, **options.recorded(), **given}

    def chooser(self, language: str) -> Callable[[Translation, str], str]:
        """Returns a function (translation, reference) -> the text that is kept.

        It is empty if no translation is complete. Training drops such pairs.
        """
        nearness = UTILITIES.get(self.by)  # None: by probability

        def choose(translation: Translation, reference: str) -> str:
            texts = complete_texts(translation)
            if not texts:
                return ""
            if not nearness:
                return texts[0]
            # Of equally near ones `argmax` takes the first, which is the most probable;
            # the last decimals are rounding, which must not decide.
            near_h1 = nearness(texts, [reference], language).round(9)
            return texts[near_h1.argmax()]

        return choose


def open_input(specs: str, source: str, target: str, references: bool) -> list[Corpus]:
    """Opens the text whose source lines a teacher translates.

    Args:
      specs: as `config.data.train` without weights, relative to the current folder.
      references: True if both sides are needed; else the source file is enough.
    """

    def open_one(spec: str, folder: str) -> Corpus:
        corpus = open_corpus(spec, source, target, folder)
        if not (prefix := corpus.prefix):
            return corpus
        if not (file := find_file(prefix, source)):
            there = sorted(f.name for f in prefix.parent.glob(f"{prefix.name}.*"))
            raise UserError(
                f"--input={spec} has no {prefix.name}.{source} (or .gz), and the "
                f"teacher translates {source} -> {target}; there "
                + (f"are {', '.join(there[:6])}" if there else "is no such file")
            )
        if references or find_file(prefix, target):
            return corpus
        # Only the source file exists; the references are empty.
        return dataclasses.replace(
            corpus,
            pairs=lambda: ((line, "") for line in read_lines(file)),
            fingerprint=lambda: file_hash(file),
        )

    corpora = open_specs(specs, open_one)
    if not corpora:
        raise UserError(f"--input={specs!r} names no text; want a PREFIX")
    return corpora


class Lines(InputLines):
    """The pairs of corpora, or of a part of them, as lines of a job.

    A line is a source and its reference, with a line feed between them, which no line
    contains.
    """

    def __init__(self, corpora: Sequence[Corpus], part: tuple[int, int] = (1, 1)):
        super().__init__(
            lambda: (f"{s}\n{r}" for corpus in corpora for s, r in corpus.pairs()),
            part,
            keep=True,
        )
        if not self.count:
            number, count = part
            raise UserError(
                f"part {number} of {count} of {self.total:,} pairs is empty; want at "
                "most as many parts as pairs"
            )


def provenance(
    teacher: Mapping,
    decode: DecodeConfig,
    recipe: Recipe,
    corpora: Sequence[Corpus],
    pairs: int,
) -> dict:
    """Returns everything that a teacher's text depends on."""
    return {
        "teacher": dict(teacher),
        "search": recipe.options(decode),
        "by": recipe.by,
        "input": [corpus.fingerprint() for corpus in corpora],
        "pairs": pairs,
        "t2t_jax": __version__,
    }


# -------------------------------------------------------------------------------- files


CHUNK = 4_096  # pairs sorted and translated together


class TeacherText:
    """The files of a teacher's text."""

    def __init__(self, prefix: Path, source: str, target: str):
        self.prefix, self.source, self.target = prefix, source, target
        self._record = Path(f"{prefix}.json")
        self._job = Path(f"{prefix}.pairs")

    @cached_property
    def corpus(self) -> Corpus:
        """The text as a corpus."""
        return file_corpus(self.prefix, self.source, self.target)

    def record(self) -> dict | None:
        """Returns the record of a complete text; None if there is none."""
        if not self._record.exists():
            return None
        remedy = f"remove {self.prefix}.* to have it made again"
        try:
            record = read_checked_json(self._record)
        except (OSError, ValueError) as e:
            raise UserError(f"{self._record} is damaged ({e}); {remedy}") from None
        if self.corpus.fingerprint() != record["fingerprint"]:
            raise UserError(
                f"{self.prefix}.{self.source} or .{self.target} was changed after the "
                f"teacher wrote it; restore it, or {remedy}"
            )
        return record

    def check(self, made_from: dict, made: Path | None = None) -> None:
        """Checks that the complete text, or a part, is the one that is wanted.

        Args:
          made: a file of pairs; None is the complete text.
        """
        if made is None:
            then, made = self.record()["made_from"], self._record
        else:
            then = parts.read_record(made)["made_from"]
        now = json.loads(json.dumps(made_from))  # as it is stored: tuples are lists
        # Any version of t2t_jax may have made it, also one that recorded more, or less
        # of the teacher.
        then = {name: then.get(name) for name in now} | {"t2t_jax": now["t2t_jax"]}
        then["teacher"] = now["teacher"] | then["teacher"]
        for teacher in (then["teacher"], now["teacher"]):
            teacher.pop("t2t_jax", None)
        if changed := changes(then, now):
            raise UserError(
                f"{made} is of another text of a teacher:{changed}\n"
                "Give the same options again, another --text, or remove the files of "
                f"{self.prefix}"
            )

    def part(self, part: tuple[int, int]) -> Path:
        """The file of pairs of a part."""
        return parts.part_of(self._job, part)

    def parts(self) -> list[Path]:
        """The parts of several machines that are complete, if any are begun."""
        return parts.finished_parts(self._job, needed=False)

    def join(self, files: Sequence[Path], made_from: dict, notes: dict) -> None:
        """Writes the text from its files of pairs, in order, and then removes them.

        Args:
          notes: stored with it, for people.
        """
        endings = self.source, self.target, HASHES_ENDING
        with exclusive(self.prefix.parent):
            if self._record.exists():  # another process was faster
                return self.check(made_from)
            sides = [Path(f"{self.prefix}.{ending}") for ending in endings]
            with together(sides, replace=True) as drafts:
                pairs = self._pairs_of(files, made_from)
                count, empty = write_sides(drafts, pairs, (self.source, self.target))
            fingerprint = self.corpus.fingerprint()
            record = {"pairs": count, "empty": empty, "fingerprint": fingerprint}
            record |= {**notes, "made_from": made_from}
            write_atomically(self._record, checked_json(record))
        for file in files:
            # With what a job leaves that was killed just after its last line.
            for ending in ("", ".json", ".partial", ".partial.json"):
                Path(f"{file}{ending}").unlink(missing_ok=True)
        say(
            f"{count:,} pairs of the teacher are in {self.prefix}.{self.target}; "
            f"{empty:,} have no complete translation, and training drops them"
        )
        return None

    def _pairs_of(self, files: Sequence[Path], made_from: dict) -> Iterator[Pair]:
        """Yields the pairs of files of pairs, which are checked."""
        for file in files:
            self.check(made_from, file)
        for file, record in zip(files, parts.read_records(files), strict=True):
            parts.check_bytes(file, record["output_sha256"])
            lines = read_lines(file)
            yield from zip(lines, lines, strict=True)

    def translate(
        self,
        translator: "Translator",
        recipe: Recipe,
        lines: Lines | None,
        made_from: dict,
        part: tuple[int, int],
        batch_size: int = CHUNK,
    ) -> None:
        """Translates the lines of a part to its file of pairs; continues a stopped job.

        Args:
          lines, made_from: of process 0 only.
        """
        choose = recipe.chooser(self.target)
        options = recipe.options(translator.config.decode)
        before = lines.first if lines else 0

        def translate_lines(chunk: list[str], number: int) -> str:
            pairs = [line.split("\n") for line in chunk]
            translations = translator.translate(
                [source for source, _ in pairs], first_line=number, **options
            )
            written = (
                line
                for (source, reference), translation in zip(
                    pairs, translations, strict=True
                )
                for line in (source, choose(translation, reference))
            )
            # Two lines a pair; the first of the file counts for a byte order mark.
            first = 2 * (number - before) - 1
            encoded = map(encode_line, written, itertools.count(first))
            return b"".join(encoded).decode()

        path = None
        if processes.is_first():
            path = self.part(part)
            path.parent.mkdir(parents=True, exist_ok=True)
        # Parts of different divisions have different names, so none is continued as
        # another.
        run_job(translate_lines, lines, path, made_from, True, batch_size)
