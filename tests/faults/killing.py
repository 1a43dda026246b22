"""Kills training runs at moments that are seen from outside, in what they write.

    python -m tests.faults.killing --kills=50 --seed=0 --output=docs/results/kills.json

Each run is killed about once at each moment, then allowed to end, and compared with an
undisturbed run in every array, metric, score, translation and file name. With
--processes=2 a run is two processes, each of which writes its half of the arrays.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import results
from t2t_jax.io.tables import text_table
from t2t_jax.run.differences import workdir_differences
from t2t_jax.tools.verify.child_runs import TIME_LIMIT, ChildRuns, rendezvous_flags

EVAL_EVERY = 15  # steps
A_MOMENT = 0.02  # seconds: as long as a few files take to be written
FIELDS = {
    "model": {"norm": "pre"},
    # Metrics are gathered across saves and evaluations. Lines of dev are trained on, so
    # that their BLEU rises within the few steps, and a best checkpoint is replaced.
    "train": {"log_every": 11, "eval_every": EVAL_EVERY, "save_every": 5, "warmup": 10}
    | {"peak_learning_rate": 0.02},
    "decode": {"average": 3},
}


class RunsOfTwo(ChildRuns):
    """Runs of two processes: first the one is killed, soon the other."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.fields["mesh"] = {"fsdp": 2}
        self.chance = random.Random(0)

    def finished(self, name: str) -> Path:
        return self.group(name, [{}, {}])[0]

    def life(self, name: str, reached: Callable[[], object]) -> int:
        command = self.command(self.folder / name)
        first_killed = self.chance.randrange(2)
        for _ in range(3):
            commands = [[*command, *flags] for flags in rendezvous_flags(2)]
            with self._started(commands, name) as pair:
                log_lengths = [len(pair.err(i)) for i in range(2)]
                if pair.until(reached):
                    pair.send(signal.SIGKILL, first_killed)
                    time.sleep(self.chance.uniform(0, 0.5))
                    pair.send(signal.SIGKILL, 1 - first_killed)
                    return pair.end()[first_killed]
                if not any(statuses := pair.end()):
                    return 0
                log = "".join(pair.err(i)[log_lengths[i] :] for i in range(2))
            if TIME_LIMIT not in log:  # on a busy machine they may wait in vain
                break
        raise RuntimeError(f"{statuses}: {log[-9_000:]}")


def runs_in(folder: Path, processes: int = 1) -> ChildRuns:
    """Runs that can be killed."""
    runs = ChildRuns(folder, translate=True) if processes == 1 else RunsOfTwo(folder)
    for section, values in FIELDS.items():
        runs.fields[section] |= values
    runs.fields["train"]["steps"] = 60
    return runs


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as scanned:
            return list(scanned)
    except FileNotFoundError:
        return []


def _being_written(kind: str) -> Callable[[ChildRuns, Path], Iterable]:
    def see(runs, workdir):
        for entry in _entries(workdir / "checkpoints" / kind):
            if "orbax-checkpoint-tmp" in entry.name:
                # By its inode it is not one that a killed process left behind.
                yield entry.name, entry.inode()

    return see


def _states(runs, workdir):
    names = [entry.name for entry in _entries(workdir / "checkpoints/state")]
    return {int(name) for name in names if name.isdigit()}


def _evaluations(runs, workdir):
    """An evaluation begins while the state of its step is still being written."""
    steps = (e.name.partition(".")[0] for e in _entries(workdir / "checkpoints/state"))
    return {step for step in steps if step.isdigit() and int(step) % EVAL_EVERY == 0}


def _metrics(runs, workdir):
    entries = _entries(workdir)
    return [e.stat().st_size for e in entries if e.name == "metrics.jsonl"]


def _preparations(runs, workdir):
    kinds = _entries(runs.folder / "cache")
    parts = [part for kind in kinds for part in _entries(kind)]
    return [part.name for part in parts if part.name.startswith(".writing-")]


class Moment(NamedTuple):
    """A run is killed up to `within` seconds after something new is seen of it.

    Attributes:
      see: what is there now; new is what was not there before.
      pass_by: up to so many new things are let pass, so that a run advances.
    """

    see: Callable[[ChildRuns, Path], Iterable[Hashable]]
    within: float = A_MOMENT
    pass_by: int = 0


