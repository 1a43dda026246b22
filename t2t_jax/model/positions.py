"""Position schemes: how attention learns the order of the tokens (section 3.5).

A scheme overrides what it changes: the embeddings (`embed`), the queries and keys of
self-attention (`rotate`), its scores (`scores`) or its weighted sums (`values`).
Cross-attention has no scheme, since source and target positions do not correspond.

Shape suffixes: b batch, t queries, s keys, d model width, h heads, k head width,
p positions or distances.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import named, rows
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.parallel.mesh import constrain
from t2t_jax.sections import field


class Position(nnx.Module):
    """The scheme without positions, and the base class of all schemes.

    Attributes:
      per_layer: True if each layer has a scheme of its own; else the layers of a stack
        (encoder or decoder) share one.
      constant_scores: True if `scores` depends on distances alone. cuDNN's kernel gives
        no gradient to what is added to the scores.
      Options: None, or a frozen dataclass of the scheme's hyperparameters.
    """

    per_layer = False
    constant_scores = False
    Options: type | None = None

    def __init__(self, config: ModelConfig, causal: bool, rng: Array):
        """Creates the scheme of a stack or of one of its layers.

        Args:
          config: `config.model`, with the sizes of the stack. A scheme's options are
            `config.own_options(Scheme)`.
          causal: True for a decoder, whose keys never come after the query.
          rng: for initial weights.
        """

    @property
    def longest(self) -> int | None:
        """The number of positions that exist; None if there is no limit."""
        return None

    def embed(self, x_btd: Array, at: Tokens, limit: int) -> Array:
        """Returns the embeddings with their positions, which replace `x_btd`.

        Args:
          x_btd: float32, multiplied by the root of the width already (section 3.4);
            dropout follows.
          limit: a static number above all positions: the tokens of a row, or in
            decoding the steps that the cache has room for.
        """
        return x_btd

    def rotate(self, x_bthk: Array, at: Tokens) -> Array:
        """Returns the queries or keys that replace `x_bthk`, in its dtype."""
        return x_bthk

    def scores(self, q_bthk: Array, mask: Mask) -> Array | None:
        """Returns what is added to the scores, float32, or None.

        Args:
          q_bthk: the queries divided by the root of the head width, as for the scores.

        Returns:
          [b or 1, h or 1, t, s].
        """
        return None

    def values(self, weights_bhts: Array, mask: Mask) -> Array | None:
        """Returns what is added to the weighted sums of values, [b, t, h, k], or None.

        It is linear in the weights, so that blocks of keys may be added up.
        """
        return None

    @classmethod
    def overrides(cls, method: str) -> bool:
        """True if the scheme has its own `scores` or `values`."""
        return getattr(cls, method) is not getattr(Position, method)


def sinusoids(
    length: int, width: int, layout: str = "interleaved", spacing: str = "paper"
) -> np.ndarray:
    """Returns the paper's table: sin at 2i, cos at 2i+1 of pos / 10000^(2i / width).

    Args:
      layout: "half" has all sines before all cosines.
      spacing: of the wavelengths from 2 pi to 10000 * 2 pi. "paper" excludes the last
        one, as the formula does; "tensor2tensor" includes it (width / 2 - 1 steps).

    Returns:
      float32 [length, width], computed in float64.
    """
    positions = np.arange(length)[:, None]
    steps = width / 2 if spacing == "paper" else max(1, width / 2 - 1)
    angles = positions / 10000 ** (np.arange(width // 2) / steps)
    table = np.empty((length, width), np.float32)
    half = width // 2
    sin, cos = (
        (slice(0, None, 2), slice(1, None, 2))
        if layout == "interleaved"
        else (slice(0, half), slice(half, None))
    )
    table[:, sin] = np.sin(angles)
    table[:, cos] = np.cos(angles)
    return table


class Sinusoid(Position):
    """Adds sinusoids to the embeddings (section 3.5)."""

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Published checkpoints differ in these.

        Attributes:
          sinusoid_layout, sinusoid_spacing: as for `sinusoids`.
          position_offset: the number of the first position.
        """

        sinusoid_layout: str = field("interleaved", ("interleaved", "half"))
        sinusoid_spacing: str = field("paper", ("paper", "tensor2tensor"))
        position_offset: int = field(0, low=0)

    def __init__(self, config: ModelConfig, causal: bool, rng: Array):
        if config.width % 2:
            raise UserError(
                f"config.model.width={config.width} is odd; sinusoidal positions come "
                "in pairs of sine and cosine, so choose an even width"
            )
        self.options = config.own_options(Sinusoid)

    def embed(self, x_btd: Array, at: Tokens, limit: int) -> Array:
        options = self.options
        table_pd = sinusoids(
            limit + options.position_offset,
            x_btd.shape[-1],
            options.sinusoid_layout,
            options.sinusoid_spacing,
        )
        return x_btd + jnp.asarray(table_pd[options.position_offset :])[at.position]


