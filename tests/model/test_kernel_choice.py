"""A kernel is chosen by the device compiled for, and by a mask known in tracing."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t2t_jax.config import ModelConfig
from t2t_jax.model import attention, kernels
from t2t_jax.model.attention import KV, NO_POSITION
from t2t_jax.model.layers import Dropout, DropoutRng
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes


@pytest.mark.parametrize("remat", ["none", "dots", "full"])
def test_layers_that_are_recomputed_know_that_their_mask_is_causal(remat, monkeypatch):
    """As a traced array it would hide the decoder's kernel."""
    causal = []

    def record(q_bthk, kv, mask, position, drop):
        causal.append(mask.causal)

    monkeypatch.setattr(attention, "kernel_for", record)
    model = build(ModelConfig(layers=1, width=8, heads=2, hidden=8, remat=remat), 20)
    tokens_bt = jnp.ones((2, 4), jnp.int32)
    position_bt = jnp.broadcast_to(jnp.arange(4), (2, 4))
    batch = {
        side + what: array
        for side in ("source", "target")
        for what, array in (
            *(("", tokens_bt), ("_input", tokens_bt)),
            *(("_segment", tokens_bt), ("_position", position_bt)),
        )
    }

    def loss(parameters):
        rng = DropoutRng(jax.random.key(0), jnp.arange(2))
        return nnx.merge(model.definition, parameters).outputs(batch, rng).sum()

    jax.eval_shape(jax.grad(loss), model.shapes)
    assert {*causal} == {False, True}
    assert all(isinstance(each, bool) for each in causal)


def test_the_device_is_that_of_the_mesh_compiled_for(eight_devices):
    here = jax.devices()
    assert here[0] is not here[-1]
    mesh = meshes.make_mesh(devices=here[-1:])
    assert meshes.target_device() is here[0]
    with meshes.targeting(mesh):
        assert meshes.target_device() is here[-1]
    with meshes.compiling_for(mesh):
        assert meshes.target_device() is here[-1]
    assert meshes.target_device() is here[0]
    assert np.size(mesh.devices) == 1


def test_kernels_can_be_disabled_while_a_function_is_traced(monkeypatch):
    monkeypatch.setattr(kernels, "_flash_supports", lambda *_: True)
    tpu = SimpleNamespace(platform="tpu")
    monkeypatch.setattr(meshes, "target_device", lambda: tpu)
    q_bthk, at = jnp.zeros((1, 128, 1, 8)), Tokens(*jnp.ones((2, 1, 128), jnp.int32))
    arguments = (
        q_bthk,
        KV(q_bthk, q_bthk),
        Mask(at, at),
        NO_POSITION,
        Dropout(0.1, None),
    )
    with kernels.disabled():
        assert kernels.kernel_for(*arguments) is None
    assert kernels.kernel_for(*arguments) is kernels.flash