MOMENTS = {
    "any time": Moment(lambda *_: [time.monotonic()], within=8.0),
    # The first of all states: the first metrics are gathered from before it and after.
    "first state written": Moment(_states),
    "parameters being written": Moment(_being_written("parameters"), pass_by=2),
    "state being written": Moment(_being_written("state"), pass_by=2),
    "state written": Moment(_states, pass_by=2),
    "best being written": Moment(_being_written("best")),
    "metrics written": Moment(_metrics, pass_by=4),
    "evaluation": Moment(_evaluations, within=0.4),
    "text being prepared": Moment(_preparations, within=0.4),
    "end and scoring": Moment(
        lambda runs, workdir: _states(runs, workdir) & {runs.fields["train"]["steps"]},
        within=1.0,
    ),
}

SAVING = [name for name in MOMENTS if name.startswith(("any", "par", "state"))]


def kill(runs, name, moment, chance) -> bool:
    """Trains, and kills the run at a moment; False if it came to its end before."""
    if MOMENTS[moment].see is _preparations:
        shutil.rmtree(runs.folder / "cache", ignore_errors=True)
    see, within, pass_by = MOMENTS[moment]
    workdir = runs.folder / name
    known_items = set(see(runs, workdir))
    to_pass = chance.randint(0, pass_by)

    def reached():
        nonlocal to_pass
        new = set(see(runs, workdir)) - known_items
        known_items.update(new)
        to_pass -= len(new)
        if to_pass < 0:
            time.sleep(chance.uniform(0, within))
        return to_pass < 0

    status = runs.life(name, reached)
    assert status in (0, -signal.SIGKILL), (runs.folder, name, status)
    return status != 0


class Killed(NamedTuple):
    """A run that was killed and has come to its end: its workdir, and the moments."""

    workdir: Path
    moments: list[str]


def killed_at(
    runs: ChildRuns, kills: int, seed: int, names: Sequence[str] = (*MOMENTS,)
) -> Iterator[Killed]:
    """Yields runs that were killed at each of some moments in turn, `kills` times.

    A moment that does not come before a run has ended is waited for in the next.
    """
    chance, kills_left, in_vain, number = random.Random(seed), kills, 0, 0
    while kills_left:
        assert in_vain < 5, f"{names[-kills_left % len(names)]!r} does not come"
        killed = Killed(runs.folder / f"killed{number}", [])
        name = killed.workdir.name
        while kills_left and kill(
            runs, name, moment := names[-kills_left % len(names)], chance
        ):
            killed.moments.append(moment)
            kills_left -= 1
        in_vain = 0 if killed.moments else in_vain + 1
        runs.finished(name)
        number += 1
        yield killed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="in all")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--output", type=Path, help="a new JSON file for the rows")
    parser.add_argument("--processes", type=int, default=1, choices=(1, 2))
    arguments = parser.parse_args()
    if arguments.output:
        results.check_new(arguments.output)
    names = SAVING if arguments.processes > 1 else [*MOMENTS]
    counts = {name: {"kills": 0, "runs": 0, "equal": 0} for name in [*names, "all"]}
    with tempfile.TemporaryDirectory() as folder:
        runs = runs_in(Path(folder) / "runs", arguments.processes)
        undisturbed = runs.finished("whole")
        for killed in killed_at(runs, arguments.kills, arguments.seed, names):
            compared = workdir_differences(undisturbed, killed.workdir)
            differences = {name: lines for name, lines in compared.items() if lines}
            if differences:
                print(killed.moments, differences, file=sys.stderr, flush=True)
            for name in {*killed.moments, "all"}:
                row = counts[name]
                row["kills"] += sum(name in ("all", m) for m in killed.moments)
                row["runs"] += 1
                row["equal"] += not differences
    rows = [{"moment": name} | row for name, row in counts.items()]
    cells = [[r["moment"], str(r["kills"]), f"{r['equal']}/{r['runs']}"] for r in rows]
    print(*text_table([("killed", "kills", "runs bitwise equal"), *cells]), sep="\n")
    if arguments.output:
        results.write(arguments.output, rows)
    return int(counts["all"]["equal"] < counts["all"]["runs"])


if __name__ == "__main__":
    sys.exit(main())