class Learned(Position):
    """Adds a learned vector for each position (Table 3, row E; Gehring et al. 2017)."""

    @dataclasses.dataclass(frozen=True)
    class Options:
        """`position_offset`: rows of the table before that of the first position."""

        position_offset: int = field(0, low=0)

    def __init__(self, config: ModelConfig, causal: bool, rng: Array):
        self.config = config
        self.offset = config.own_options(Learned).position_offset
        shape = (config.max_positions + self.offset, config.width)
        table_pd = config.width**-0.5 * jax.random.normal(rng, shape)
        self.table = nnx.Param(table_pd, axes=("positions", "width"))

    @property
    def longest(self) -> int | None:
        return self.config.max_positions

    def embed(self, x_btd: Array, at: Tokens, limit: int) -> Array:
        if limit > self.config.max_positions:
            # A model may have learned positions whatever `positions` says.
            hint = ""
            if self.config.positions == "learned":
                hint = ", or use config.model.positions='sinusoid'"
            raise UserError(
                f"a row of {limit} tokens, but config.model.max_positions="
                f"{self.config.max_positions}; there are no learned positions beyond "
                f"it: shorten the rows or raise it{hint}"
            )
        # Gathered along d first, as the embeddings are.
        table_pd = constrain(self.table[...], "positions", "features")
        return x_btd + rows(table_pd, at.position + self.offset)


class Rotary(Position):
    """Rotates pairs of features of queries and keys by angles (Su et al. 2021).

    The product of a query and a key then depends on their distance only.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """`rotary_base`: pair i turns by base^(-2i / head width) a position."""

        rotary_base: float = field(10_000.0, low=1)

    def __init__(self, config: ModelConfig, causal: bool, rng: Array):
        if config.width_of_head % 2:
            raise UserError(
                f"config.model.positions='rotary' turns pairs of features, but the "
                f"head width is {config.width_of_head}; want an even "
                "config.model.head_width"
            )
        self.base = config.own_options(Rotary).rotary_base

    def rotate(self, x_bthk: Array, at: Tokens) -> Array:
        k = x_bthk.shape[-1]
        angle_bt1k = at.position[:, :, None, None] * jnp.asarray(
            self.base ** (-np.arange(0, k, 2) / k), jnp.float32
        )
        # float32: bfloat16 cannot represent the angles of far positions.
        x = x_bthk.astype(jnp.float32)
        turned = _turned(x, jnp.cos(angle_bt1k), jnp.sin(angle_bt1k))
        return turned.astype(x_bthk.dtype)


@jax.custom_vjp
def _turned(x: Array, cos: Array, sin: Array) -> Array:
    """Rotates pairs of neighbouring features of [b, t, h, k]; angles [b, t, 1, k/2]."""
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    turned = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(x.shape)


def _turned_back(angles: tuple[Array, Array], grad: Array) -> tuple[Array, ...]:
    """The transpose of a rotation turns back. (XLA would pad and add, on a CPU.)"""
    cos, sin = angles
    return _turned(grad, cos, -sin), jnp.zeros_like(cos), jnp.zeros_like(sin)


_turned.defvjp(lambda x, cos, sin: (_turned(x, cos, sin), (cos, sin)), _turned_back)


class Relative(Position):
    """Adds a learned vector of the distance to keys and values (Shaw et al. 2018)."""

    per_layer = True

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Hyperparameters of section 3.2 of Shaw et al.

        Attributes:
          relative_clip: farther tokens share the vector of this distance.
          relative_values: also adds vectors to the values.
        """

        relative_clip: int = field(16, low=1)
        relative_values: bool = field(True)

    def __init__(self, config: ModelConfig, causal: bool, rng: Array):
        options = config.own_options(Relative)
        self.clip, self.with_values = options.relative_clip, options.relative_values
        self.key = self._table(named(rng, "key"), config.width_of_head)
        if self.with_values:
            self.value = self._table(named(rng, "value"), config.width_of_value)

    def _table(self, rng: Array, width: int) -> nnx.Param:
        table_pk = width**-0.5 * jax.random.normal(rng, (2 * self.clip + 1, width))
        return nnx.Param(table_pk, axes=("positions", "head"))

    def _vectors(self, table: nnx.Param, mask: Mask, dtype) -> tuple[Array, str]:
        """The vector of each query and key, [b, t, s, k] or [t, s, k], and its axes."""
        index_bts = jnp.clip(mask.distance(), -self.clip, self.clip) + self.clip
        vectors_btsk = table[...].astype(dtype)[index_bts]
        # If all rows have the same positions, one product serves them all.
        if vectors_btsk.shape[0] == 1:
            return vectors_btsk[0], "tsk"
        return vectors_btsk, "btsk"

    def scores(self, q_bthk: Array, mask: Mask) -> Array:
        vectors, axes = self._vectors(self.key, mask, q_bthk.dtype)
        scores_bhts = jnp.einsum(f"bthk,{axes}->bhts", q_bthk, vectors)
        return scores_bhts.astype(jnp.float32)

    def values(self, weights_bhts: Array, mask: Mask) -> Array | None:
        if not self.with_values:
            return None
        vectors, axes = self._vectors(self.value, mask, weights_bhts.dtype)
        return jnp.einsum(f"bhts,{axes}->bthk", weights_bhts, vectors)


