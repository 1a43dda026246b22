"""A whole text through a translator: in bounded memory, in order, to be continued.

What is being written lies in `OUTPUT.partial`, and `OUTPUT.partial.json` says how far
it is and what it is made from. When all lines are there it becomes `OUTPUT`.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from t2t_jax.data.corpus import decode_lines, read_lines
from t2t_jax.decoding.results import Alignment, Translation
from t2t_jax.files import atomic
from t2t_jax.parallel import processes
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.terminal.progress import Progress


def chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """`size` lines at a time; fewer at the end."""
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, size)):
        yield chunk


def parse_shard(shard: str) -> tuple[int, int]:
    """`"2/4"`, the second of four, -> (2, 4).

    Raises:
      UserError: anything else.
    """
    number, _, count = shard.partition("/")
    if number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise UserError(
        f"--shard={shard!r}; want I/N, the I-th of N parts, from 1/N to N/N"
    )


class Input:
    """A file of lines, or the part of it that one of several machines translates.

    Parts are runs of lines: their outputs, one after the other, are the whole.

    Raises:
      UserError: it is missing, or not UTF-8 somewhere.
    """

    def __init__(self, file: Path, shard: tuple[int, int] = (1, 1)):
        if not file.is_file():
            wrong = "is no plain file" if file.exists() else "does not exist"
            raise UserError(f"--input={file} {wrong}; want a file of text")
        self._file = file
        total = sum(1 for _ in read_lines(file))  # and a mistake is told now
        number, count = shard
        self.first = total * (number - 1) // count  # lines before it
        self.count = total * number // count - self.first

    def lines(self) -> Iterator[str]:
        """The lines, without line ends."""
        yield from itertools.islice(
            read_lines(self._file), self.first, self.first + self.count
        )


def shard_of(output: Path, shard: tuple[int, int]) -> Path:
    """The name of a part of an output: `OUTPUT.02-of-12`, which sort in order."""
    number, count = shard
    if count == 1:
        return output
    width = len(str(count))
    return output.with_name(f"{output.name}.{number:0{width}}-of-{count}")


def check_output(file: Path) -> None:
    """Raises UserError for a name that a translation cannot be written under."""
    if file.suffix == ".gz":
        raise UserError(f"--output={file} is plain text; give a name without .gz")
    if not file.parent.is_dir():
        raise UserError(f"--output={file}: there is no folder {file.parent}")
    if file.exists():
        raise UserError(
            f"--output={file} is there already and is not written over; give another "
            "name, or remove it"
        )


class Printed:
    """Standard output, to which lines go as soon as they are translated."""

    def __init__(self):
        self.lines = 0  # of the input, that are done

    def add(self, lines: list[str], text: str) -> None:
        """Prints what some lines of the input gave."""
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
        self.lines += len(lines)


class Output:
    """A file that is written in pieces and is there when it is whole.

    A context manager: what is done when it is left by an error can be continued.

    Args:
      file: where the whole is to be; it must not be there.
      made_from: what the output depends on but for the input lines.
      resume: continue what was begun; begin, if nothing was.

    Raises:
      UserError: the file is there already, something was begun and `resume` is not
        given, or what was begun is of something else.
    """

    def __init__(self, file: Path, made_from: dict, resume: bool):
        self._file = file
        self._made_from = json.loads(json.dumps(made_from))  # as a note has it
        self._partial = file.with_name(file.name + ".partial")
        self._record = file.with_name(file.name + ".partial.json")
        check_output(file)
        begun = self._partial.exists() or self._record.exists()
        self._stream = self._partial.open("ab+")
        self._read = hashlib.sha256()
        self._written = hashlib.sha256()
        self.lines = 0  # of the input, that are done
        try:
            self._lock()
            if begun and not resume:
                raise UserError(
                    f"{self._partial} was begun by an earlier job: --resume continues "
                    "it; or remove it and its .json"
                )
            self._wanted = self._continue() if begun else None
        except BaseException:
            self._stream.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process is writing {self._partial}; give another --output"
            ) from None

    def _continue(self) -> dict | None:
        """What an earlier job noted; cuts what it wrote after that."""
        if not self._record.exists():  # it was stopped before its first note
            self._stream.truncate(0)
            return None
        try:
            noted = atomic.read_checked_json(self._record)
        except (OSError, ValueError) as e:
            raise UserError(f"{self._record} is damaged ({e}); {_ANEW}") from None
        then = noted["made_from"]
        changed = [
            f"\n  {name}: {then.get(name)!r} then, {value!r} now"
            for name, value in self._made_from.items()
            if then.get(name) != value
        ]
        if changed:
            raise UserError(
                f"{self._partial} was begun otherwise:{''.join(changed)}\n"
                f"Give the same options again, or {_ANEW}"
            )
        if self._partial.stat().st_size > noted["bytes"]:
            self._stream.truncate(noted["bytes"])
        self._stream.seek(0)
        for block in iter(lambda: self._stream.read(1 << 20), b""):
            self._written.update(block)
        if self._written.hexdigest() != noted["output_sha256"]:
            raise UserError(f"{self._partial} is not what was written; {_ANEW}")
        return noted

    def rest_of(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines that are still to be done.

        Raises:
          UserError: those before them are not the ones that were done.
        """
        if self._wanted is None:
            return lines
        for line in itertools.islice(lines, self._wanted["lines"]):
            self._count(line)
        same = self._read.hexdigest() == self._wanted["input_sha256"]
        if self.lines != self._wanted["lines"] or not same:
            raise UserError(
                f"the first {self._wanted['lines']:,} lines of the input are not those "
                f"that {self._partial} was made from; give the same input, or {_ANEW}"
            )
        say(f"{self._partial} has the first {self.lines:,} lines; going on")
        return lines

    def _count(self, line: str) -> None:
        self._read.update(line.encode() + b"\n")
        self.lines += 1

    def add(self, lines: list[str], text: str) -> None:
        """Writes what some lines of the input gave, and notes how far it is."""
        content = text.encode()
        self._stream.write(content)
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._written.update(content)
        for line in lines:
            self._count(line)
        note = {
            "lines": self.lines,
            "bytes": self._stream.tell(),
            "input_sha256": self._read.hexdigest(),
            "output_sha256": self._written.hexdigest(),
            "made_from": self._made_from,
        }
        atomic.write_atomically(self._record, atomic.checked_json(note))

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            # Linked, not renamed: what another process has put there meanwhile stays.
            try:
                os.link(self._partial, self._file)
            except FileExistsError:
                self._stream.close()
                raise UserError(
                    f"{self._file} was made by someone else meanwhile; the whole "
                    f"translation is {self._partial}"
                ) from None
            except FileNotFoundError:
                self._stream.close()
                raise UserError(
                    f"{self._partial} was removed while it was written; do it again"
                ) from None
            except OSError:  # a file system without links
                os.rename(self._partial, self._file)
            for file in (self._partial, self._record):
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()
        elif self.lines:
            say(
                f"the translations of {self.lines:,} lines are in {self._partial}; the "
                "same command with --resume continues"
            )
        elif self._wanted is None:
            self._partial.unlink(missing_ok=True)
        self._stream.close()


