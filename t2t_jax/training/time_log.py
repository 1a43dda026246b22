"""`time.jsonl`: where the time of a run went, across restarts.

One of `PHASES` is active at any moment, so the seconds of a start add up to its wall
time. A line has the seconds of each phase since the line before it, or since the
process started; lines are written where a later start may continue: at its first step,
after each save and each evaluation.

`alive` has the moment that process 0 was last alive, twice a second: what a killed
start did after its last line is known to the second, and was lost.
"""

import contextlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from t2t_jax.io.errors import UserError
from t2t_jax.io.growing import open_growing
from t2t_jax.io.locations import is_local
from t2t_jax.io.messages import say
from t2t_jax.io.tables import text_table
from t2t_jax.parallel import processes
from t2t_jax.workdir import Workdir

TIMES, ALIVE = "time.jsonl", "alive"
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
BEAT = 0.5  # seconds

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
        # As `alive` has it.
        self.began = round(time.time() - (time.monotonic() - self._since), 3)
        self._phase, self._seconds = "start", Counter()
        self._check_owner, self._file = check_owner, None
        self._ended, self._thread = threading.Event(), None
        self._workdir: Workdir | None = None

    def open(self, workdir: Workdir, step: int) -> None:
        """Begins to write, with the line of a start that continues after a step."""
        self._workdir = workdir
        tail = _tail(workdir, read_times(workdir))
        file = workdir / TIMES
        content = file.read_bytes() if file.exists() else b""
        # Without half a line that a crash has left.
        self._file = open_growing(file, content[: content.rfind(b"\n") + 1])
        if tail:
            self._write(tail)
        self.write(step)
        if is_local(workdir / ALIVE):
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def enter(self, phase: str) -> str:
        """Begins a phase; returns the one before."""
        now, before = time.monotonic(), self._phase
        self._seconds[before] += now - self._since
        self._since, self._phase = now, phase
        return before

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Measures a phase within another one."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def write(self, step: int) -> None:
        """Writes a line: what came since the last one led to this step."""
        self.enter(self._phase)
        seconds = {phase: round(n, 3) for phase, n in self._seconds.items()}
        self._seconds.clear()
        self._write(Times(self.began, step, seconds))

    def close(self, workdir: Workdir, step: int) -> None:
        """Writes the last line; nothing is lost after it."""
        if not self._workdir and processes.is_first() and (workdir / ALIVE).exists():
            # No step was left to train, but an earlier start was killed while scoring.
            self.open(workdir, step)
        self.write(step)
        self.stop()
        if self._thread:
            (self._workdir / ALIVE).unlink(missing_ok=True)

    def stop(self) -> None:
        """Ends the thread, also after an error: `alive` then tells the time of it."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        if self._file:
            self._file.close()
            self._file = None

    def _write(self, times: "Times") -> None:
        if self._file:
            self._check_owner()
            self._file.write(json.dumps(times._asdict()).encode() + b"\n")
            try:
                self._file.flush()
            except OSError as e:  # the next flush tries again
                say(f"warning: cannot write {TIMES}: {e}")

    def _beat(self) -> None:
        owned = contextlib.suppress(OSError, UserError)
        with owned, open(self._workdir / ALIVE, "wb", buffering=0) as file:
            while not self._ended.wait(BEAT):
                self._check_owner()
                file.seek(0)
                file.write(b"%.3f %.3f\n" % (self.began, time.time()))


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
    """Reads the lines, as long as they are whole; none if an older version ran."""
    file, found = workdir / TIMES, []
    for line in file.read_bytes().splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError, TypeError, KeyError):
            read = json.loads(line)
            found.append(Times(read["began"], read["step"], dict(read["seconds"])))
    return found


def _tail(workdir: Workdir, before: Sequence[Times]) -> Times | None:
    """What a killed start did after its last line, if `alive` tells."""
    with contextlib.suppress(OSError, ValueError):
        began, alive = map(float, (workdir / ALIVE).read_text().split())
        of_start = [line for line in before if line.began == began]
        known = sum(sum(line.seconds.values()) for line in of_start)
        step = before[-1].step if before else 0
        if (lost := alive - began - known) > 0:
            return Times(began, step, {"lost": round(lost, 3)})
    return None


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
        ends = f"{self.starts} start{'s' * (self.starts > 1)}"
        repeated = f", at least {self.repeated:,} steps repeated" * (self.repeated > 0)
        return [f"time of the run: {ends}{repeated}", *table]


def summarize(lines: Sequence[Times]) -> TimeSummary:
    """Adds up the phases of all starts; discarded work counts as lost.

    Work is discarded where a later line has an earlier step: a start continued from a
    checkpoint, or a rollback went back to one.
    """
    kept: list[Times] = []
    lost, repeated, last = 0.0, 0, 0
    for line in lines:
        repeated += max(0, last - line.step)
        last = line.step
        while kept and kept[-1].step > line.step:
            lost += sum(kept.pop().seconds.values())
        kept.append(line)
    total = sum((Counter(line.seconds) for line in kept), Counter())
    total["lost"] += lost
    seconds = {phase: total[phase] for phase in PHASES if total[phase]}
    return TimeSummary(seconds, len({line.began for line in lines}), repeated)
