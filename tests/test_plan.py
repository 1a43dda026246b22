"""The command `plan`: what it says, refuses and proposes."""

import json
import subprocess
import sys

import pytest

from t2t_jax import load_config
from t2t_jax.costs.chips import CHIPS, find_slice
from t2t_jax.tools.plan import command
from t2t_jax.tools.plan import forecast as plans
from t2t_jax.tools.plan.command import parse_mesh
from t2t_jax.tools.plan.compilers import cuda_plugin, description, has_tpu_compiler
from tests.small_run import ROOT

pytestmark = pytest.mark.usefixtures("eight_devices")

SMALL = {"layers": 1, "width": 64, "heads": 4, "hidden": 128, "dropout": 0.0}


@pytest.fixture(scope="module")
def forecast():
    return plans.plan(
        load_config("tiny", model=SMALL, mesh={"data": 4, "fsdp": 2}), "h100:8"
    )


def test_a_page_has_the_memory_the_collectives_and_the_time(forecast):
    page = command.plan_text(forecast)
    assert page.endswith("It fits.")
    words = "P ", "O ", "T ", "all-gather over fsdp", "all-reduce", "tokens/s"
    assert [word for word in (*words, "3,000 tokens") if word not in page] == []
    assert json.loads(json.dumps(forecast)) == forecast
    assert "minutes; config.train.save_minutes" in page
    # Two machines are not one domain of NVLink.
    assert "nodes" not in page
    two = find_slice("h100:16")
    assert (two.nodes, two.interconnect()) == (2, CHIPS["h100"].network)
    page = command.plan_text(forecast | {"nodes": two.nodes})
    assert "; 2 nodes of 8, linked at 50 GB/s a chip" in page


def test_a_refusal_has_the_numbers_and_the_flags(forecast):
    memory = forecast["memory"] | {"chip": forecast["memory"]["needed"] / 2}
    change = {"train.accumulate": 4, "model.remat": "full"}
    remedy = {"change": change, "forecast": forecast}
    text = command.refusal(
        forecast | {"memory": memory, "fits": False, "remedy": remedy}
    )
    assert "--config.train.accumulate=4 --config.model.remat=full" in text


def test_a_gpu_is_described_by_its_numbers():
    """Those that XLA's own descriptions of the same GPUs have."""
    lines = description("a100-80", CHIPS["a100-80"]).splitlines()
    fields = dict(line.strip().split(": ") for line in lines if line.count(": ") == 1)
    assert fields["core_count"] == "108"
    assert fields["shared_memory_per_block_optin"] == "166912"
    assert fields["l2_cache_size"] == str(40 * 2**20)
    assert fields["device_memory_size"] == "80000000000"
    for name, chip in CHIPS.items():
        if chip.nvidia:
            assert "minor: " in description(name, chip)


def test_meshes_are_read():
    assert parse_mesh("data:2,fsdp:4") == {"data": 2, "fsdp": 4, "tensor": 1}
    assert parse_mesh("fsdp:4")["data"] == -1


COMPILERS = [
    pytest.param(
        *("v5e:2x2", "TPU"),
        marks=pytest.mark.skipif(not has_tpu_compiler(), reason="no libtpu: '.[plan]'"),
    ),
    pytest.param(
        *("a100-40:4", "GPU"),
        marks=pytest.mark.skipif(not cuda_plugin(), reason="no plugin: '.[cuda13]'"),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("slice", "kind"), COMPILERS)
def test_a_chips_own_compiler_divides_the_step(slice, kind):
    """In a process of its own: libtpu is loaded once."""
    flags = [f"--config.model.{name}={value}" for name, value in SMALL.items()]
    flags += [f"--slice={slice}", "--mesh=data:2,fsdp:2", "--json"]
    words = [sys.executable, "-m", "t2t_jax", "plan", *flags]
    forecast = json.loads(subprocess.check_output(words, cwd=ROOT))
    memory = forecast["memory"]
    assert (forecast["dtype"], memory["by"]) == ("bfloat16", f"the {kind}'s compiler")
    assert {"all-gather", "all-reduce"} <= {
        row["kind"] for row in forecast["collectives"]
    }
    assert 0 < memory["parts"]["temporary"] < memory["chip"]
