"""Kernels of compiled programs: found, counted, and told with the lines behind them."""

# ruff: noqa: E501
import dataclasses
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from t2t_jax.costs.chips import CHIPS
from t2t_jax.model.feed_forward import relu
from t2t_jax.tools.plan.command import kernel_lines
from t2t_jax.tools.plan.compilers import cuda_plugin
from t2t_jax.tools.plan.hlo import Program, arrays, size
from t2t_jax.tools.plan.kernels import kernels, stops, summary
from tests.small_run import ROOT

HLO = """HloModule jit_train, is_scheduled=true

FileNames
1 "/home/me/t2t_jax/model/products.py"
2 "/home/me/t2t_jax/model/feed_forward.py"
3 "/home/me/site-packages/optax/update.py"
4 "/home/me/t2t_jax/training/step.py"

FunctionNames
1 "product"
2 "FeedForward.__call__"
3 "apply_updates"
4 "train_step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=20 end_line=20 column=1 end_column=2}
2 {file_name_id=2 function_name_id=2 line=30 end_line=30 column=1 end_column=2}
3 {file_name_id=3 function_name_id=3 line=9 end_line=9 column=1 end_column=2}
4 {file_name_id=4 function_name_id=4 line=99 end_line=99 column=1 end_column=2}

StackFrames
1 {file_location_id=4 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=1 parent_frame_id=3}
4 {file_location_id=3 parent_frame_id=2}


%fused_product (p: bf16[1000,64], q: bf16[64,32]) -> bf16[1000,32] {
  %p = bf16[1000,64]{1,0} parameter(0)
  %q = bf16[64,32]{1,0} parameter(1)
  ROOT %d = bf16[1000,32]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(train)/btd,df->btf/dot_general" stack_frame_id=3}
}

%fused_store (p: f32[8,1000], at: s32[]) -> f32[8,1000] {
  %p.1 = f32[8,1000]{1,0} parameter(0)
  %at = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,1000]{1,0} dynamic-slice(%p.1, %at, %zero), dynamic_slice_sizes={1,1000}
  %more = f32[1,1000]{1,0} add(%row, %row)
  ROOT %store = f32[8,1000]{1,0} dynamic-update-slice(%p.1, %more, %at, %zero)
}

%fused_copy (p: f32[1000]) -> bf16[1000] {
  %p.2 = f32[1000]{0} parameter(0)
  ROOT %c = bf16[1000]{0} convert(%p.2)
}

%body (s: (s32[], f32[8,1000])) -> (s32[], f32[8,1000]) {
  %s = (s32[], f32[8,1000]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[8,1000]{1,0} get-tuple-element(%s), index=1
  %stored = f32[8,1000]{1,0} fusion(%x, %i), kind=kLoop, calls=%fused_store, metadata={op_name="add" stack_frame_id=4}
  ROOT %t = (s32[], f32[8,1000]{1,0}) tuple(%i, %stored)
}

%under (s: (s32[], f32[8,1000])) -> pred[] {
  %s.1 = (s32[], f32[8,1000]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %five = s32[] constant(5)
  ROOT %less = pred[] compare(%i.1, %five), direction=LT
}

%short (a: f32[4]) -> f32[4] {
  ROOT %a = f32[4]{0} parameter(0)
}

%long (b: f32[4]) -> f32[4] {
  %b = f32[4]{0} parameter(0)
  ROOT %twice = f32[4]{0} add(%b, %b), metadata={op_name="twice"}
}

ENTRY %main (w: bf16[64,32], x: bf16[1000,64]) -> bf16[1000,32] {
  %x.1 = bf16[1000,64]{1,0} parameter(0)
  %w = bf16[64,32]{1,0} parameter(1)
  %state = (s32[], f32[8,1000]{1,0}) parameter(2)
  %v = f32[1000]{0} parameter(3)
  %flag = pred[] parameter(4)
  %f = f32[4]{0} parameter(5)
  %loop = (s32[], f32[8,1000]{1,0}) while(%state), condition=%under, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %cast = bf16[1000]{0} fusion(%v), kind=kLoop, calls=%fused_copy, metadata={op_name="convert" stack_frame_id=2}
  %either = f32[4]{0} conditional(%flag, %f, %f), branch_computations={%short, %long}
  ROOT %y = bf16[1000,32]{1,0} fusion(%x.1, %w), kind=kCustom, calls=%fused_product, metadata={op_name="last" stack_frame_id=4}
}
"""


