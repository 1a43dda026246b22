"""Embeddings of source and target, and the output layer (section 3.4).

Shape suffixes: b batch, t length, d model width, v vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import (
    DropoutRng,
    add_rows,
    compute_dtype,
    constant,
    dropout,
    named,
    rows,
)
from t2t_jax.model.mask import Tokens
from t2t_jax.model.positions import Position
from t2t_jax.model.products import Collected, Weight, factor
from t2t_jax.parallel.mesh import batch_shards, constrain, sum_over_batch


class Embedding(nnx.Module):
    """The matrices of both sides and of the output layer (section 3.4).

    One in the paper: source and target share a vocabulary, and the vector of a token
    is also that of its logit. `config.tied` makes them two or three.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rng: Array,
        source_vocab_size: int | None = None,
    ):
        if source_vocab_size not in (None, vocab_size) and config.tied == "all":
            raise UserError(
                f"the vocabularies have {source_vocab_size} source and {vocab_size} "
                "target tokens, which cannot share one matrix; choose "
                "config.model.tied='target' or 'none'"
            )
        self.config = config
        # These names are part of the checkpoint format.
        self.tokens = self._matrix(vocab_size, named(rng, "tokens"))
        if config.tied != "all":
            self.source_tokens = self._matrix(
                source_vocab_size or vocab_size, named(rng, "source_tokens")
            )
        if config.tied == "none":
            self.output = self._matrix(vocab_size, named(rng, "output"))
        if config.output_bias:
            self.output_bias = constant(0.0, {"vocab": vocab_size})

    def _matrix(self, vocab_size: int, rng: Array) -> nnx.Param:
        width = self.config.width
        # Vectors of length 1, so that logits begin with variance 1; inputs are scaled.
        table_vd = width**-0.5 * jax.random.normal(rng, (vocab_size, width))
        return nnx.Param(table_vd, axes=("vocab", "width"), summed=(1,))

    def matrices(self) -> list[nnx.Param]:
        """The tables [v, d]."""
        names = ("tokens", "source_tokens", "output")
        return [getattr(self, name) for name in names if hasattr(self, name)]

    def source(
        self, tokens_bt: Array, at: Tokens, position: Position, rng: DropoutRng | None
    ) -> Array:
        """Embeds source tokens, [b, t, d]; arguments as for `target`."""
        matrix = self.source_tokens if hasattr(self, "source_tokens") else self.tokens
        return self._embed(matrix, tokens_bt, at, position, rng, tokens_bt.shape[1])

    def target(
        self,
        tokens_bt: Array,
        at: Tokens,
        position: Position,
        rng: DropoutRng | None,
        limit: int | None = None,
    ) -> Array:
        """Embeds target tokens, [b, t, d]; positions are below `limit`, or below t."""
        limit = tokens_bt.shape[1] if limit is None else limit
        return self._embed(self.tokens, tokens_bt, at, position, rng, limit)

    def _embed(self, matrix, tokens_bt, at, position, rng, limit: int) -> Array:
        config = self.config
        x_btd = look_up(matrix[...], tokens_bt)
        if config.embedding_scale:
            # Section 3.4: as large as the sinusoids that are added.
            x_btd *= config.width**0.5
        x_btd = position.embed(x_btd, at, limit)
        x_btd = constrain(x_btd, "batch", "length", "features")
        return dropout(x_btd.astype(compute_dtype(config)), config.dropout, rng)

    def output_layer(self) -> tuple[Weight, Array | None]:
        """Returns the matrix [v, d] and the bias [v] of the logits, float32."""
        matrix = self.output if hasattr(self, "output") else self.tokens
        bias = self.output_bias[...] if hasattr(self, "output_bias") else None
        return factor(matrix), bias


def look_up(table_vd: Weight, tokens_bt: Array) -> Array:
    """Rows of a table, [b, t, d]."""
    if isinstance(table_vd, Collected):
        return _look_up(table_vd, tokens_bt)
    # FSDP divides the rows of the table along d. They are gathered here, since XLA
    # could otherwise divide the embeddings along d as well.
    table_vd = constrain(table_vd, "vocab", "features")
    return rows(table_vd, tokens_bt)


@jax.custom_vjp
def _look_up(table_vd: Collected, tokens_bt: Array) -> Array:
    return look_up(table_vd.weight, tokens_bt)


def _forward(table_vd, tokens_bt):
    return _look_up(table_vd, tokens_bt), (table_vd.slot, tokens_bt)


def _backward(saved, x_btd):
    slot_gvd, tokens_bt = saved
    g, _, d = slot_gvd.shape
    tokens_gr, x_grd = tokens_bt.reshape(g, -1), x_btd.reshape(g, -1, d)
    # A map, so that XLA leaves each device its part of [g].
    sums_gvd = jax.vmap(add_rows)(slot_gvd, tokens_gr, x_grd.astype(slot_gvd.dtype))
    return Collected(None, sums_gvd), None


_look_up.defvjp(_forward, _backward)


def collected(module: nnx.Module) -> nnx.Module:
    """Replaces tables by `Collected` if several devices share the batch.

    Three uses of one table then cost one sum across devices.
    """
    if batch_shards() > 1:
        for _, node in nnx.iter_graph(module):
            if isinstance(node, Embedding):
                for matrix in node.matrices():
                    table_vd = matrix[...]
                    matrix.set_value(Collected(table_vd, _slot(table_vd)))
    return module


@jax.custom_vjp
def _slot(table_vd: Array) -> Array:
    zeros_gvd = jnp.zeros((batch_shards(), *table_vd.shape), table_vd.dtype)
    return constrain(zeros_gvd, "batch", "vocab", "features")


_slot.defvjp(
    lambda table_vd: (_slot(table_vd), None),
    lambda _, sums_gvd: (sum_over_batch(sums_gvd),),
)