class T5(Position):
    """Adds a learned number for the bucket of the distance (Raffel et al. 2020).

    Half of the buckets hold one distance each; the others grow logarithmically up to
    `t5_distance`, beyond which all distances share the last one.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """The number of buckets, and the distance from which on they are the same."""

        t5_buckets: int = field(32, low=4)
        t5_distance: int = field(128, low=2)

    def __init__(self, config: ModelConfig, causal: bool, rng: Array):
        options = config.own_options(T5)
        self.causal = causal
        self.buckets, self.farthest = options.t5_buckets, options.t5_distance
        if self.farthest <= (self.buckets if causal else self.buckets // 2) // 2:
            raise UserError(
                f"config.model.options.t5_distance={self.farthest} is too small for "
                f"config.model.options.t5_buckets={self.buckets}; want more than half "
                "of the buckets"
            )
        table_ph = config.width**-0.5 * jax.random.normal(
            rng, (self.buckets, config.heads)
        )
        self.table = nnx.Param(table_ph, axes=("positions", "heads"))

    def bucket(self, distance: Array) -> Array:
        """Returns the bucket of each distance (key minus query)."""
        count, offset = self.buckets, 0
        if not self.causal:  # half of the buckets for keys after the query
            count //= 2
            offset = jnp.where(distance > 0, count, 0)
            span = jnp.abs(distance)
        else:
            span = jnp.maximum(-distance, 0)
        # A constant table: logarithms of devices differ where a bucket begins.
        exact = count // 2
        span_p = np.arange(self.farthest + 1)
        log_p = np.log(np.maximum(span_p, exact) / exact) / np.log(
            self.farthest / exact
        )
        # float32 rounds the errors of float64 away, which would end below an integer.
        large_p = exact + (log_p * (count - exact)).astype(np.float32).astype(int)
        bucket_p = np.where(span_p < exact, span_p, np.minimum(large_p, count - 1))
        return offset + jnp.asarray(bucket_p)[jnp.minimum(span, self.farthest)]

    def scores(self, q_bthk: Array, mask: Mask) -> Array:
        bias_btsh = self.table[...][self.bucket(mask.distance())]
        return jnp.moveaxis(bias_btsh, 3, 1)


class ALiBi(Position):
    """Lowers the scores in proportion to the distance (Press et al. 2022).

    Head i of n has the slope 2^(-8 i / n), i from 1. In an encoder, keys before and
    after the query are treated alike.
    """

    constant_scores = True

    def __init__(self, config: ModelConfig, causal: bool, rng: Array):
        self.heads = config.heads

    def scores(self, q_bthk: Array, mask: Mask) -> Array:
        slope_h = 2.0 ** (-8.0 * np.arange(1, self.heads + 1) / self.heads)
        far_bts = jnp.abs(mask.distance()).astype(jnp.float32)
        return -jnp.asarray(slope_h, jnp.float32)[:, None, None] * far_bts[:, None]


# A scheme is a subclass of `Position` and a line here.
POSITIONS = {
    "sinusoid": Sinusoid,
    "learned": Learned,
    "none": Position,
    "rotary": Rotary,
    "relative": Relative,
    "t5": T5,
    "alibi": ALiBi,
}


def stack_positions(config: ModelConfig, causal: bool, rng: Array) -> list[Position]:
    """Creates the schemes of a stack: one for each layer, or one for all."""
    scheme = config.variant("positions")
    count = config.layers if scheme.per_layer else 1
    return [scheme(config, causal, named(rng, i)) for i in range(count)]
