"""`time.jsonl`: where the time of a run went, across restarts.

One of `PHASES` is active at any moment, so the seconds of a start add up to its wall
time. A line has the seconds of each phase since the line before it, or since the
process started. Lines are written where a later start may continue: at its first step,
after each save and each evaluation; and after each logging interval, so that most of
what a killed start did is known, too.
"""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from t2t_jax.io.growing import open_log
from t2t_jax.io.json_lines import read_lines
from t2t_jax.io.locations import is_local
from t2t_jax.io.messages import say
from t2t_jax.io.tables import text_table
from t2t_jax.parallel import processes
from t2t_jax.workdir import Workdir

TIMES = "time.jsonl"
PHASES = {
    "start": "imports, text, model, restored state",
    "compilation": "compiling, and the first step",
    "input": "waiting for batches",
    "steps": "training",
    "evaluation": "of the dev set",
    "checkpoints": "until training goes on",
    "scoring": "of the test sets",
    "lost": "discarded by a kill or a rollback, and repeated",
}

# Seconds from the start of this process to the import of this module.
_AGE = 0.0
with contextlib.suppress(OSError, ValueError, AttributeError):  # Linux
    with open("/proc/self/stat") as _file:
        _ticks = int(_file.read().rpartition(")")[2].split()[19])
    _boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    _AGE = _boot - _ticks / os.sysconf("SC_CLK_TCK")
_process_started = [time.monotonic() - _AGE]  # taken by the first run of the process


class TimeLog:
    """Measures the phases of a start, and writes them.

    It writes from `open` on, so a run that is refused or finished writes nothing.

    Args:
      check_owner: raises a UserError once the workdir belongs to another run.
    """

    def __init__(self, check_owner: Callable[[], None] = lambda: None):
        self._since = _process_started.pop() if _process_started else time.monotonic()
        self.began = round(time.time() - (time.monotonic() - self._since), 3)
        self._phase, self._seconds = "start", Counter()
        self._check_owner, self._file = check_owner, None

    def open(self, workdir: Workdir, step: int) -> None:
        """Begins to write, with the line of a start that continues after a step."""
        file = workdir / TIMES
        _, self._file = open_log(file, _parsed, begin=b'{"began": ')
        self._is_local = is_local(file)
        self.write(step)

    def enter(self, phase: str) -> str:
        """Begins a phase; returns the one before."""
        time_now, previous_phase = time.monotonic(), self._phase
        self._seconds[previous_phase] += time_now - self._since
        self._since, self._phase = time_now, phase
        return previous_phase

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Measures a phase within another one."""
        outer_phase = self.enter(phase)
        try:
            yield
        finally:
            self.enter(outer_phase)

    def write(self, step: int, urgent: bool = True) -> None:
        """Writes a line: what came since the last one led to this step.

        Without `urgent`, a bucket gets the line with the next one, since an upload has
        all lines before it, too.
        """
        self.enter(self._phase)
        seconds = {phase: round(n, 3) for phase, n in self._seconds.items()}
        self._seconds.clear()
        if not self._file:
            return
        self._check_owner()
        times = Times(self.began, step, seconds)
        self._file.write(json.dumps(times._asdict()).encode() + b"\n")
        if not (urgent or self._is_local):
            return
        try:
            self._file.flush()
        except OSError as e:  # the next flush tries again
            say(f"warning: cannot write {TIMES}: {e}")

    def close(self, workdir: Workdir, step: int) -> None:
        """Writes the last line; nothing is lost after it."""
        if not self._file and processes.is_first() and _is_unscored(workdir):
            # No step was left to train, but an earlier start was killed while scoring.
            self.open(workdir, step)
        self.write(step)
        self.stop()

    def stop(self) -> None:
        """Closes the file, also after an error."""
        if self._file:
            self._file.close()
            self._file = None


class Times(NamedTuple):
    """A line of `time.jsonl`.

    Attributes:
      began: when the process started, in seconds since 1970.
      step: the last one at the end of these seconds.
      seconds: of each phase, since the line before of this start.
    """

    began: float
    step: int
    seconds: dict[str, float]


def read_times(workdir: Workdir) -> list[Times]:
    """Reads the lines that are not damaged; none if an older version ran."""
    lines = read_lines(workdir / TIMES, _parsed).entries
    return [times for times in lines if times]


def _parsed(line: dict) -> Times:
    return Times(line["began"], line["step"], dict(line["seconds"]))


def _is_unscored(workdir: Workdir) -> bool:
    """True if the last start that wrote lines did not come to the end of a run."""
    lines = read_times(workdir)
    return bool(lines) and "scoring" not in lines[-1].seconds


class TimeSummary(NamedTuple):
    """Where the time of a run went.

    Attributes:
      seconds: by phase, in their order.
      starts: the number of starts.
      repeated: the steps that were discarded and trained again.
    """

    seconds: dict[str, float]
    starts: int
    repeated: int

    def lines(self) -> list[str]:
        """A table: each phase, its seconds, its share; empty if nothing is known."""
        if not self.starts:
            return []
        total = sum(self.seconds.values())
        rows = [
            (phase, f"{n:,.1f} s", f"{n / (total or 1):.1%}", PHASES.get(phase, ""))
            for phase, n in self.seconds.items()
        ]
        table = text_table([*rows, ("all", f"{total:,.1f} s", "", "")], left=(0, 3))
        title = f"time of the run: {self.starts} start"
        if self.starts > 1:
            title += "s"
        if self.repeated:
            title += f", at least {self.repeated:,} steps repeated"
        return [title, *table]


def summarize(lines: Sequence[Times]) -> TimeSummary:
    """Adds up the phases of all starts; discarded work counts as lost.

    Work is discarded where a later line has an earlier step: a start continued from a
    checkpoint, or a rollback went back to one.
    """
    lasting: list[Times] = []
    lost, repeated, last_step = 0.0, 0, 0
    for line in lines:
        repeated += max(0, last_step - line.step)
        last_step = line.step
        while lasting and lasting[-1].step > line.step:
            lost += sum(lasting.pop().seconds.values())
        lasting.append(line)
    total = sum((Counter(line.seconds) for line in lasting), Counter())
    total["lost"] += lost
    seconds = {phase: total[phase] for phase in PHASES if total[phase]}
    return TimeSummary(seconds, len({line.began for line in lines}), repeated)
