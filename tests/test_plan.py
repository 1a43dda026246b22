"""The command `plan`: what it says, refuses and proposes."""

import json
import subprocess
import sys

import pytest

from t2t_jax import load_config
from t2t_jax.io.errors import UserError
from t2t_jax.tools.plan import command
from t2t_jax.tools.plan import forecast as plans
from t2t_jax.tools.plan.command import parse_mesh
from t2t_jax.tools.plan.forecast import has_tpu_compiler
from tests.small_run import ROOT

pytestmark = pytest.mark.usefixtures("eight_devices", "quick_compiler")

SMALL = {"layers": 1, "width": 64, "heads": 4, "hidden": 128, "dropout": 0.0}


@pytest.fixture(scope="module")
def told():
    return plans.plan(
        load_config("tiny", model=SMALL, mesh={"data": 4, "fsdp": 2}), "h100:8"
    )


def test_a_page_has_the_memory_the_collectives_and_the_time(told):
    page = command.page(told)
    assert page.endswith("It fits.")
    words = "P ", "O ", "T ", "all-gather over fsdp", "all-reduce", "tokens/s"
    assert [word for word in (*words, "3,000 tokens") if word not in page] == []
    assert json.loads(json.dumps(told)) == told
    separate = command.page(told | {"source_vocabulary": 500})
    assert "3,000 target and 500 source tokens" in separate
    assert told["dtype"] == "bfloat16"


def test_the_bar_is_as_long_as_the_memory(told):
    (bar,) = (line for line in command.memory_lines(told) if "[" in line)
    assert len(bar.split("[")[1].split("]")[0]) == 64
    needed = told["memory"]["needed"]
    half = told | {"memory": told["memory"] | {"chip": needed / 2}}
    (bar,) = (line for line in command.memory_lines(half) if "[" in line)
    inside, behind = bar.split("[")[1].split("]")[0].split("|")
    assert len(inside) == len(behind)
    assert "." not in bar.split("[")[1]


def test_a_refusal_has_the_numbers_and_the_flags(told):
    memory = told["memory"] | {"chip": told["memory"]["needed"] / 2}
    change = {"train.accumulate": 4, "model.remat": "full"}
    short = told | {"memory": memory, "fits": False}
    assert "take more or larger chips" in command.refusal(short)
    text = command.refusal(short | {"remedy": {"change": change, "forecast": told}})
    assert "--config.train.accumulate=4 --config.model.remat=full" in text


def test_a_picture_is_written(told, tmp_path):
    pytest.importorskip("matplotlib")
    command.picture(told, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes()[:4] == b"\x89PNG"


def test_meshes_are_read():
    assert parse_mesh("data:2,fsdp:4") == {"data": 2, "fsdp": 4, "tensor": 1}
    assert parse_mesh("fsdp:4")["data"] == -1
    for text, told in (("dat:2", "did you mean 'data'"), ("data:two", "data:2")):
        with pytest.raises(UserError, match=told):
            parse_mesh(text)


def test_what_is_no_slice_is_told_with_status_2(commands):
    done = commands("plan", "--slice=v5e:3x5")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "the nearest are v5e:4x4" in done.stderr


@pytest.mark.skipif(has_tpu_compiler(), reason="libtpu is installed")
def test_without_the_tpu_compiler_it_is_told_how_to_install_it():
    with pytest.raises(UserError, match=r"pip install -e '\.\[plan\]'"):
        plans.plan(load_config("tiny", model=SMALL), "v5e:2x2")


@pytest.mark.slow
@pytest.mark.skipif(not has_tpu_compiler(), reason="no libtpu: pip install '.[plan]'")
def test_a_tpus_compiler_divides_the_step():
    """In a process of its own: libtpu is loaded once."""
    flags = [f"--config.model.{name}={value}" for name, value in SMALL.items()]
    flags += ["--slice=v5e:2x2", "--mesh=data:2,fsdp:2", "--json"]
    words = [sys.executable, "-m", "t2t_jax", "plan", *flags]
    told = json.loads(subprocess.check_output(words, cwd=ROOT))
    memory = told["memory"]
    assert (told["dtype"], memory["by"]) == ("bfloat16", "the TPU's compiler")
    assert {"all-gather", "all-reduce"} <= {row["kind"] for row in told["collectives"]}
    assert 0 < memory["parts"]["temporary"] < memory["chip"]
