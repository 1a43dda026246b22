"""Files of the text that a teacher translates for a student: complete or resumable.

    PREFIX.pairs.partial         while it is made: pairs, and the record of a job
    PREFIX.pairs.2-of-3          a finished part of several machines
    PREFIX.en, .de, .hashes      the text, as `file_corpus` reads and checks it
    PREFIX.json                  its provenance; the text is complete once this is there

In a file of pairs, each source line is followed by its translation, so that nothing can
bring them out of step. The first line is the provenance, which resumed and joined parts
have to share.
"""

import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from t2t_jax.data.cleaning import visible
from t2t_jax.data.corpus import Corpus, Pair, file_corpus
from t2t_jax.data.text_files import HASHES_ENDING, encode_line, pair_hasher, read_lines
from t2t_jax.decoding.jobs import run_job, shard_of
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.atomic import checked_json, fsync, read_checked_json, write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.io.lock import exclusive
from t2t_jax.io.messages import say
from t2t_jax.parallel import processes
from t2t_jax.run.teacher_input import Lines, Recipe

CHUNK = 4_096  # pairs sorted and translated together


class TeacherText:
    """The files of a teacher's text.

    Args:
      prefix: of the files; their folder need not exist.
      source, target: the languages.
    """

    def __init__(self, prefix: Path, source: str, target: str):
        self.prefix, self.source, self.target = prefix, source, target
        self._record = Path(f"{prefix}.json")
        self._job = Path(f"{prefix}.pairs")

    @cached_property
    def corpus(self) -> Corpus:
        """The text as a corpus."""
        return file_corpus(self.prefix, self.source, self.target)

    def record(self) -> dict | None:
        """Returns the record of a complete text; None if there is none.

        Raises:
          UserError: the record is damaged, or the text is not what it was.
        """
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
          made_from: of `provenance`.
          made: a file of pairs; None is the complete text.

        Raises:
          UserError: another teacher, input or recipe made it.
        """
        if made is None:
            return self._compare(self.record()["made_from"], made_from, self._record)
        head = json.loads(next(read_lines(made), "{}"))
        return self._compare(head.get("made_from", {}), made_from, made)

    def _compare(self, then: dict, now: dict, file: Path) -> None:
        now = json.loads(json.dumps(now))  # as it is stored: tuples are lists
        changed = [
            f"\n  {name}: {then.get(name)!r} then, {value!r} now"
            for name, value in now.items()
            if then.get(name) != value and name != "t2t_jax"
        ]
        if changed:
            raise UserError(
                f"{file} is of another text of a teacher:{''.join(changed)}\n"
                "Give the same options again, another --text, or remove the files of "
                f"{self.prefix}"
            )

    def part(self, shard: tuple[int, int]) -> Path:
        """The file of pairs of a part."""
        return shard_of(self._job, shard)

    def parts(self) -> list[Path]:
        """The parts of several machines that are complete, if any are begun.

        Raises:
          UserError: some are missing, or they are parts of different divisions.
        """
        # A record without its job is of a part that begins or ends at this moment.
        pattern = re.compile(
            re.escape(self._job.name) + r"\.(\d+)-of-(\d+)(\.partial)?"
        )
        folder = self._job.parent
        names = [file.name for file in folder.glob(f"{self._job.name}.*")]
        found = [match for name in names if (match := pattern.fullmatch(name))]
        if not found:
            return []
        counts = sorted({int(match[2]) for match in found})
        if len(counts) > 1:
            raise UserError(
                f"{self._job}.* are parts of {' and of '.join(map(str, counts))}; "
                "remove those that do not belong together"
            )
        (count,) = counts
        files = [self.part((number, count)) for number in range(1, count + 1)]
        missing = [n for n, file in enumerate(files, 1) if not file.exists()]
        if missing:
            shards = ", ".join(f"--shard={n}/{count}" for n in missing[:6])
            shards += ", ..." if len(missing) > 6 else ""
            raise UserError(
                f"{count - len(missing)} of {count} parts of {self.prefix} are "
                f"complete; the others come from {shards}. To translate all here, "
                f"remove {self._job}.*"
            )
        return files

    def join(self, files: Sequence[Path], made_from: dict, notes: dict) -> None:
        """Writes the text from its files of pairs, in order, and then removes them.

        Args:
          made_from: the provenance that all of them must have.
          notes: stored with it, for people.

        Raises:
          UserError: a file is of another text, or not complete.
        """
        hash_pair = pair_hasher(self.source, self.target)
        endings = self.source, self.target, HASHES_ENDING
        with exclusive(self.prefix.parent), contextlib.ExitStack() as stack:
            if self._record.exists():  # another process was faster
                return self.check(made_from)
            targets = [Path(f"{self.prefix}.{ending}") for ending in endings]
            drafts = [f.with_name(f".{f.name}.writing") for f in targets]
            streams = [stack.enter_context(draft.open("wb")) for draft in drafts]
            count = empty = 0
            for count, pair in enumerate(self._pairs_of(files, made_from), 1):
                for stream, line in zip(streams, (*pair, hash_pair(pair)), strict=True):
                    stream.write(encode_line(line, count))
                empty += not visible(pair[1])
            for stream in streams:
                stream.flush()
                os.fsync(stream.fileno())
            for draft, target in zip(drafts, targets, strict=True):
                draft.replace(target)
            fsync(self.prefix.parent)
            fingerprint = self.corpus.fingerprint()
            record = {
                "pairs": count,
                "empty": empty,
                "fingerprint": fingerprint,
                **notes,
            }
            record["made_from"] = made_from
            write_atomically(self._record, checked_json(record))
        for file in files:
            # With what a job leaves that was killed just after its last line.
            for ending in ("", ".partial", ".partial.json"):
                Path(f"{file}{ending}").unlink(missing_ok=True)
        say(
            f"{count:,} pairs of the teacher are in {self.prefix}.{self.target}; "
            f"{empty:,} have no complete translation, and training drops them"
        )
        return None

    def _pairs_of(self, files: Sequence[Path], made_from: dict) -> Iterator[Pair]:
        """Yields the pairs of files of pairs, whose heads are checked."""
        following = 0
        for file in files:
            self.check(made_from, file)
            lines, count = read_lines(file), 0
            head = json.loads(next(lines))
            for source, translation in itertools.zip_longest(lines, lines):
                if translation is None:
                    raise UserError(
                        f"{file} ends with a source that has no translation. Remove "
                        "it to have it made again"
                    )
                yield source, translation
                count += 1
            if (head["first"], head["count"]) != (following, count):
                raise UserError(
                    f"{file} has {count:,} pairs, and says {head['count']:,} from "
                    f"pair {head['first'] + 1:,}; want pair {following + 1:,}. Remove "
                    "it to have it made again"
                )
            following += count
        if following != made_from["pairs"]:
            raise UserError(
                f"{files[-1]} ends at pair {following:,} of {made_from['pairs']:,}"
            )

    def translate(
        self,
        translator: Translator,
        recipe: Recipe,
        lines: Lines | None,
        made_from: dict,
        shard: tuple[int, int],
        batch_size: int = CHUNK,
    ) -> None:
        """Translates the lines of a part to its file of pairs; continues a stopped job.

        Args:
          lines, made_from: of process 0 only.
        """
        choose = recipe.chooser(self.target)
        options = recipe.options(translator.config.decode)

        def translate_lines(chunk: list[str], number: int) -> str:
            pairs = [line.split("\n") for line in chunk]
            found = translator.translate(
                [source for source, _ in pairs], first_line=number, **options
            )
            head = ""
            if lines and number == lines.first + 1:
                place = {"first": lines.first, "count": lines.count}
                head = json.dumps({"made_from": made_from, **place}) + "\n"
            written = (
                line
                for (source, reference), translation in zip(pairs, found, strict=True)
                for line in (source, choose(translation, reference))
            )
            # From 2, as the head is the first line of the file.
            encoded = map(encode_line, written, itertools.count(2))
            return head + b"".join(encoded).decode()

        path = None
        if processes.is_first():
            path = self.part(shard)
            path.parent.mkdir(parents=True, exist_ok=True)
        # Parts of different divisions have different names, so none is continued as
        # another.
        run_job(translate_lines, lines, path, made_from, True, batch_size)
