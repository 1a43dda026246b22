"""The largest batch is compiled once, first, and tells of memory that is not there."""

import re

import jax
import numpy as np
import pytest
from jax import monitoring

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.costs import memory_check, step_costs
from t2t_jax.costs.step_costs import batch_shapes
from t2t_jax.data.shapes import Shape
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.step import compile_steps

pytestmark = pytest.mark.usefixtures("quick_compiler")

SHAPES = Shape(16, 8, 8), Shape(8, 24, 24), Shape(16, 12, 12)


@pytest.fixture(scope="module")
def config():
    sizes = {"layers": 1, "width": 16, "heads": 2, "hidden": 16}
    config = fields.changed(Config(), "model", **sizes)
    return fields.changed(config, "data", batch_tokens=4_096)


@pytest.fixture
def steps(config):
    mesh = meshes.make_mesh(config.mesh, jax.devices()[:1])
    return compile_steps(build(config.model, 40), config, mesh, 1)


@pytest.fixture
def compiled():
    """The times that each function was compiled, by name."""
    names = []

    def note(event, _, fun_name="", **more):
        if event.endswith("backend_compile_duration"):
            names.append(fun_name)

    monitoring.register_event_duration_secs_listener(note)
    yield names
    monitoring.unregister_event_duration_listener(note)


def batch_of(steps, shape):
    given = batch_shapes(shape, steps.mesh)
    ones = {name: np.ones(x.shape, x.dtype) for name, x in given.items()}
    return meshes.place_batch(steps.mesh, ones)


def test_the_largest_is_not_compiled_again_when_it_comes(steps, config, compiled):
    state = jax.tree.map(
        lambda x: jax.device_put(np.zeros(x.shape, x.dtype), x.sharding), steps.shapes
    )
    memory_check.compile_largest_batch(steps, config, SHAPES)
    assert compiled.count("jit(train)") == 1
    steps.train(state, batch_of(steps, Shape(8, 24, 24)))
    assert compiled.count("jit(train)") == 1


def test_too_little_memory_is_told_with_what_to_change(steps, config, monkeypatch):
    class Small:
        platform = "gpu"

        def memory_stats(self):
            return {"bytes_limit": self.limit}

    def refuse(limit, check, *shapes):
        Small.limit = limit
        with pytest.raises(UserError, match="out of memory") as error:
            check(steps, config, *shapes)
        return str(error.value)

    devices = property(lambda mesh: [Small()])
    monkeypatch.setattr(type(steps.mesh), "local_devices", devices)
    state = sum(step_costs.state_bytes(steps).values())
    told = refuse(9 * state, memory_check.compile_largest_batch, SHAPES)
    assert re.search(r"8 rows of 24 \+ 24 .*--config.*accumulate=2", told)
    # More microbatches do not make the state smaller.
    for check, *shapes in (
        (memory_check.compile_largest_batch, SHAPES),
        (memory_check.check_state,),
    ):
        assert refuse(10_000, check, *shapes).endswith(
            "Use a smaller model or devices with more memory"
        )


def test_an_allocation_that_failed_is_explained_and_nothing_else(config):
    lacking = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nat x.py")
    told = str(memory_check.explain_out_of_memory(lacking, config))
    assert "Out of memory. Try --config.train.accumulate=2" in told
    other = jax.errors.JaxRuntimeError("INTERNAL: RESOURCES")
    for error in (other, ValueError("RESOURCE_EXHAUSTED")):
        assert memory_check.explain_out_of_memory(error, config) is None
