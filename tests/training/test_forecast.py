"""Memory and time of a step: forecasts, and the check of the largest batch."""

import re

import jax
import numpy as np
import pytest
from jax import monitoring

from t2t_jax import config as fields
from t2t_jax.config import Config, DataConfig, ModelConfig, TrainConfig, with_fields
from t2t_jax.costs import chips, memory_check, step_costs
from t2t_jax.data.shapes import Shape
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.batch_placement import place_batch
from t2t_jax.tools.plan import forecast
from t2t_jax.training.step import compile_steps

pytestmark = pytest.mark.usefixtures("eight_devices")

VOCAB = 512
CONFIG = Config(
    model=ModelConfig(layers=1, width=128, heads=4, hidden=512, dropout=0.0),
    data=DataConfig(batch_tokens=1024, row_length=64, vocab_size=VOCAB),
    train=TrainConfig(warmup=400),
)


def changed(config=CONFIG, **sections):
    for name, values in sections.items():
        config = fields.changed(config, name, **values)
    return config


@pytest.fixture(scope="module")
def forecasted():
    train = {"steps": 1000, "ema_decay": 0.9}
    config = changed(mesh={"data": 2, "fsdp": 4}, train=train)
    return forecast.forecast(config, chips.find_slice("h100:8"), jax.devices())


def test_a_forecast_adds_up(forecasted):
    memory, time = forecasted["memory"], forecasted["time"]
    parts = memory["parts"]
    assert forecasted["fits"]
    assert sum(parts.values()) == memory["needed"] < memory["chip"]
    state = ("parameters", "average", "optimizer", "batch")
    size = sum(parts[name] for name in state)
    assert size <= memory["arguments"] <= size + 64  # counters
    assert parts["average"] == parts["parameters"]
    assert parts["optimizer"] == pytest.approx(2 * parts["parameters"], rel=1e-3)
    assert max(time["compute"], time["memory"], time["links"]) == time["best"]
    assert time["best"] <= time["step"] <= 3 * time["best"]
    tokens = forecasted["batch"]["real_rows"] * 128
    assert time["tokens_per_second"] == pytest.approx(tokens / time["step"])
    assert time["chip_hours"] == pytest.approx(1000 * time["step"] / 3600 * 8)
    assert time["sent_bytes"] > 0


def test_remedies_are_mild_first_and_all_are_configs():
    large = changed(data={"batch_tokens": 25_000})
    suggestions = list(memory_check.changes(large, 8))
    assert suggestions[:3] == [{"train.accumulate": k} for k in (2, 4, 8)]
    assert suggestions[3:5] == [{"model.remat": remat} for remat in ("dots", "full")]
    assert suggestions[-1] == {"data.batch_tokens": 3125}
    assert all(with_fields(large, change) != large for change in suggestions)


def test_what_fits_by_the_estimate_is_compiled_and_told(forecasted):
    """With less memory than needed; what is compiled is only counted here."""
    needed = forecasted["memory"]["needed"]
    memory = forecasted["memory"] | {"chip": 0.8 * needed}
    short = forecasted | {"memory": memory, "fits": False}
    compiled = []

    def compile_one(config):
        compiled.append(config)
        return {"fits": len(compiled) == 2, "memory": {"needed": 0.9 * needed}}

    config = changed(data={"batch_tokens": 8192})
    change, forecast_found = memory_check.find_suggestion(
        config, short, compile_one
    ).values()
    assert forecast_found["fits"]
    assert len(compiled) == 2
    assert with_fields(config, change) == compiled[-1]
    no_memory = forecasted | {"memory": forecasted["memory"] | {"chip": 1.0}}
    assert memory_check.find_suggestion(config, no_memory, compile_one) is None
    assert len(compiled) == 2  # nothing that cannot fit is compiled


# ------------------------------------------------------------------ the largest batch

SHAPES = Shape(16, 8, 8), Shape(8, 24, 24), Shape(16, 12, 12)
SMALL = changed(
    Config(),
    model={"layers": 1, "width": 16, "heads": 2, "hidden": 16},
    data={"batch_tokens": 4_096},
)


@pytest.fixture
def steps():
    mesh = meshes.make_mesh(SMALL.mesh, jax.devices()[:1])
    return compile_steps(build(SMALL.model, 40), SMALL, mesh, 1)


@pytest.fixture
def compilations():
    """The times that each function was compiled, by name."""
    names = []

    def note(event, _, fun_name="", **fields):
        if event.endswith("backend_compile_duration"):
            names.append(fun_name)

    monitoring.register_event_duration_secs_listener(note)
    yield names
    monitoring.unregister_event_duration_listener(note)


def test_the_largest_is_not_compiled_again_when_it_comes(steps, compilations):
    state = jax.tree.map(
        lambda x: jax.device_put(np.zeros(x.shape, x.dtype), x.sharding), steps.shapes
    )
    memory_check.compile_largest_batch(steps, SMALL, SHAPES)
    assert compilations.count("jit(train)") == 1
    shapes = step_costs.batch_shapes(Shape(8, 24, 24), steps.mesh)
    batch = {name: np.ones(x.shape, x.dtype) for name, x in shapes.items()}
    steps.train(state, place_batch(steps.mesh, batch))
    assert compilations.count("jit(train)") == 1


def test_too_little_memory_is_told_with_what_to_change(steps, monkeypatch):
    class Device:
        platform = "gpu"

        def memory_stats(self):
            return {"bytes_limit": self.limit}

    def refuse(limit, check, *shapes):
        Device.limit = limit
        with pytest.raises(UserError, match="out of memory") as error:
            check(steps, SMALL, *shapes)
        return str(error.value)

    devices = property(lambda mesh: [Device()])
    monkeypatch.setattr(type(steps.mesh), "local_devices", devices)
    state = sum(step_costs.state_bytes(steps).values())
    message = refuse(9 * state, memory_check.compile_largest_batch, SHAPES)
    assert re.search(r"8 rows of 24 \+ 24 .*--config.*accumulate=2", message)
    # More microbatches do not make the state smaller.
    message = refuse(10_000, memory_check.check_state)
    assert message.endswith("Use a smaller model or devices with more memory")


def test_an_allocation_that_failed_is_explained_and_nothing_else():
    lacking = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nat x.py")
    message = str(memory_check.explain_out_of_memory(lacking, SMALL))
    assert "Out of memory. Try --config.train.accumulate=2" in message
    internal = jax.errors.JaxRuntimeError("INTERNAL: RESOURCES")
    for error in (internal, ValueError("RESOURCE_EXHAUSTED")):
        assert memory_check.explain_out_of_memory(error, SMALL) is None
