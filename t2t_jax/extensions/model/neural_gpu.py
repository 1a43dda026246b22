"""The Extended Neural GPU (Kaiser and Bengio 2016, "Can Active Memory Replace
Attention?").

A memory of several rows for each token is changed by convolutional gated recurrent
units, as often as there are tokens. The decoder also reads a tape, onto which each
output is written; here it begins with BOS, where the paper's is empty.

Shape suffixes: b batch, n hypotheses, s source, t target, c columns of the memory,
r its rows, d width, e the same of what a kernel makes, k taps, g gates.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.extensions.model.parts import States, gathered, tokens_at_step
from t2t_jax.model.architecture import (
    NORM_FIELDS,
    POSITION_FIELDS,
    TRANSFORMER_FIELDS,
    Architecture,
)
from t2t_jax.model.attention import NO_POSITION
from t2t_jax.model.embedding import Embedding
from t2t_jax.model.layers import (
    constant,
    dropout,
    dropout_rngs,
    named,
    rematerialized,
)
from t2t_jax.model.mask import Tokens
from t2t_jax.parallel.mesh import constrain
from t2t_jax.sections import field


def new_kernel(rng: Array, width: int, *gates: int) -> nnx.Param:
    """A 3x3 kernel [3, 3, d, *gates, d], Glorot-uniform for each gate."""
    init = jax.nn.initializers.glorot_uniform((0, 1, 2), -1, range(3, 3 + len(gates)))
    value = init(rng, (3, 3, width, *gates, width), jnp.float32)
    named = ["gates"] * len(gates)
    return nnx.Param(value, axes=("kernel", "kernel", "width", *named, "hidden"))


def column_kernel(kernel: Array, rows: int) -> Array:
    """Returns a 3x3 kernel as one along columns, from every row to every row.

    The convolution is then one matrix product of 3 columns, which is quicker on a CPU
    than `lax.conv_general_dilated`, whose gradient is very slow there.

    Args:
      kernel: [3, 3, d, ..., e].

    Returns:
      [k, r, d, r, ..., e]: from a row to a row.
    """
    tap = np.arange(rows)[:, None] - np.arange(rows) + 1
    near = ((tap >= 0) & (tap <= 2)).reshape(rows, rows, *[1] * (kernel.ndim - 1))
    row_kernels = jnp.where(near, kernel[np.clip(tap, 0, 2)], 0.0)
    return jnp.moveaxis(row_kernels, (2, 0, 3, 1), (0, 1, 2, 3))


# For the gradient, windows are made again: they are 3 times what they are made from.
@jax.checkpoint
def convolved(x_bcrd: Array, kernel: Array) -> Array:
    """Returns the convolution of the memory, zeros outside: [b, c, r, ..., e]."""
    columns = x_bcrd.shape[1]
    x_bcrd = jnp.pad(x_bcrd, ((0, 0), (1, 1), (0, 0), (0, 0)))
    x_bckrd = jnp.stack([x_bcrd[:, i : i + columns] for i in range(3)], axis=2)
    return jnp.einsum("bckrd,krd...->bc...", x_bckrd, kernel)


class Weights(NamedTuple):
    """A unit's weights in the compute dtype, as column kernels."""

    gates: Array
    gates_bias: Array
    candidate: Array
    candidate_bias: Array
    tape: Array | None

    def __call__(self, x_bcrd: Array, inside_bc: Array, tape: Array | None = None):
        """Returns the memory after one unit, zero outside."""
        x_bcrge = convolved(x_bcrd, self.gates) + self.gates_bias
        if tape is not None:
            x_bcrge += tape[..., :2, :]
        gates_bcrge = jax.nn.sigmoid(x_bcrge)
        update, reset = gates_bcrge[..., 0, :], gates_bcrge[..., 1, :]
        new_bcrd = convolved(reset * x_bcrd, self.candidate) + self.candidate_bias
        if tape is not None:
            new_bcrd += tape[..., 2, :]
        x_bcrd = update * x_bcrd + (1 - update) * jnp.tanh(new_bcrd)
        x_bcrd = constrain(x_bcrd, "batch", "length", "length", "features")
        return jnp.where(inside_bc[..., None, None], x_bcrd, 0.0)


