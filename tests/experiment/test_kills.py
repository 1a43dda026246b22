"""Two processes share a queue and are killed: what they leave is as if nobody was."""

import collections
import json
import random
import re
import subprocess
import sys
import time

import pytest

from t2t_jax.run.differences import workdir_differences
from tests.experiment.made_up import write_experiment
from tests.small_run import ROOT

KILLS, ROWS, STEPS = 10, 6, 60


def logged_steps(folder):
    """The steps that all runs have logged so far; a line may be half written."""
    steps = [
        re.findall(r'"step": (\d+)', log.read_text())
        for log in folder.glob("runs/*/metrics.jsonl")
    ]
    return sum(max(map(int, found), default=0) for found in steps)


@pytest.mark.slow
def test_two_processes_that_are_killed_leave_the_bytes_of_one(text, tmp_path):
    """Takes minutes. Kills follow from progress, so none comes after the last run."""
    file = write_experiment(tmp_path, text, train={"save_every": 5, "eval_every": 20})

    def start(workdir, log):
        command = [sys.executable, "-m", "t2t_jax", "experiment", file]
        flags = [f"--steps={STEPS}", f"--count={ROWS}", f"--workdir={workdir}"]
        return subprocess.Popen([*command, *flags], cwd=ROOT, stdout=log, stderr=log)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with (tmp_path / "log").open("wb") as log:
        assert start(whole, log).wait() == 0
        total = logged_steps(whole)
        assert total == ROWS * STEPS
        dice = random.Random(0)
        processes = [start(killed, log) for _ in range(2)]
        for kill in range(KILLS):
            # The last kill comes while at least two runs are left.
            until = total * (kill + dice.random()) / (KILLS + 4)
            while logged_steps(killed) < until:
                assert processes[0].poll() is None
                time.sleep(0.05)
            time.sleep(dice.uniform(0, 1))  # also while it scores or starts
            chosen = dice.randrange(2)
            assert processes[chosen].poll() is None
            processes[chosen].kill()
            processes[chosen].wait()
            processes[chosen] = start(killed, log)
        assert [process.wait() for process in processes] == [0, 0]

    runs = sorted(path.name for path in whole.glob("runs/*"))
    assert len(runs) == ROWS
    assert runs == sorted(path.name for path in killed.glob("runs/*"))
    assert not [*killed.glob("leases/*.json")]
    for run in runs:
        found = workdir_differences(whole / "runs" / run, killed / "runs" / run)
        # Minutes of training and their like.
        found["config"] = [n for n in found["config"] if "outcome.json" not in n]
        assert not any(found.values()), found
        lines = (killed / "runs" / run / "metrics.jsonl").read_text().splitlines()
        entries = [(e["kind"], e["step"]) for e in map(json.loads, lines)]
        assert max(collections.Counter(entries).values()) == 1
    tables = [folder / "mine" / "table.md" for folder in (whole, killed)]
    assert tables[0].read_bytes() == tables[1].read_bytes()
