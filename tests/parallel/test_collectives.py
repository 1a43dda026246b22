"""Collectives are found in HLO: in its three spellings of groups, loops and fusions."""

import dataclasses

import jax
import pytest

from t2t_jax.config import Config, DataConfig, MeshConfig, ModelConfig, TrainConfig
from t2t_jax.costs import step_costs
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.tools.plan import collectives
from t2t_jax.tools.plan.hlo import Program
from t2t_jax.training.step import compile_steps

pytestmark = pytest.mark.usefixtures("eight_devices")

MESH = {"data": 2, "fsdp": 2, "tensor": 2}


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,1,2,3,4,5,6,7}}", ("data", "fsdp", "tensor")),
        ("{{0,1},{2,3},{4,5},{6,7}}", ("tensor",)),
        ("[4,2]<=[8]", ("tensor",)),
        ("[2,4]<=[4,2]T(1,0)", ("data", "fsdp")),
        ("mesh['axis_0'=2,'axis_1'=2,'axis_2'=2] {'axis_1'}", ("fsdp",)),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", ("data", "fsdp")),
        ("{}", ("data", "fsdp", "tensor")),
    ],
)
def test_groups_of_devices_are_axes_of_the_mesh(groups, axes):
    hlo = (
        "ENTRY %main (p: f32[4]) -> f32[4] {\n"
        f"  %r = f32[4]{{0}} all-reduce(%p), replica_groups={groups}, channel=1\n}}\n"
    )
    (operations,) = collectives.parse_collectives(Program(hlo), MESH)
    assert operations.axes == axes
    assert operations.devices == 2 ** len(axes)


FUSED = """
%all-reduce-scatter.1 (i: bf16[8,4]) -> bf16[4,4] {
  %all-reduce.1 = bf16[8,4]{1,0} all-reduce(%i), replica_groups={{0,1}}
}

%start (p: bf16[4]) -> (bf16[4], bf16[8]) {
  %all-gather.1 = bf16[8]{0:T(8,128)} all-gather(%p), replica_groups={{0,1}}
}

%async_collective_fusion.1 (p: bf16[4]) -> (bf16[4], bf16[8]) {
  %all-gather.2 = bf16[8]{0} all-gather(%p), replica_groups={{0,1}}
}

%end (p: bf16[4]) -> bf16[8] {
  %all-gather.3 = bf16[8]{0} all-gather(%p), replica_groups={{0,1}}
}

ENTRY %main (p: bf16[8,4]) -> bf16[4,4] {
  %f = bf16[4,4]{1,0} fusion(%p), calls=%all-reduce-scatter.1, metadata={op_name="dot"}
  %async-collective-start = (bf16[4], bf16[8]) fusion(%q), kind=kCustom, calls=%start
  %product = (bf16[4], bf16[8]) fusion(%q), calls=%async_collective_fusion.1
  %async-collective-done = bf16[8] fusion(%product), kind=kCustom, calls=%end
  %g = (f32[4]{0}, f32[8]{0}) all-gather-start(%p), replica_groups={{0,1}}
  %h = f32[8]{0} all-gather-done(%g)
  %c = s32[]{:T(128)} copy(%p)
}
"""


def test_a_tpus_fusions_are_one_operation_each():
    operations = collectives.parse_collectives(
        Program(FUSED), {"data": 1, "fsdp": 2, "tensor": 1}
    )
    listed = [
        (operation.kind, operation.bytes, operation.name) for operation in operations
    ]
    assert listed == [
        ("reduce-scatter", 2 * 8 * 4, "dot"),
        ("all-gather", 2 * 8, ""),
        ("all-gather", 4 * 8, ""),
    ]
    assert [operation.sent for operation in operations] == [32, 8, 16]


@pytest.mark.parametrize(
    "trips", [', backend_config={"known_trip_count":{"n":"6"}}', ""]
)
def test_what_is_in_a_loop_counts_as_often_as_it_runs(trips):
    hlo = (
        "%body (p: f32[4]) -> f32[4] {\n"
        "  %r = f32[4]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add\n}\n\n"
        "%under (p: s32[]) -> pred[] {\n  %n = s32[]{:T(128)} constant(6)\n}\n\n"
        "ENTRY %main (p: f32[4]) -> f32[4] {\n"
        f"  %w = f32[4] while(%p), condition=%under, body=%body{trips}\n}}\n"
    )
    (operations,) = collectives.parse_collectives(
        Program(hlo), {"data": 2, "fsdp": 1, "tensor": 1}
    )
    assert operations.times == 6
    assert operations.sent == 6 * 16


CONFIG = Config(
    model=ModelConfig(layers=1, width=64, heads=4, hidden=128, dropout=0.0),
    data=DataConfig(batch_tokens=512, row_length=16),
    train=TrainConfig(warmup=400),
)


def step_on(mesh):
    """The collectives of a real step on eight devices, and its state's shapes."""
    config = dataclasses.replace(CONFIG, mesh=MeshConfig(**mesh))
    mesh = meshes.make_mesh(config.mesh)
    steps = compile_steps(build(config.model, 96), config, mesh, bos=1)
    shape, _ = step_costs.assumed_shape(config, mesh)
    batch = step_costs.batch_shapes(shape, mesh)
    hlo = steps.train.lower(steps.shapes, batch).compile().as_text()
    return collectives.parse_collectives(Program(hlo), dict(mesh.shape)), steps.shapes


def rows_of(operations, reason):
    shapes = {x.shape for x in jax.tree.leaves(build(CONFIG.model, 96).shapes)}
    rows = collectives.table(operations, 16, shapes)
    return [row for row in rows if row["why"] == reason]


def test_data_parallel_steps_sum_each_gradient_once():
    operations, state = step_on({"data": 8})
    assert {operation.kind for operation in operations} == {"all-reduce"}
    assert {operation.axes for operation in operations} == {("data",)}
    (gradients,) = rows_of(operations, collectives.GRADIENTS)
    size = sum(x.size * 4 for x in jax.tree.leaves(state.parameters))
    # The embedding's once for all of its uses; and with them sums of the loss.
    assert 0 <= gradients["bytes"] - size <= 64
    assert gradients["sent"] == pytest.approx(2 * 7 / 8 * gradients["bytes"])


def test_fsdp_gathers_every_weight_and_tensor_sums_products():
    operations, state = step_on({"data": 2, "fsdp": 2, "tensor": 2})
    assert {("fsdp",), ("tensor",)} <= {operation.axes for operation in operations}
    (weights,) = rows_of(operations, collectives.WEIGHTS)
    divided = [
        x for x in jax.tree.leaves(state.parameters) if "fsdp" in str(x.sharding.spec)
    ]
    assert weights["count"] >= len(divided)
    (partial,) = rows_of(operations, collectives.PARTIAL)
    # The products after attention and feed-forward, and as many backward.
    assert partial["count"] >= 2 + 3
    # No activation is gathered, and logits stay where they are.
    assert not rows_of(operations, collectives.ACTIVATIONS)
    # The gradients of the table's three uses are summed once, and each device gets the
    # part that it keeps.
    vocab, width = 96 // 2, 64
    (summed,) = [
        operation for operation in operations if operation.kind == "reduce-scatter"
    ]
    assert summed.arrays == (("f32", (2, vocab, width // 2)),)
    full_table = ("f32", (vocab, width))
    assert not any(full_table in x.arrays for x in operations if x.kind == "all-reduce")
