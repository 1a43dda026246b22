"""Several processes train as one does, stop together, and go on as any number does."""

import json
import signal

import pytest

from t2t_jax.io import sealed
from t2t_jax.tools.verify import child_runs
from t2t_jax.tools.verify.determinism import ORDER, loss_difference
from t2t_jax.training.averaging import read_parameters
from t2t_jax.training.checkpoint import Checkpoints, RunProgress, read_state
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.workdir import Workdir
from tests.processes.conftest import PLAIN
from tests.processes.primitives import state
from tests.small_run import assert_same, assert_same_run, flags_for

# So that a run lasts long enough for something to happen to it.
SLOWLY = """
from t2t_jax.training import loop
step = loop.TrainingRun._step
def slowly(self):
    time.sleep(0.6)
    step(self)
loop.TrainingRun._step = slowly
"""


def plain_with(**fields):
    return PLAIN | {"train": PLAIN["train"] | fields}


def assert_near(workdir, other_workdir):
    """The losses of all steps are equal, but for the order of sums."""
    step_losses = child_runs.losses(workdir)
    assert [*step_losses] == [*range(1, PLAIN["train"]["steps"] + 1)]
    assert loss_difference(step_losses, child_runs.losses(other_workdir)) <= ORDER


def states(workdir):
    return sealed_steps(Workdir(workdir).checkpoints / "state")


def test_two_processes_train_as_one_and_only_the_first_writes_and_talks(
    alone, together
):
    workdir, errors = together
    assert_near(workdir, alone)
    assert states(workdir) == states(alone) == [5, 10]
    assert "mesh        data 4 x fsdp 1 x tensor 1" in errors[0]
    assert "finished: 10 of 10 steps are trained" in errors[0]
    assert errors[1] == ""
    assert {file.name for file in workdir.parent.iterdir()} == {"work", "file", "logs"}
    # They see no folder of both: the first writes the arrays of both.
    parts = (workdir / "checkpoints").rglob("ocdbt.process_*")
    assert {part.name for part in parts} == {"ocdbt.process_0"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "numbers"),
    # Ctrl-C in a terminal goes to all of its processes.
    [
        *[(signal.SIGTERM, [1]), (signal.SIGTERM, [0])],
        *[(signal.SIGINT, [1]), (signal.SIGINT, [0, 1])],
    ],
)
def test_a_signal_stops_all_after_the_same_step(text, start, tmp_path, signum, numbers):
    workdir = tmp_path / "work"
    command = flags_for(text, workdir, **PLAIN)
    children = start(2, *command, patch=SLOWLY, devices=2).until("step 3/10")
    for number in numbers:
        children.send(signum, number)
    children.ends(143, 143, seconds=30)
    step = states(workdir)[-1]
    assert 3 <= step < 10
    assert children.err().endswith(
        f"SIGTERM: stopped after step {step}, which is saved; run the same "
        "command again to continue\n"
    )
    lines = [line for line in children.err(1).splitlines() if "preemption" not in line]
    assert lines == []
    assert not (workdir / ".lock").exists()

    continued = start(2, *command, devices=2).ends(0, 0)
    assert f"continuing after step {step}" in continued.err()

    # To the last bit: so with the programs that users have, which `together` has not.
    start(2, *flags_for(text, tmp_path / "whole", **PLAIN), devices=2).ends(0, 0)
    assert_same_run(tmp_path / "whole", workdir)


@pytest.mark.slow
def test_a_run_goes_from_two_processes_to_one_and_to_three(
    together, text, start, tmp_path
):
    """`training/test_checkpoint.py` has the bits of a state on other devices."""
    workdir = tmp_path / "work"
    for step, steps, n, devices in (
        (0, 3, 2, 4),
        (3, 5, 1, 1),
        (5, 8, 3, 1),  # into which its rows do not divide
        (8, 10, 1, 8),
    ):
        command = flags_for(text, workdir, **plain_with(steps=steps))
        children = start(n, *command, devices=devices).ends(*[0] * n)
        assert (f"continuing after step {step}\n" in children.err()) == (step > 0)
    assert_near(workdir, together[0])


def test_what_two_processes_share_is_what_one_of_them_has(start, tmp_path):
    """What each has found is judged by `primitives.py` itself."""
    workdir = Workdir(tmp_path / "work")
    alone = Checkpoints(workdir, 2, 1)
    alone.save(state(1), RunProgress(seconds=1.0))
    alone.close()
    flag, module = f"--folder={workdir}", "tests.processes.primitives"
    children = start(2, flag, module=module, devices=2).ends(0, 0)
    # Each wrote its part, and one process reads all of them.
    for kind, step in ("state", 4), ("parameters", 3), ("best", 3):
        folder = workdir.checkpoints / kind / str(step)
        item = folder / ("state" if kind == "state" else "parameters")
        parts = [item / f"ocdbt.process_{i}" / "d" for i in range(2)]
        half = state(step).parameters["divided"].nbytes / 2
        assert all(0.8 * half < sealed.size(part) for part in parts)
    assert_same(read_state(folder.parents[1] / "state/4", state(0))[0], state(4))
    assert_same(read_parameters(folder, state(0).parameters), state(3).parameters)
    assert states(workdir) == [2, 4]
    for number in range(2):
        report = json.loads(children.out(number).splitlines()[-1])  # after Gloo's lines
        assert report["wrong"] == {}, report
        assert report["arrays"] > 50
