"""Translates a complete file: in order, in bounded memory, resumable."""

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from t2t_jax.data.text_files import decode_lines, read_lines
from t2t_jax.decoding.results import Alignment, Translation
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import Progress, say
from t2t_jax.io.output_files import OutputFile, PrintedOutput
from t2t_jax.parallel import processes


def chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yields `size` lines at a time; fewer at the end."""
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, size)):
        yield chunk


def parse_shard(shard: str) -> tuple[int, int]:
    """Parses `"2/4"`, the second of four parts, into (2, 4)."""
    number, _, count = shard.partition("/")
    if number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise UserError(
        f"--shard={shard!r}; want I/N, the I-th of N parts, from 1/N to N/N"
    )


class InputLines:
    """The lines of a text, or of the part that one of several machines translates.

    Parts are consecutive lines: the concatenated outputs are that of the text.

    Attributes:
      total: the number of lines of the text.
      first: the number of lines before the part.

    Args:
      read: returns an iterator over all lines, anew each time.
    """

    def __init__(
        self, read: Callable[[], Iterator[str]], shard: tuple[int, int] = (1, 1)
    ):
        self._read = read
        # Reading it all once also reports invalid lines before any work is done.
        self.total = sum(1 for _ in read())
        number, count = shard
        self.first = self.total * (number - 1) // count
        self.count = self.total * number // count - self.first

    def lines(self) -> Iterator[str]:
        """Yields the lines of the part, without line ends."""
        return itertools.islice(self._read(), self.first, self.first + self.count)


class InputFile(InputLines):
    """The lines of a text file, or of a part of it."""

    def __init__(self, file: Path, shard: tuple[int, int] = (1, 1)):
        if not file.is_file():
            wrong = "is not a regular file" if file.exists() else "does not exist"
            raise UserError(f"--input={file} {wrong}; want a text file")
        super().__init__(functools.partial(read_lines, file), shard)


def shard_of(output: Path, shard: tuple[int, int]) -> Path:
    """Returns the name of a part of an output: `OUTPUT.02-of-12`."""
    number, count = shard
    if count == 1:
        return output
    width = len(str(count))  # zero-padded, so that `cat OUTPUT.*` is in order
    return output.with_name(f"{output.name}.{number:0{width}}-of-{count}")


def run_job(
    translate_lines: Callable[[list[str], int], str],
    text: InputLines | None,
    path: Path | None,
    made_from: dict,
    resume: bool,
    batch_size: int,
    open_output: Callable[[Path, dict, bool], OutputFile] = OutputFile,
) -> OutputFile | PrintedOutput:
    """Translates all lines of an input, in order and in bounded memory.

    Process 0 reads and writes; all processes translate.

    Args:
      translate_lines: (lines, number of the first, from 1) -> their output.
      text: the input, of process 0 only; None is standard input.
      path: the output file, of process 0 only; None is standard output.
      open_output: (path, made_from, resume) -> the output, of process 0 only.
    """
    before = text.first if text else 0
    total = text.count if text else None
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress("translating", "lines", total))
        output, lines = PrintedOutput(), iter(())  # process 0 replaces them
        with processes.fail_together("beginning the output"):
            if processes.is_first():
                stdin = sys.stdin.buffer
                lines = text.lines() if text else decode_lines(stdin, "standard input")
            if path:
                output = stack.enter_context(open_output(path, made_from, resume))
                lines = output.rest_of(lines)
        progress.add(output.lines)

        def numbered_chunks() -> Iterator[tuple[int, list[str]]]:
            # `output.lines` grows with every chunk that the loop below has written.
            for chunk in chunks(lines, batch_size):
                yield before + output.lines + 1, chunk

        for number, chunk in processes.stream_from_first("lines", numbered_chunks):
            translated = translate_lines(chunk, number)
            if processes.is_first():
                output.add(chunk, translated)
            progress.add(len(chunk))
    if path:
        say(f"{output.lines:,} lines are translated: {path}")
    return output


def record(
    translation: Translation,
    number: int,
    nbest: bool,
    scores: bool,
    alignments: Iterator[Alignment] | None,
    confidences: Iterator[str] | None = None,
) -> str:
    """Formats a translation: a line for each hypothesis, its fields split by ` ||| `.

    Args:
      number: of the line, printed with `nbest`.
      nbest, scores: print the number and the score; print the score.
      alignments: those of all hypotheses, in order; None prints none.
      confidences: the last fields of all hypotheses, in order; None prints none.
    """
    text = ""
    for hypothesis in translation.hypotheses:
        parts = [str(number)] if nbest else []
        parts.append(hypothesis.text)
        if alignments:
            parts.append(str(next(alignments)))
        if nbest or scores:
            parts.append(f"{hypothesis.score:.6f}")
        if confidences:
            parts.append(next(confidences))
        text += " ||| ".join(parts) + "\n"
    return text
