"""A forecast's arithmetic is XLA's, and its remedies are in order."""

import jax
import pytest

from t2t_jax import config as fields
from t2t_jax.config import Config, DataConfig, MeshConfig, ModelConfig, TrainConfig
from t2t_jax.costs import chips, memory_check, step_costs
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.tools.plan import forecast
from t2t_jax.training import cross_entropy
from t2t_jax.training.step import compile_steps

pytestmark = pytest.mark.usefixtures("eight_devices", "quick_compiler")

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


def compiled(config):
    mesh = meshes.make_mesh(config.mesh, jax.devices()[:1])
    model = build(config.model, VOCAB)
    steps = compile_steps(model, config, mesh, 1)
    shape, _ = step_costs.assumed_shape(config, mesh)
    batch = step_costs.batch_shapes(shape, mesh)
    return steps.train.lower(steps.shapes, batch).compile(), model, shape


def test_flops_are_those_that_xla_counts(monkeypatch):
    """XLA also counts additions, norms, softmax and Adam: some per cent more."""
    # Of a loop it counts one round.
    monkeypatch.setattr(cross_entropy, "CHUNK_TOKENS", 10**9)
    config = changed(model={"head_width": 16})  # heads narrower than the width
    step, made, shape = compiled(config)
    counted = step.cost_analysis()["flops"]
    ours = step_costs.step_flops(made, config, shape)["computed"]
    assert ours < counted < 1.06 * ours


def test_a_batch_is_made_for_the_devices_and_says_so():
    mesh = meshes.make_mesh(MeshConfig())
    shape, told = step_costs.assumed_shape(CONFIG, mesh)
    assert (shape.rows, shape.source, shape.target) == (16, 64, 64)
    assert "padding" not in told
    shape, told = step_costs.assumed_shape(changed(train={"accumulate": 3}), mesh)
    assert shape.rows == 24
    assert "8 of the 24 are padding" in told


def test_auto_is_bfloat16_where_the_chip_has_it():
    for name, dtype in (("v5e", "bfloat16"), ("t4", "float32"), ("h100", "bfloat16")):
        assert forecast.for_chip(CONFIG, chips.CHIPS[name]).model.dtype == dtype


@pytest.mark.parametrize(
    ("told", "gives"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.50G of "
            "15.75G hbm. Exceeded hbm capacity by 4.75G.",
            (20.5 * 2**30, False),
        ),
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, "
            "the total memory required for HLO temporaries (20.13G) exceeds available "
            "HBM (15.75G). HLO module: jit_f.",
            (20.13 * 2**30, True),
        ),
        ("INTERNAL: something else", None),
    ],
)
def test_a_compiler_that_gives_up_is_understood(told, gives):
    assert forecast._out_of_memory(told) == gives


@pytest.fixture(scope="module")
def told():
    train = {"steps": 1000, "ema_decay": 0.9}
    config = changed(mesh={"data": 2, "fsdp": 4}, train=train)
    return forecast.forecast(config, chips.find_slice("h100:8"), jax.devices())


def test_a_forecast_adds_up(told):
    memory, time = told["memory"], told["time"]
    parts = memory["parts"]
    assert told["fits"]
    assert sum(parts.values()) == memory["needed"] < memory["chip"]
    state = ("parameters", "average", "optimizer", "batch")
    ours = sum(parts[name] for name in state)
    assert ours <= memory["arguments"] <= ours + 64  # counters
    assert parts["average"] == parts["parameters"]
    assert parts["optimizer"] == pytest.approx(2 * parts["parameters"], rel=1e-3)
    assert max(time["compute"], time["memory"], time["links"]) == time["best"]
    assert time["best"] <= time["step"] <= 3 * time["best"]
    tokens = told["batch"]["real_rows"] * 128
    assert time["tokens_per_second"] == pytest.approx(tokens / time["step"])
    assert time["days"] * 86_400 == pytest.approx(1000 * time["step"])
    assert time["chip_hours"] == pytest.approx(time["days"] * 24 * 8)
    assert time["sent_bytes"] > 0


def test_remedies_are_mild_first_and_all_are_configs():
    found = list(memory_check.changes(changed(data={"batch_tokens": 25_000}), 8))
    assert found[:3] == [{"train.accumulate": k} for k in (2, 4, 8)]
    assert found[3:5] == [{"model.remat": how} for how in ("dots", "full")]
    assert found[-1] == {"data.batch_tokens": 3125}
    large = changed(data={"batch_tokens": 25_000})
    assert all(memory_check.apply_change(large, change) != large for change in found)


def test_what_fits_by_the_estimate_is_compiled_and_told(told):
    """With less memory than needed; what is compiled is only counted here."""
    needed = told["memory"]["needed"]
    memory = told["memory"] | {"chip": 0.8 * needed}
    short = told | {"memory": memory, "fits": False}
    compiled = []

    def one(config):
        compiled.append(config)
        return {"fits": len(compiled) == 2, "memory": {"needed": 0.9 * needed}}

    config = changed(data={"batch_tokens": 8192})
    change, found = memory_check.find_suggestion(config, short, one).values()
    assert found["fits"]
    assert len(compiled) == 2
    assert memory_check.apply_change(config, change) == compiled[-1]
    nothing = told | {"memory": told["memory"] | {"chip": 1.0}}
    assert memory_check.find_suggestion(config, nothing, one) is None
    assert len(compiled) == 2  # nothing that cannot fit is compiled
    assert (
        memory_check.as_flags({"train.accumulate": 2}) == "--config.train.accumulate=2"
    )