def test_kernels_are_told_with_their_cost_and_their_line():
    chip = CHIPS["h100"]
    program = Program(HLO)
    by_place = {(k.part, k.line): k for k in kernels(program, chip)}
    product = by_place["feed-forward", "model/feed_forward.py:30"]
    assert product.flops == 2 * 1000 * 64 * 32
    assert product.bytes == 2 * (1000 * 64 + 64 * 32 + 1000 * 32)
    stored = by_place["update", "training/step.py:99"]
    assert (stored.times, stored.bytes) == (
        5,
        2 * 4000 + 4,
    )  # a row, in place; its number
    assert by_place["copies", "model/feed_forward.py:30"].bytes == 4000 + 2000
    assert by_place["other", ""].name == "twice"  # the longer branch
    assert len(by_place) == 4
    assert stops(program) == 1
    for kernel in by_place.values():
        assert (kernel.seconds, kernel.bound) == (2e-6, "launch")
    page = "\n".join(kernel_lines(summary(program, chip)))
    assert "8 a step" in page
    assert "model/feed_forward.py:30" in page


def test_a_loop_may_be_what_counts():
    figures = summary(Program(HLO), CHIPS["h100"], "body")
    assert (figures["count"], figures["stops"]) == (1, 1)
    assert figures["outside"]["count"] == 2  # the product and the copy


def test_a_tpu_has_cycles_and_an_unknown_one_a_roofline():
    estimate = 'calls=%fused_copy, backend_config={"estimated_cycles":"3000"}'
    program = Program(HLO.replace("calls=%fused_copy", estimate))
    seconds = []
    for chip in (CHIPS["v5e"], dataclasses.replace(CHIPS["v5e"], clock=0.0)):
        (copy,) = [k for k in kernels(program, chip) if k.part == "copies"]
        seconds.append((copy.seconds, copy.bound))
    with_clock, without_clock = seconds
    assert with_clock == (pytest.approx(2e-6, rel=0.01), "compiler")  # at 1.5 GHz
    assert without_clock == (pytest.approx(6000 / 819e9 / 0.667), "memory")


def test_sizes_of_types():
    types = "(f8e4m3fn[3], bf16[2,4]{1,0}, pred[8], token[], s4[2], f32[])"
    assert [*map(size, arrays(types))] == [3, 16, 8, 0, 1, 4]


def test_xlas_own_text_is_read():
    def model(x):
        return jnp.tanh(relu(x) @ x)

    program = Program(jax.jit(model).lower(jnp.ones((3, 3))).compile().as_text())
    instructions = [
        instruction
        for body in program.computations.values()
        for instruction in body.values()
    ]
    (dot,) = [instruction for instruction in instructions if instruction.kind == "dot"]
    assert dot.arrays == [("f32", (3, 3))]
    assert {frame.function.rpartition(".")[2] for frame in program.frames(dot)} >= {
        "model"
    }
    files = {
        frame.file
        for instruction in instructions
        for frame in program.frames(instruction)
    }
    assert any(file.endswith("model/feed_forward.py") for file in files)


@pytest.mark.slow
@pytest.mark.skipif(not cuda_plugin(), reason="needs JAX's CUDA plugin")
@pytest.mark.parametrize(
    ("program", "attention"),
    [("step", "fused"), ("step", "sentences"), ("search", "fused")],
)
def test_a_gpus_program_stops_for_nothing_and_copies_no_cache(program, attention):
    """base, with a layer on each side, on an H200; also without a GPU."""
    command = [sys.executable, "-m", "t2t_jax", "plan", "--config=base", "--json"]
    command += ["--slice=h200:1", "--kernels", f"--program={program}"]
    command += ["--config.model.layers=1", "--noremedy"]
    command += [f"--config.model.attention={attention}"]
    command += ["--ideas=benchmarks/ideas/sentences.py"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    figures = json.loads(run.stdout)["kernels"]
    assert figures["stops"] == (program == "search")
    cache = 512 * 8 * 4 * 64 * 64 * 2  # bytes
    for row in figures["largest"]:
        scores = "192,8,128,128" in row["result"] and "fmha" not in row["kind"]
        copied = row["part"] == "copies" and row["bytes"] / row["count"] >= cache
        assert not scores, row
        assert not copied, row
        assert attention == "fused" or "Bias" not in row["kind"], row
    counts = {"step": 323 if attention == "fused" else 366, "search": 51}
    if jax.__version__ != "0.11.2":
        pytest.skip(f"JAX {jax.__version__}: kernels are counted with 0.11.2")
    assert figures["count"] <= counts[program]
