"""Kills training runs, starts them again, and asks what came of them.

    python -m tests.faults.killing --kills=50 --seed=0 [--signal=KILL|TERM|mixed]

A run is killed and started again with the same command until it ends by itself. What it
leaves has to be what an undisturbed run leaves. There are as many runs as are needed
for the kills, and a kill takes about six seconds.
"""

import argparse
import collections
import itertools
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax

from t2t_jax.run.differences import COMPARED, workdir_differences
from tests.faults.moments import ALL, MOMENTS, Moment
from tests.faults.runs import Place, Run

SIGNALS = {
    "KILL": [signal.SIGKILL],
    "TERM": [signal.SIGTERM],
    "mixed": [signal.SIGKILL, signal.SIGTERM],
}
PATIENCE = 5  # runs in which a moment may fail to come


@dataclass(frozen=True)
class Trial:
    """A run that came to its end, and how it differs from an undisturbed one."""

    run: Run
    differences: dict[str, list[str]]

    def __str__(self) -> str:
        told = [str(life) for life in self.run.lives]
        for thing, names in self.differences.items():
            if names:
                more = f" and {len(names) - 1} more" if names[1:] else ""
                told.append(f"{thing.upper()}: {names[0]}{more}")
        return "\n  ".join([f"{self.run.name}:", *told])

    def is_equal(self) -> bool:
        return not any(self.differences.values())

    def kills(self, moment: Moment | None = None) -> int:
        """How often the run was killed, at this moment or at all."""
        deaths = [life.moment for life in self.run.lives if life.signal]
        return deaths.count(moment.name) if moment else len(deaths)


def undisturbed(place: Place, twice: bool = True) -> tuple[Run, Trial | None]:
    """A run that nobody disturbs, and another, which finds everything compiled.

    It is told apart from the first as killed runs are: what two undisturbed runs do not
    have in common, no kill has changed. Where few are killed, there may be none.
    """
    whole, again = (Run(place, name) for name in ("whole", "again"))
    whole.live()
    if not twice:
        return whole, None
    place.usual_seconds = again.live().seconds
    return whole, Trial(again, workdir_differences(whole.workdir, again.workdir))


def killed(
    whole: Run,
    moments: Sequence[Moment],
    kills: int,
    signals: Sequence[signal.Signals],
    chance: random.Random,
) -> Iterator[Trial]:
    """Runs that are killed `kills` times together, at each of the moments in turn.

    A moment that does not come before a run has ended is waited for in the next.

    Raises:
      RuntimeError: one does not come in several runs, each from its start.
    """
    turn, left, in_vain = collections.deque(moments), kills, 0
    for number in itertools.count():
        run = Run(whole.place, f"killed{number}")
        while left:
            if run.die(turn[0], chance.choice(signals), chance).signal is None:
                break
            turn.rotate(-1)
            left -= 1
        else:
            run.live()
        yield Trial(run, workdir_differences(whole.workdir, run.workdir))
        if not left:
            return
        in_vain = in_vain + 1 if len(run.lives) == 1 else 0
        if in_vain == PATIENCE:
            raise RuntimeError(f"{turn[0].name!r} does not come")


def table(trials: Sequence[Trial]) -> str:
    """Markdown: of the runs killed at a moment, how many equal an undisturbed one."""
    rows = [["killed at", "kills", *COMPARED], ["---", *["--:"] * (1 + len(COMPARED))]]
    for name, moment in [*MOMENTS.items(), ("all", None)]:
        hit = [trial for trial in trials if trial.kills(moment)]
        kills = sum(trial.kills(moment) for trial in hit)
        equal = [sum(not trial.differences[t] for trial in hit) for t in COMPARED]
        rows.append([name, str(kills), *(f"{n}/{len(hit)}" for n in equal)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signal", choices=SIGNALS, default="KILL")
    parser.add_argument("--keep", type=Path, help="a new folder, to look at the runs")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.kills} kills by {options.signal}")
    jax.config.update("jax_platforms", "cpu")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        place = Place(options.keep or Path(temporary) / "runs")
        whole, again = undisturbed(place)
        alone = Run(place, "compiled alone", compiled=False)
        alone.live()
        differences = workdir_differences(whole.workdir, alone.workdir)
        for trial in again, Trial(alone, differences):
            print(f"undisturbed, {trial}", flush=True)
        chance, trials = random.Random(options.seed), []
        for trial in killed(whole, ALL, options.kills, SIGNALS[options.signal], chance):
            trials.append(trial)
            print(trial, flush=True)
    print(f"\n{table(trials)}\n\n{(time.monotonic() - started) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
