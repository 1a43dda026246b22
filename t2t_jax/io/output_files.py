"""Files that a user asks for: checked before, complete or absent, never overwritten.

The output of a translation job can be resumed. The job writes to `OUTPUT.partial`;
`OUTPUT.partial.json` records its progress and its provenance (the model and the
options). When all lines are done, the job renames `OUTPUT.partial` to `OUTPUT`.
"""

import contextlib
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_jax.io import atomic
from t2t_jax.io.errors import UserError
from t2t_jax.io.lock import acquire
from t2t_jax.io.messages import say

_START_OVER = "begin anew: remove the output's .partial and .partial.json"


def check_output(file: Path) -> None:
    """Raises UserError unless a new output file can have this name."""
    if file.suffix == ".gz":
        raise UserError(
            f"--output={file}: the output is plain text; give a name without .gz"
        )
    check_folder("output", file)
    if file.exists():
        raise UserError(
            f"--output={file} already exists and is not overwritten; give another "
            "name, or remove it"
        )


def check_folder(flag: str, file: Path) -> None:
    """Raises UserError unless the folder of a file, which a flag names, exists."""
    if not file.parent.is_dir():
        raise UserError(
            f"--{flag}={file}: {file.parent} is not an existing folder; create it first"
        )


def check_page(flag: str, output: Path) -> None:
    """Raises UserError unless a flag names an HTML file that can be written."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--{flag}={output}: want a name that ends in .html")
    check_file(flag, output)


def check_file(flag: str, output: Path) -> None:
    """Raises UserError unless a flag names a file in a folder that exists."""
    check_folder(flag, output)
    if output.is_dir():
        raise UserError(f"--{flag}={output} is a folder; give a file")


def write_file(output: Path, content: bytes) -> None:
    """Writes a file; an earlier one of this name gets the next free number."""
    if output.exists() and output.read_bytes() != content:
        number = atomic.keep_earlier(output)
        say(f"the earlier {output} is now {output.stem}.{number}{output.suffix}")
    atomic.write_atomically(output, content)
    say(f"wrote {output}")


def changes(
    earlier: dict, current: dict, words: tuple[str, str] = ("then", "now")
) -> str:
    """Lists the values that differ, each on a line of its own; empty if none does."""
    return "".join(
        f"\n  {name}: {earlier.get(name)!r} {words[0]}, "
        f"{current.get(name)!r} {words[1]}"
        for name in current | earlier  # also what only one of them has
        if earlier.get(name) != current.get(name)
    )


class PrintedOutput:
    """Standard output; translations are printed as soon as they exist."""

    def __init__(self):
        self.lines = 0  # the number of input lines done

    def add(self, lines: list[str], text: str) -> None:
        """Prints `text`, the output for some input lines."""
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
        self.lines += len(lines)


class OutputFile:
    """An output file that appears under its name only when it is complete.

    A context manager: after an exception, the finished part stays and can be resumed.

    Args:
      file: the name of the complete file; it must not exist.
      made_from: provenance: everything the output depends on, except the input lines.
      resume: continue an unfinished job; start one if there is none.
      place: which part of which input it is; then its record stays, as `FILE.json`.

    Raises:
      UserError: the file exists; an unfinished job exists and `resume` is False; or its
        provenance differs from `made_from`.
    """

    def __init__(
        self, file: Path, made_from: dict, resume: bool, place: dict | None = None
    ):
        self._file, self._place = file, place or {}
        self._again = "the same command" + ("" if resume else " with --resume")
        # Through JSON (tuples become lists), to compare equal to a stored record.
        self._made_from = json.loads(json.dumps(made_from))
        self._partial = file.with_name(file.name + ".partial")
        self._record = file.with_name(file.name + ".partial.json")
        self._check(resume)
        begun = self._partial.exists() or self._record.exists()
        # Opening must not truncate: another process may be writing the file.
        self._stream = self._partial.open("ab+")
        self._input_hash = hashlib.sha256()
        self._output_hash = hashlib.sha256()
        self.lines = 0  # the number of input lines done
        try:
            if acquire(self._stream, wait=False) is False:
                raise UserError(
                    f"another process is writing {self._partial}; give another name"
                )
            if begun and not resume:
                raise UserError(
                    f"{self._partial} is of an unfinished job: --resume continues it; "
                    "or remove it and its .json"
                )
            self._earlier = self._read_record() if begun else None
        except BaseException:
            self._stream.close()
            raise

    def _check(self, resume: bool) -> None:
        """Raises UserError if the file exists or cannot have its name."""
        check_output(self._file)

    def _read_record(self) -> dict | None:
        """Returns the record of an earlier job; truncates the output to it."""
        if not self._record.exists():  # the job stopped before its first record
            self._stream.truncate(0)
            return None
        try:
            noted = atomic.read_checked_json(self._record)
        except (OSError, ValueError) as e:
            raise UserError(f"{self._record} is damaged ({e}); {_START_OVER}") from None
        if changed := changes(noted["made_from"], self._made_from):
            raise UserError(
                f"{self._partial} was begun with other settings:{changed}\n"
                f"Give the same options again, or {_START_OVER}"
            )
        # A job writes lines before it records them, so some may lack a record.
        if self._partial.stat().st_size > noted["bytes"]:
            self._stream.truncate(noted["bytes"])
        self._stream.seek(0)
        for block in iter(lambda: self._stream.read(1 << 20), b""):
            self._output_hash.update(block)
        if self._output_hash.hexdigest() != noted["output_sha256"]:
            raise UserError(
                f"{self._partial} has changed since it was written; {_START_OVER}"
            )
        return noted

    def rest_of(self, lines: Iterator[str]) -> Iterator[str]:
        """Returns the lines that are not done yet; consumes those that are.

        Raises UserError if these differ from those of the unfinished job.
        """
        if self._earlier is None:
            return lines
        for line in itertools.islice(lines, self._earlier["lines"]):
            self._count(line)
        is_same_input = self._input_hash.hexdigest() == self._earlier["input_sha256"]
        if self.lines != self._earlier["lines"] or not is_same_input:
            raise UserError(
                f"the first {self._earlier['lines']:,} lines of the input differ from "
                f"those that {self._partial} was made from; give the same input, or "
                f"{_START_OVER}"
            )
        say(f"{self._partial} has the first {self.lines:,} lines; resuming")
        return lines

    def _count(self, line: str) -> None:
        self._input_hash.update(line.encode() + b"\n")
        self.lines += 1

    def add(self, lines: Sequence[str], text: str) -> None:
        """Writes `text`, the output for some input lines, and records the progress."""
        content = text.encode()
        self._stream.write(content)
        self._stream.flush()
        # On disk before the record that counts it, or a power failure could leave a
        # record of lines that do not exist.
        os.fsync(self._stream.fileno())
        self._output_hash.update(content)
        for line in lines:
            self._count(line)
        self._write_record(self._record)

    def _write_record(self, file: Path) -> None:
        note = {
            "lines": self.lines,
            "bytes": self._stream.tell(),
            "input_sha256": self._input_hash.hexdigest(),
            "output_sha256": self._output_hash.hexdigest(),
            "made_from": self._made_from,
        }
        atomic.write_atomically(file, atomic.checked_json(note | self._place))

    def __enter__(self) -> "OutputFile":
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None:
                self._publish()
                for file in (self._partial, self._record):
                    with contextlib.suppress(FileNotFoundError):
                        file.unlink()
            elif self.lines:
                say(
                    f"the translations of {self.lines:,} lines are in {self._partial}; "
                    f"{self._again} continues"
                )
            elif self._earlier is None:  # nothing is done, now or earlier
                self._partial.unlink(missing_ok=True)
        finally:
            self._stream.close()

    def _publish(self) -> None:
        """Gives the complete output its name, its record first."""
        if self._place:
            self._write_record(self._file.with_name(f"{self._file.name}.json"))
        try:
            atomic.appear(self._partial, self._file)
        except FileExistsError:
            raise UserError(
                f"{self._file} was created by another process meanwhile; the complete "
                f"translation is in {self._partial}"
            ) from None
        except FileNotFoundError:
            raise UserError(
                f"{self._partial} was removed while it was being written; run the "
                "command again"
            ) from None
