"""Messages to the user and progress of long jobs, on standard error."""

import codecs
import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterator

import tqdm

from t2t_jax.io.interruption import check

_silent = False


def silence() -> None:
    """Stops all messages of this process; process 0 prints those of all processes."""
    global _silent
    _silent = True


# Control characters but tabs and line feeds, and those that turn the direction of text.
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Writes control characters as escapes such as `\x1b`, which terminals obey."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def say(text: str = "") -> None:
    """Prints a line on standard error, above any progress bar."""
    if _silent:
        return
    if getattr(tqdm.tqdm, "_instances", True):
        # tqdm clears its bars, writes, and draws them again.
        tqdm.tqdm.write(printable(text), file=sys.stderr)
    else:
        sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def print_any_character() -> None:
    """Lets standard output and standard error print every character.

    In an ASCII locale (LC_ALL=C) they become UTF-8, as files of translations are.
    Other encodings get escapes for what they lack.
    """
    for stream in (sys.stdout, sys.stderr):
        if not hasattr(stream, "reconfigure"):  # replaced by the caller
            continue
        encoding = codecs.lookup(stream.encoding).name
        if encoding == "ascii":
            # Standard error prints file names whose bytes are not UTF-8, too.
            errors = "strict" if stream is sys.stdout else "backslashreplace"
            stream.reconfigure(encoding="utf-8", errors=errors)
        elif encoding != "utf-8":
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def closed_pipe_ends() -> Iterator[None]:
    """Ends the program quietly when the reader of its output, such as head, is gone."""
    try:
        yield
        sys.stdout.flush()  # or the error would come at exit, where nothing catches it
    except BrokenPipeError:
        # Otherwise Python's last flush of stdout would raise the error once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as the shell reports SIGPIPE: 128 + 13


# ----------------------------------------------------------------------------- progress
# A bar in a terminal, occasional lines in a log.

DELAY = 2.0  # seconds: a job that ends sooner shows no bar
INTERVAL = 10.0  # seconds between two lines where there is no terminal


class Progress:
    """Progress of a job: a bar in a terminal, or else a line every `INTERVAL` seconds.

    Shows nothing for a job shorter than `DELAY`, and removes the bar at the end.

    Args:
      job: its name.
      unit: the unit that it counts, such as `pairs`; without it, only time is shown.
      total: the number of units, if known.
    """

    def __init__(self, job: str, unit: str = "", total: int | None = None):
        self._job, self._unit, self._total = job, unit, total
        self._count = 0
        self._started = self._said = time.monotonic()  # `_said`: of the last line
        self._bar = tqdm.tqdm(
            desc=job,
            total=total,
            unit=f" {unit}",  # tqdm puts no space before the unit
            unit_scale=True,
            # None: tqdm's own format.
            bar_format=None if unit else "{desc}: {elapsed}",
            delay=DELAY,
            leave=False,
            dynamic_ncols=True,
            file=sys.stderr,
            disable=_silent or not sys.stderr.isatty(),
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()

    def add(self, count: int) -> None:
        """Adds units that are done since the last call; a place to be interrupted."""
        check()
        self._count += count
        self._bar.update(count)
        now = time.monotonic()
        if self._bar.disable and now - self._said >= INTERVAL:
            self._said = now
            say(f"{self._job}: {self._line(now - self._started)}")

    def _line(self, seconds: float) -> str:
        if not self._unit:
            return f"{tqdm.tqdm.format_interval(seconds)} so far"
        rate = self._count / seconds
        if not (self._total and rate):
            return f"{self._count:,} {self._unit}, {rate:,.0f}/s"
        remaining = tqdm.tqdm.format_interval(max(0, self._total - self._count) / rate)
        return (
            f"{self._count:,} of {self._total:,} {self._unit}, {rate:,.0f}/s, "
            f"{remaining} left"
        )


@contextlib.contextmanager
def waiting(job: str) -> Iterator[None]:
    """Shows the elapsed time during a call that reports no progress itself."""
    ended = threading.Event()
    with Progress(job) as progress:

        def tick():
            while not ended.wait(0.5):
                progress.add(0)  # refreshes the time

        # A daemon does not keep a process alive that ends in between.
        thread = threading.Thread(target=tick, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
