"""What is saved comes back to the bit; what is kept is what was said."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from t2t_jax import load_config
from t2t_jax.commands.config_files import config_name
from t2t_jax.config import Config, ModelConfig, TrainConfig
from t2t_jax.data.feeding import Position
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.parallel import processes
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.training.averaging import (
    CheckpointChoice,
    average_checkpoints,
    choose_checkpoints,
    parameter_steps,
)
from t2t_jax.training.checkpoint import Checkpoints, RunProgress
from t2t_jax.training.checkpoint_folders import KINDS
from t2t_jax.training.step import compile_steps
from t2t_jax.workdir import Workdir
from tests.small_run import assert_same, parameters_of
from tests.test_golden import presets

CONFIG = Config(model=ModelConfig(layers=1, width=8, heads=2, hidden=8))
MODEL = build(CONFIG.model, 11)


@pytest.fixture(scope="module")
def steps():
    return compile_steps(MODEL, CONFIG, make_mesh(), bos=1)


def state_at(steps, step):
    state = steps.init()
    parameters = jax.tree.map(lambda x: x + step, state.parameters)
    return state._replace(parameters=parameters, step=jnp.int32(step))


def progress_at(step):
    rows = [{"step": float(step), "loss": 1 / 3, "gradient_norm": float("inf")}]
    return RunProgress(Position(step, 2 * step), seconds=step / 3, unread=rows)


def save(workdir, steps, numbers, keep=3, parameters=True):
    checkpoints = Checkpoints(Workdir(workdir), keep, 1)
    for n in numbers:
        checkpoints.save(state_at(steps, n), progress_at(n), parameters)
    checkpoints.close()


def test_writers_that_work_at_the_same_time_share_no_barrier(tmp_path, monkeypatch):
    """JAX refuses a barrier that is already ongoing, and the save would fail."""
    writer = mock.Mock()
    monkeypatch.setattr(ocp, "AsyncCheckpointer", writer)
    Checkpoints(Workdir(tmp_path), 1, 1)
    options = [c.kwargs["multiprocessing_options"] for c in writer.call_args_list]
    assert len({o.barrier_sync_key_prefix for o in options}) == len(KINDS)


def test_a_process_that_is_gone_is_no_mistake_of_the_user(tmp_path):
    """Status 2 of a UserError would keep a launcher from starting the job again."""
    checkpoints = Checkpoints(Workdir(tmp_path), 1, 1, shared=True)
    with (
        pytest.raises(jax.errors.JaxRuntimeError, match="heartbeat"),
        checkpoints._explained(3),
    ):
        raise jax.errors.JaxRuntimeError("Barrier failed: Task 1 heartbeat timeout")
    with (
        pytest.raises(UserError, match="step 3 could not be written to .*: full"),
        checkpoints._explained(3),
    ):
        raise OSError("full")
    checkpoints.close()


def test_a_state_comes_back_to_the_bit_where_it_lay(tmp_path, all_devices):
    config = dataclasses.replace(CONFIG, train=TrainConfig(ema_decay=0.9))
    steps = compile_steps(MODEL, config, make_mesh(devices=all_devices), bos=1)
    saved = state_at(steps, 5)
    saved = saved._replace(ema=jax.tree.map(lambda x: x + 1, saved.parameters))
    checkpoints = Checkpoints(Workdir(tmp_path), 3, 1)
    checkpoints.save(saved, progress_at(5))
    checkpoints.wait()
    state, progress = checkpoints.restore(steps.shapes)
    checkpoints.close()
    assert progress == progress_at(5)
    assert_same(state, saved)
    placed = processes.distribute(state, steps.shapes)  # what a run does with it
    assert_same(placed, state)
    shardings = jax.tree.map(lambda x: x.sharding, (placed, steps.shapes))
    assert shardings[0] == shardings[1]
    # The moving average is what is kept to translate with.
    assert_same(parameters_of(tmp_path, 5, MODEL.shapes), saved.ema)


def test_two_states_and_the_averaging_window_are_kept(tmp_path, steps):
    checkpoints = Checkpoints(Workdir(tmp_path), 3, 1)
    assert checkpoints.restore(steps.shapes) is None
    assert parameter_steps(tmp_path) == []
    checkpoints.close()
    save(tmp_path, steps, [1, 2, 3, 4])
    save(tmp_path, steps, [5], parameters=False)
    states = sorted(p.name for p in (tmp_path / "checkpoints/state").iterdir())
    assert states == ["4", "5"]
    assert parameter_steps(tmp_path) == [2, 3, 4]
    save(tmp_path, steps, [5])  # again, over what a killed run left
    assert parameter_steps(tmp_path) == [3, 4, 5]
    assert_same(parameters_of(tmp_path, 5, MODEL.shapes), state_at(steps, 5).parameters)


def test_the_best_few_are_kept_of_equals_the_earlier(tmp_path, steps):
    for step, bleu, best in (
        (10, 3.0, [10]),
        (20, 5.0, [10, 20]),
        (30, 5.0, [20, 30]),
        (70, 9.0, [20, 70]),
    ):
        checkpoints = Checkpoints(Workdir(tmp_path), 1, 2)  # as after each restart
        checkpoints.save_best(state_at(steps, step).parameters, step, bleu)
        checkpoints.close()
        assert parameter_steps(tmp_path, "best") == best
    save(tmp_path, steps, [80, 81], keep=1)
    assert parameter_steps(tmp_path, "best") == [20, 70]


def test_going_back_sets_aside_all_that_came_later(tmp_path, steps):
    checkpoints = Checkpoints(Workdir(tmp_path), 5, 5)
    for step in (2, 4, 6):
        checkpoints.save(state_at(steps, step), progress_at(step))
        checkpoints.save_best(state_at(steps, step).parameters, step + 1, step)
    state, reached = checkpoints.go_back(6, steps.shapes)
    checkpoints.close()
    assert_same(state, state_at(steps, 4))
    assert reached == progress_at(4)
    aside = sorted(p.name for p in (tmp_path / "checkpoints/set_aside").iterdir())
    assert aside == ["best-5", "best-7", "parameters-6", "state-6"]
    assert parameter_steps(tmp_path, "best") == [3]


def test_the_average_is_the_mean(tmp_path, steps):
    save(tmp_path, steps, [1, 2, 6])

    def choice(*numbers):
        folder = Workdir(tmp_path).checkpoints / "parameters"
        return CheckpointChoice([folder / str(n) for n in numbers], 3, exact=True)

    averaged, mean = average_checkpoints(choice(1, 2, 6), MODEL.shapes)
    assert averaged == [1, 2, 6]
    expected = state_at(steps, 3).parameters
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), mean, expected
    )
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(mean))
    assert_same(average_checkpoints(choice(6, 1, 2), MODEL.shapes)[1], mean)


def test_parameters_that_are_not_finite_are_refused_by_name(tmp_path, steps):
    state = state_at(steps, 4)
    tokens = state.parameters["embedding"]["tokens"].at[3, 1].set(np.nan)
    broken = state.parameters | {"embedding": {"tokens": tokens}}
    checkpoints = Checkpoints(Workdir(tmp_path), 5, 5)
    checkpoints.save(state._replace(parameters=broken), progress_at(4))
    checkpoints.save(state_at(steps, 5), progress_at(5))
    checkpoints.close()
    choice = choose_checkpoints(tmp_path, CONFIG, "average")
    with pytest.raises(UserError, match="of .*/4 are not finite: .*tokens'. has NaN"):
        average_checkpoints(choice, MODEL.shapes)


def test_a_checkpoint_that_is_not_there_or_does_not_fit_is_told(tmp_path, steps):
    save(tmp_path, steps, [1])
    with pytest.raises(UserError, match="has shape"):
        parameters_of(tmp_path, 1, build(CONFIG.model, 12).shapes)
    biased = build(dataclasses.replace(CONFIG.model, output_bias=True), 11).shapes
    message = "where this one has embedding.output_bias. Use the version"
    with pytest.raises(UserError, match=message):
        parameters_of(tmp_path, 1, biased)
    checkpoints = Checkpoints(Workdir(tmp_path), 3, 1)
    with pytest.raises(UserError, match=message):
        checkpoints.restore(steps.shapes._replace(parameters=biased))
    checkpoints.close()


def test_off_schedule_only_the_newest_is_kept_and_none_is_averaged(tmp_path, steps):
    config = dataclasses.replace(CONFIG, train=TrainConfig(save_every=10))

    def steps_of(*choices):
        return [choose_checkpoints(tmp_path, config, c).steps for c in choices]

    def saved(step):
        checkpoints = Checkpoints(Workdir(tmp_path), 2, 1, save_every=10)
        checkpoints.save(state_at(steps, step), progress_at(step))
        checkpoints.close()
        return parameter_steps(tmp_path)

    assert saved(3) == [3]
    assert steps_of("average", "last") == [[3], [3]]  # a short run can translate
    assert saved(7) == [7]
    assert saved(10) == [10]
    assert saved(20) == [10, 20]
    assert saved(23) == [10, 20, 23]
    assert saved(26) == [10, 20, 26]
    assert steps_of("average", "average:2", "last") == [[10, 20], [10, 20], [26]]
    assert parameter_steps(tmp_path, "state") == [10, 20, 26]
    assert saved(30) == [20, 30]
    assert parameter_steps(tmp_path, "state") == [20, 30]
    # Parameters of a life that was killed before it had saved their state: a later one
    # may end before them, by time.
    assert saved(25) == [20, 25]
    assert steps_of("average", "last") == [[20], [25]]


def test_saves_of_presets_come_to_the_end_of_training():
    names = {config_name(name): name for name in presets()}
    trains = {name: load_config(file).train for name, file in names.items()}
    assert [name for name, t in trains.items() if t.steps % t.save_every] == []