_ANEW = "begin anew: remove the output's .partial and .partial.json"


def run_job(
    translate_lines: Callable[[list[str], int], str],
    text: Input | None,
    path: Path | None,
    made_from: dict,
    resume: bool,
    batch_size: int,
) -> None:
    """Sends lines through a translator, in order and in bounded memory.

    Args:
      translate_lines: (lines, number of the first, from 1) -> their output.
      text: the input; None is standard input. Only process 0 has one.
      path: the output file, None is standard output. Only process 0 has one.
      made_from, resume: as for `Output`.
      batch_size: lines read and translated together.
    """
    before = text.first if text else 0
    total = text.count if text else None
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress("translating", "lines", total))
        output, lines = Printed(), iter(())  # process 0 replaces them
        with processes.fail_together("beginning the output"):
            if processes.is_first():
                lines = text.lines() if text else _standard_input()
            if path:
                output = stack.enter_context(Output(path, made_from, resume))
                lines = output.rest_of(lines)
        progress.add(output.lines)

        def parts() -> Iterator[tuple[int, list[str]]]:
            for chunk in chunks(lines, batch_size):
                yield before + output.lines + 1, chunk

        for number, chunk in processes.stream_from_first("lines", parts):
            translated = translate_lines(chunk, number)
            if processes.is_first():
                output.add(chunk, translated)
            progress.add(len(chunk))
    if path:
        say(f"{output.lines:,} lines are translated: {path}")


def _standard_input() -> Iterator[str]:
    return decode_lines(sys.stdin.buffer, "standard input")


def record(
    translation: Translation,
    number: int,
    nbest: bool,
    scores: bool,
    alignments: Iterator[Alignment] | None,
) -> str:
    """The output lines of a translation: its fields, separated by ` ||| `."""
    written = ""
    for hypothesis in translation.hypotheses:
        parts = [str(number)] if nbest else []
        parts.append(hypothesis.text)
        if alignments:
            parts.append(str(next(alignments)))
        if nbest or scores:
            parts.append(f"{hypothesis.score:.6f}")
        written += " ||| ".join(parts) + "\n"
    return written
