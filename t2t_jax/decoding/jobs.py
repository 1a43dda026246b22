"""Translates a complete file: in order, in bounded memory, resumable."""

import contextlib
import functools
import hashlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_jax.data.text_files import decode_lines, read_lines
from t2t_jax.decoding.results import Alignment, Translation
from t2t_jax.io import interruption
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import Progress, say
from t2t_jax.io.output_files import OutputFile, PrintedOutput
from t2t_jax.io.parts import chunks, share_of
from t2t_jax.parallel import processes


class InputLines:
    """The lines of a text, or of the part that one of several machines translates.

    Parts are consecutive lines: the concatenated outputs are that of the text.

    Attributes:
      total: the number of lines of the text.
      sha256: its hash, if the record is kept.
      first: the number of lines before the part.
      count: the number of lines of the part.
      place: what the record of the part says of it (`OutputFile`); empty if not kept.

    Args:
      read: returns an iterator over all lines, anew each time.
      part: (I, N), the I-th of N parts.
      keep: keeps the record of a single part, too.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[str]],
        part: tuple[int, int] = (1, 1),
        keep: bool = False,
    ):
        self._read, self.total = read, 0
        digest, keep = hashlib.sha256(), keep or part[1] > 1
        # Reading it all once also reports invalid lines before any work is done.
        for self.total, line in enumerate(read(), 1):
            if keep:
                digest.update(line.encode() + b"\n")
        self.sha256 = digest.hexdigest() if keep else ""
        self.first, end = share_of(self.total, part)
        self.count = end - self.first
        self.place = {}
        if keep:
            text = {"lines": self.total, "sha256": self.sha256}
            self.place = {"part": "/".join(map(str, part)), "whole_input": text}

    def lines(self) -> Iterator[str]:
        """Yields the lines of the part, without line ends."""
        return itertools.islice(self._read(), self.first, self.first + self.count)


class InputFile(InputLines):
    """The lines of a text file, or of a part of it."""

    def __init__(self, file: Path, part: tuple[int, int] = (1, 1)):
        if not file.is_file():
            wrong = "is not a regular file" if file.exists() else "does not exist"
            raise UserError(f"--input={file} {wrong}; want a text file")
        super().__init__(functools.partial(read_lines, file), part)


def run_job(
    translate_lines: Callable[[list[str], int], str],
    text: InputLines | None,
    path: Path | None,
    made_from: dict,
    resume: bool,
    batch_size: int,
    open_output: Callable[[Path, dict, bool, dict], OutputFile] = OutputFile,
) -> OutputFile | PrintedOutput:
    """Translates all lines of an input, in order and in bounded memory.

    Process 0 reads and writes; all processes translate.

    Args:
      translate_lines: (lines, number of the first, from 1) -> their output.
      text: the input, of process 0 only; None is standard input.
      path: the output file, of process 0 only; None is standard output.
      open_output: (path, made_from, resume, place) -> the output, of process 0 only.
    """
    lines_before = text.first if text else 0
    total = text.count if text else None
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress("translating", "lines", total))
        output, lines = PrintedOutput(), iter(())  # process 0 replaces them
        with processes.fail_together("beginning the output"):
            if processes.is_first():
                stdin = interruption.awaited(sys.stdin.buffer)
                lines = text.lines() if text else decode_lines(stdin, "standard input")
            if path:
                place = text.place if text else {}
                job = made_from, resume, place
                output = stack.enter_context(open_output(path, *job))
                lines = output.rest_of(lines)
        progress.add(output.lines)

        def numbered_chunks() -> Iterator[tuple[int, list[str]]]:
            # `output.lines` grows with every chunk that the loop below has written.
            for chunk in chunks(lines, batch_size):
                yield lines_before + output.lines + 1, chunk

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
