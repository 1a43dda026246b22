"""Steps of a finished run executed again, and what is said if they differ."""

import shutil

import jax
import numpy as np
import pytest

from t2t_jax import train
from t2t_jax.commands.flags import parse_steps
from t2t_jax.extensions.run import rerun as reruns
from t2t_jax.extensions.run.rerun import plan_stretch, report, rerun
from t2t_jax.run import differences
from t2t_jax.training.divergence import Rollbacks
from t2t_jax.workdir import Workdir
from tests.faults.test_numbers import poisoned  # noqa: F401  (a fixture)
from tests.small_run import config_for, files

pytestmark = pytest.mark.usefixtures("compiled_once")


def kinds(result):
    return [(comparison.step, comparison.kind) for comparison in result.stored]


def test_a_step_comes_to_the_same_bytes_and_nothing_is_written(trained):
    before = files(trained[0])
    result = rerun(trained[0], 10)
    assert files(trained[0]) == before
    assert result.stretch[:2] == (8, 12)
    assert {(12, "state"), (12, "parameters")} <= {*kinds(result)}
    assert result.logged == [9, 12]  # one of them with steps from before
    assert result.same, [*report(result)]
    assert "steps 9 to 12 come to the same bytes as in the run" in [*report(result)]


def test_one_bit_and_another_machine_are_named(trained, monkeypatch):
    read_state, names = differences.read_state, []

    def flipped(*arguments):
        """One bit of one number of an array of the optimizer is another."""
        state, progress = read_state(*arguments)
        names[:] = differences.named_arrays(state)
        leaves, structure = jax.tree.flatten(state)
        array = np.array(leaves[-4])
        array.view(np.uint32).reshape(-1)[-1] ^= 1
        leaves[-4] = array
        return jax.tree.unflatten(structure, leaves), progress

    monkeypatch.setattr(differences, "read_state", flipped)
    machine = reruns.describe_machine() | {"cores": 99}
    monkeypatch.setattr(reruns, "describe_machine", lambda: machine)
    result = rerun(trained[0], 12)
    assert not result.same
    (state,) = [stored.arrays for stored in result.stored if stored.kind == "state"]
    assert all(stored.arrays.same for stored in result.stored if stored.kind != "state")
    (different,) = state.differing
    assert (different.name, different.count) == (names[-4], 1)
    text = "\n".join(report(result))
    assert f"1 of {state.arrays} arrays differ; the first" in text
    assert f"{different.name} " in text
    assert "then, 99 now\n  XLA divides the sums" in text


def test_a_damaged_state_is_passed_over(trained, tmp_path, capsys):
    shutil.copytree(trained[0], tmp_path / "work")
    workdir = Workdir(tmp_path / "work")
    (workdir.checkpoints / "state/8/manifest.json").write_text("{}")
    assert plan_stretch(workdir, workdir.config(), 9, None).start == 0
    assert "starting further back" in capsys.readouterr().err


def test_steps_are_a_number_or_two():
    assert parse_steps("step", "600") == (600, None)
    assert parse_steps("step", "2-10") == (2, 10)


@pytest.mark.slow
def test_a_run_that_went_back_is_executed_again(poisoned, tmp_path):  # noqa: F811
    fields = {"max_skipped": 1, "rollbacks": 9, "save_every": 2, "steps": 14}
    config = config_for(poisoned, data={"test": ""}, train=fields)
    train(config, tmp_path / "work")
    moved = Rollbacks(Workdir(tmp_path / "work")).in_effect()
    assert moved
    result = rerun(tmp_path / "work", 1, 14)
    assert result.stretch.start == 0 < min(moved)  # it passes all of them
    assert (14, "state") in kinds(result)
    assert result.same, [*report(result)]