class Unit(nnx.Module):
    """A convolutional gated recurrent unit, with or without a tape."""

    def __init__(self, config: ModelConfig, rng: Array, *, tape: bool):
        self.gates = new_kernel(named(rng, "gates"), config.width, 2)
        # At first the gates are open, so that the memory is kept.
        self.gates_bias = constant(1.0, {"gates": 2, "hidden": config.width})
        self.candidate = new_kernel(named(rng, "candidate"), config.width)
        self.candidate_bias = constant(0.0, {"hidden": config.width})
        if tape:
            self.tape = new_kernel(named(rng, "tape"), config.width, 3)

    def weights(self, rows: int, dtype: jnp.dtype) -> Weights:
        unit, tape = gathered(self), None
        if hasattr(unit, "tape"):  # which is in row 0
            tape = column_kernel(unit.tape[...].astype(dtype), rows)[:, 0]
        return Weights(
            column_kernel(unit.gates[...].astype(dtype), rows),
            unit.gates_bias[...].astype(dtype),
            column_kernel(unit.candidate[...].astype(dtype), rows),
            unit.candidate_bias[...].astype(dtype),
            tape,
        )


class EncodedMemory(NamedTuple):
    """The memory after the encoder, and the number of tokens of each source."""

    x_bcrd: Array
    tokens_b: Array


class DecoderMemory(NamedTuple):
    """The state of the decoder."""

    x_bcrd: Array  # the active memory
    # For each unit, the convolution of what is on the tape, [b, c + 2, r, 3, d]: it is
    # linear, so each token adds to the columns around its own. A column more at either
    # end takes what would stand outside.
    tapes: list[Array]

    @classmethod
    def initial(cls, x_bcrd: Array, columns: int, units: int) -> "DecoderMemory":
        """The state before the first output: the encoder's memory, an empty tape."""
        missing = columns - x_bcrd.shape[1]
        x_bcrd = jnp.pad(x_bcrd, ((0, 0), (0, missing), (0, 0), (0, 0)))
        b, c, r, d = x_bcrd.shape
        return cls(x_bcrd, [jnp.zeros((b, c + 2, r, 3, d), x_bcrd.dtype)] * units)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MemoryStates(States):
    """`DecoderMemory` of hypotheses, with a column for each source token and step."""

    def grown(self, room: int) -> "MemoryStates":
        """Returns the state with columns for up to `room` steps."""
        new_columns = max(0, room - self.arrays.x_bcrd.shape[2])

        def grow(x: Array) -> Array:
            return jnp.pad(
                x, [(0, new_columns * (axis == 2)) for axis in range(x.ndim)]
            )

        arrays = jax.tree.map(grow, self.arrays)
        return dataclasses.replace(self, arrays=arrays)


