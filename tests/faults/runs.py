"""Real training runs, as a user starts them, that can be killed."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from t2t_jax.tools.verify import child_runs
from tests.faults.moments import EVAL_EVERY, STEPS, Moment, states
from tests.small_run import ROOT, config_for

SECTIONS = {
    "model": {"norm": "pre", "dropout": 0.1},
    "data": {"vocab_size": 330, "batch_tokens": 2_048},
    "train": {
        "warmup": 10,
        "peak_learning_rate": 0.02,
        "ema_decay": 0.9,
        "log_every": 11,  # so metrics are gathered across saves and evaluations
        "save_every": 5,
        "eval_every": EVAL_EVERY,
        "dev_lines": 8,
    },
    "decode": {"average": 3, "batch_tokens": 256},
}


@dataclass(frozen=True)
class Life:
    """What one process of a run did.

    Attributes:
      moment: the name of the one it was to be killed at; empty if of none.
      signal: that ended it; None if it came to its end before.
      seconds: from its start to its end.
      began: the step it went on from, if it lived to say so.
      saved: the newest state on disk after it.
    """

    moment: str
    signal: signal.Signals | None
    seconds: float
    began: int | None
    saved: int | None

    def __str__(self) -> str:
        end = f"{self.signal.name}, {self.moment}" if self.signal else "ended"
        return f"from {self.began} to {self.saved}, after {self.seconds:.2f} s: {end}"


class Place:
    """A folder for runs of one experiment: the text, and what they share.

    Args:
      steps: that each run makes.

    Attributes:
      usual_seconds: a run takes, once the first one has compiled and prepared all.
    """

    def __init__(self, folder: Path, steps: int = STEPS):
        self.folder, self.usual_seconds = folder.absolute(), 0.0
        self._sections = SECTIONS | {"train": SECTIONS["train"] | {"steps": steps}}
        folder.mkdir(parents=True, exist_ok=True)
        # Lines of dev are trained on, so that their BLEU rises within the few steps,
        # and a best checkpoint is replaced.
        child_runs.write_text(folder / "text")

    def command(self, workdir: Path) -> list[str]:
        """What a user would type."""
        config = config_for(self.folder / "text", **self._sections).to_dict()
        return [
            *(sys.executable, "-m", "t2t_jax.main", "--config=configs/tiny.py"),
            *child_runs.config_flags(config),
            f"--workdir={workdir}",
        ]


class Run:
    """A workdir and the processes, one after the other, that train in it.

    Args:
      compiled: False compiles everything anew in each process, and keeps none of it.
    """

    def __init__(self, place: Place, name: str, compiled: bool = True):
        self.place, self.name, self._compiled = place, name, compiled
        self.lives: list[Life] = []
        self._folder = place.folder / name
        self._folder.mkdir()
        self.workdir = self._folder / "work"
        self.prepared = place.folder / "prepared"

    @property
    def usual_seconds(self) -> float:
        return self.place.usual_seconds

    def live(self) -> Life:
        """Starts the command and waits for its end."""
        return self._live("", None, lambda process: None)

    def die(self, moment: Moment, by: signal.Signals, chance: random.Random) -> Life:
        """Starts the command and kills it at the moment, if its end is not before."""
        if moment.unprepared:
            self.prepared = self._folder / "prepared"
            shutil.rmtree(self.prepared, ignore_errors=True)
        is_seen = moment.watch(self, chance)

        def strike(process: subprocess.Popen) -> None:
            while process.poll() is None:
                time.sleep(0.001)
                if is_seen():
                    time.sleep(moment.delay(self, chance))
                    process.send_signal(by)
                    return

        return self._live(moment.name, by, strike)

    def _live(
        self,
        moment: str,
        by: signal.Signals | None,
        strike: Callable[[subprocess.Popen], None],
    ) -> Life:
        """Starts the command, does something to it, and waits for its end.

        Raises:
          RuntimeError: it ended neither well nor by the signal.
        """
        log = self._folder / f"life{len(self.lives)}.txt"
        started = time.monotonic()
        process = self._start(log)
        try:
            strike(process)
            status = process.wait(timeout=500)
        finally:
            process.kill()
        seconds = time.monotonic() - started
        said = log.read_text(encoding="utf-8", errors="replace")
        if status not in (0, by and -by, by and 128 + by):  # killed, or left in order
            raise RuntimeError(f"{log}: status {status}\n{said[-4_000:]}")
        life = Life(
            moment=moment,
            signal=by if status else None,
            seconds=seconds,
            began=_began(said),
            saved=max(states(self), default=None),
        )
        self.lives.append(life)
        if not status and self.place.usual_seconds and life.began == 0:
            usual = min(self.place.usual_seconds, seconds)  # the machine is less busy
            self.place.usual_seconds = usual
        return life

    def _start(self, log: Path) -> subprocess.Popen:
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "T2T_JAX_CACHE": str(self.prepared),
        }
        if self._compiled:
            environment |= {
                "JAX_COMPILATION_CACHE_DIR": str(self.place.folder / "compiled"),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            }
        with log.open("wb") as stderr:
            return subprocess.Popen(
                self.place.command(self.workdir),
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )


def _began(said: str) -> int | None:
    """The step that a process says it went on from."""
    if found := re.search(r"continuing after step ([\d,]+)", said):
        return int(found[1].replace(",", ""))
    return 0 if "the first step took" in said else None
