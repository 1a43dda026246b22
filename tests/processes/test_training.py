"""Several processes train as one does, stop together, and go on as any number does."""

import functools
import json
import signal

import jax
import numpy as np
import pytest

from t2t_jax import train
from t2t_jax.config import from_config_dict
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.model.model import build
from t2t_jax.parallel import processes
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.training import loop
from t2t_jax.training.checkpoint import Checkpoints
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.training.step import compile_steps
from t2t_jax.workdir import Workdir
from tests.compiler import quick_environment
from tests.faults.processes import flags, outcome
from tests.processes.group import PLAIN, SLOWLY, Group, ours
from tests.small_run import config_for, final_parameters

pytestmark = pytest.mark.usefixtures("eight_devices")


def losses(workdir):
    """Of every step that is told."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    entries = [entry for entry in map(json.loads, lines) if entry["kind"] == "train"]
    assert [e["step"] for e in entries] == [*range(1, len(entries) + 1)]
    return np.array([entry["loss"] for entry in entries])


def assert_near(found, wanted):
    assert len(found) == len(wanted) == PLAIN["train"]["steps"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def states(workdir):
    return sealed_steps(Workdir(workdir).checkpoints / "state")


@pytest.fixture(scope="session")
def alone(text, processes_cache, tmp_path_factory):
    """A run of one process with one device."""
    folder = tmp_path_factory.mktemp("alone")
    one = Group(processes_cache, folder / "logs")
    command = flags(text, folder / "work", **PLAIN)
    one.start(*command, devices=1, **quick_environment())
    try:
        assert one.end() == [0], one.said()
    finally:
        one.kill()
    return folder / "work"


@pytest.fixture(scope="session")
def together(text, processes_cache, tmp_path_factory):
    """A run of two processes with two devices each, and what they said; the second
    was told of a workdir that cannot be."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "file").touch()
    places = folder / "work", folder / "file" / "elsewhere"
    two = Group(processes_cache, folder / "logs")
    for place, they in zip(places, ours(2), strict=True):
        two.start(*they, *flags(text, place, **PLAIN), **quick_environment())
    try:
        assert two.end() == [0, 0], two.said()
    finally:
        two.kill()
    return folder / "work", [two.err(i) for i in range(2)]


def test_two_processes_train_as_one_and_only_the_first_writes_and_talks(
    alone, together
):
    workdir, told = together
    assert_near(losses(workdir), losses(alone))
    assert states(workdir) == states(alone) == [15, 20]
    assert " on 4 cpu" in told[0]
    assert "mesh        data 4 x fsdp 1 x tensor 1" in told[0]
    assert "finished: 20 of 20 steps are trained" in told[0]
    assert told[1] == ""
    assert {file.name for file in workdir.parent.iterdir()} == {"work", "file", "logs"}


@pytest.mark.slow
def test_weights_that_are_divided_among_processes_train_as_whole_ones(
    alone, text, group, tmp_path
):
    command = [*flags(text, tmp_path / "work", **PLAIN), "--config.mesh.fsdp=2"]
    two = group(2, *command)
    assert two.end() == [0, 0], two.said()
    assert "mesh        data 2 x fsdp 2 x tensor 1" in two.err()
    assert_near(losses(tmp_path / "work"), losses(alone))
    assert two.err(1) == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 0])
def test_sigterm_to_one_stops_all_after_the_same_step(text, group, tmp_path, number):
    workdir = tmp_path / "work"
    command = flags(text, workdir, **PLAIN)
    two = group(2, *command, patch=SLOWLY).until("step 3/20")
    two.send(signal.SIGTERM, number)
    assert two.end(30) == [143, 143], two.said()
    step = states(workdir)[-1]
    assert 3 <= step < 20
    assert two.err().endswith(
        f"SIGTERM: stopped after step {step}, which is saved; run the same "
        "command again to continue\n"
    )
    others = [line for line in two.err(1).splitlines() if "preemption" not in line]
    assert others == []
    assert not (workdir / ".lock").exists()

    again = group(2, *command)
    assert again.end() == [0, 0], again.said()
    assert f"continuing after step {step}" in again.err()

    # To the last bit: so with the programs that users have, which `together` has not.
    whole = group(2, *flags(text, tmp_path / "whole", **PLAIN))
    assert whole.end() == [0, 0], whole.said()
    assert outcome(workdir) == outcome(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("before", ["two processes", "one process"])
def test_a_run_goes_on_with_another_number_of_devices(
    together, text, group, tmp_path, monkeypatch, before, devices
):
    """Stopped after 10 of 20 steps; its state arrives to the last bit."""
    workdir, config = tmp_path / "work", config_for(text, **PLAIN)
    half = PLAIN | {"train": PLAIN["train"] | {"steps": 10}}
    if before == "two processes":
        two = group(2, *flags(text, workdir, **half))
        assert two.end() == [0, 0], two.said()
    else:
        train(config_for(text, **half), workdir)
    assert states(workdir)[-1] == 10

    mesh = functools.partial(make_mesh, devices=jax.devices()[:devices])
    vocabulary = Vocabulary.load(workdir / "tokenizer.model")
    typed = from_config_dict(config)
    model = build(typed.model, len(vocabulary))
    steps = compile_steps(model, typed, mesh(typed.mesh), vocabulary.bos)
    checkpoints = Checkpoints(Workdir(workdir), 2, 0)
    saved, _ = checkpoints.restore(steps.shapes, typed.train.save_every)
    checkpoints.close()
    placed = processes.distribute(saved, steps.shapes)
    for x, y in zip(*map(jax.tree.leaves, (saved, placed)), strict=True):
        assert len(y.sharding.device_set) == devices
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert x.tobytes() == np.asarray(y).tobytes()
    alone = final_parameters(workdir, text)
    for x, y in zip(*map(jax.tree.leaves, (saved.parameters, alone)), strict=True):
        assert x.tobytes() == np.asarray(y).tobytes()

    monkeypatch.setattr(loop.meshes, "make_mesh", mesh)
    train(config, workdir)
    assert_near(losses(workdir), losses(together[0]))


@pytest.mark.slow
def test_a_run_goes_from_two_processes_to_one_and_to_three(
    together, text, group, tmp_path
):
    workdir = tmp_path / "work"

    for before, n, devices in (
        (0, 2, 4),
        (5, 1, 1),
        (10, 3, 1),  # into which its rows do not divide
        (15, 1, 8),
    ):
        fields = PLAIN["train"] | {"steps": before + 5}
        command = flags(text, workdir, **PLAIN | {"train": fields})
        some = group(n, *command, devices=devices)
        assert some.end() == [0] * n, some.said()
        assert (f"continuing after step {before}\n" in some.err()) == (before > 0)
    assert_near(losses(workdir), losses(together[0]))