class NeuralGPU(Architecture):
    """Active memory instead of attention."""

    packs = False  # the whole memory is one sentence's
    unused = TRANSFORMER_FIELDS | POSITION_FIELDS | NORM_FIELDS

    @dataclasses.dataclass(frozen=True)
    class Options:
        """The memory."""

        # Its rows: the paper's w, 4 there.
        neural_gpu_rows: int = field(2, low=1)

    def __init__(self, config, vocab_size, rng, source_vocab_size=None):
        self.config = config
        self.rows = config.own_options(NeuralGPU).neural_gpu_rows
        self.embedding = Embedding(
            config, vocab_size, named(rng, "embedding"), source_vocab_size
        )

        def units(side: str, tape: bool) -> nnx.List:
            rngs = [named(rng, side, i) for i in range(config.side(side).layers)]
            return nnx.List([Unit(config, rng, tape=tape) for rng in rngs])

        self.encoder = units("encoder", tape=False)
        self.decoder = units("decoder", tape=True)

    def encode(self, source_bs, at, rng=None) -> EncodedMemory:
        """Applies the encoder's units as often as each source has tokens."""
        embedding_rng, memory_rng = dropout_rngs(rng, 2)
        x_bsd = self.embedding.source(source_bs, at, NO_POSITION, embedding_rng)
        inside_bs = at.segment > 0
        tokens_b = inside_bs.sum(1)
        units = [unit.weights(self.rows, x_bsd.dtype) for unit in self.encoder]

        def step(x_bcrd, i):
            new_bcrd = x_bcrd
            for unit in units:
                new_bcrd = unit(new_bcrd, inside_bs)
            going_b = (i < tokens_b)[:, None, None, None]
            return jnp.where(going_b, new_bcrd, x_bcrd), None

        x_bsd = jnp.where(inside_bs[..., None], x_bsd, 0.0)
        pad_widths = (0, 0), (0, 0), (0, self.rows - 1), (0, 0)
        x_bcrd, _ = jax.lax.scan(
            rematerialized(step, self.config, rng),
            jnp.pad(x_bsd[:, :, None], pad_widths),
            jnp.arange(source_bs.shape[1]),
        )
        return EncodedMemory(dropout(x_bcrd, self.config.dropout, memory_rng), tokens_b)

    def outputs(self, batch, rng=None, trace=None):
        """Returns row 0 of the memory, [b, t, d]; arguments as for `Architecture`."""
        source_rng, embedding_rng = dropout_rngs(rng, 2)
        source_at, at = (Tokens.of(batch, side) for side in ("source", "target"))
        source = self.encode(batch["source"], source_at, source_rng)
        y_btd = self.embedding.target(
            batch["target_input"], at, NO_POSITION, embedding_rng
        )
        units = [unit.weights(self.rows, y_btd.dtype) for unit in self.decoder]
        step = partial(decoder_step, units, source.tokens_b)
        s, t = batch["source"].shape[1], y_btd.shape[1]
        _, x_tbd = jax.lax.scan(
            rematerialized(step, self.config, rng),
            DecoderMemory.initial(source.x_bcrd, max(s, t), len(units)),
            (jnp.arange(t), tape_writes(units, y_btd.swapaxes(0, 1))),
        )
        return constrain(x_tbd.swapaxes(0, 1), "batch", "length", "features")

    def initial_cache(self, memory, beams, room) -> MemoryStates:
        """Returns the encoder's memory for each hypothesis, and an empty tape."""
        columns = max(room, memory.x_bcrd.shape[1])
        state = DecoderMemory.initial(memory.x_bcrd, columns, len(self.decoder))
        return MemoryStates(
            jax.tree.map(lambda x: jnp.repeat(x[:, None], beams, axis=1), state)
        )

    def step(self, memory, cache, token_bn, position):
        """Runs one decoding step; arguments and results as for `Architecture`."""
        b, n = token_bn.shape
        at = tokens_at_step(token_bn, position)
        y_bnd = self.embedding.target(token_bn, at, NO_POSITION, None)
        units = [unit.weights(self.rows, y_bnd.dtype) for unit in self.decoder]
        # Each hypothesis is a row of its own.
        state, x_bd = decoder_step(
            units,
            jnp.repeat(memory.tokens_b, n),
            jax.tree.map(lambda x: x.reshape(b * n, *x.shape[2:]), cache.arrays),
            (position, tape_writes(units, y_bnd.reshape(b * n, -1))),
        )
        arrays = jax.tree.map(lambda x: x.reshape(b, n, *x.shape[1:]), state)
        return x_bd.reshape(b, n, -1), dataclasses.replace(cache, arrays=arrays)


def tape_writes(units: list[Weights], y_btd: Array) -> list[Array]:
    """Returns what tokens [..., d] on the tape add to its convolution, for each unit.

    Returns:
      [..., k, r, 3, d]: at the columns before, of and after each token.
    """
    # The column before a token has it at its last tap.
    return [jnp.einsum("...d,kdrge->...krge", y_btd, u.tape[::-1]) for u in units]


def decoder_step(units: list[Weights], tokens_b: Array, memory: DecoderMemory, token):
    """Writes one token onto the tape, and applies all units.

    Args:
      tokens_b: of the source.
      token: its position, and what `tape_writes` says of it.

    Returns:
      The memory, and its output, [b, d].
    """
    position, writes = token
    columns = memory.x_bcrd.shape[1]
    inside_bc = jnp.arange(columns) < jnp.maximum(tokens_b, position + 1)[:, None]
    x_bcrd, tapes = memory.x_bcrd, []
    for unit, tape, new in zip(units, memory.tapes, writes, strict=True):
        near = jax.lax.dynamic_slice_in_dim(tape, position, 3, axis=1) + new
        tape = jax.lax.dynamic_update_slice_in_dim(tape, near, position, axis=1)
        x_bcrd = unit(x_bcrd, inside_bc, tape[:, 1:-1])
        tapes.append(tape)
    row_bcd = x_bcrd[:, :, 0]
    output_bd = jax.lax.dynamic_index_in_dim(row_bcd, position, 1, keepdims=False)
    return DecoderMemory(x_bcrd, tapes), output_bd
