"""Variants of the paper's model a second time, in float64, from the papers' formulas.

They complete `Twin`, which has the paper's own. Whoever has the model's dropout masks
can give them to `logits`, in the model's order.

Shape suffixes: b batch, s source (keys), t target (queries), d model width, h heads,
k head width, f feed-forward width, v vocabulary.
"""

import math
from fractions import Fraction

import jax
import numpy as np
import scipy

from t2t_jax.tools.verify.references.twin import (
    Side,
    Twin,
    float64,
    layer_norm,
    numpy_of,
    positional_encoding,
)

# What the options are if a config does not say: the values of their papers.
OPTIONS = {
    "bytenet_extra": 0,
    "bytenet_kernel": 3,
    "bytenet_set": 5,
    "bytenet_unfold": 1.2,
    "conv_kernel": 3,
    "lstm_form": "gnmt",
    "neighbourhood": 32,
    "neural_gpu_rows": 2,
    "pooling": "mean",
    "position_offset": 0,
    "relative_clip": 16,
    "relative_values": True,
    "rotary_base": 10_000,
    "sinusoid_layout": "interleaved",
    "sinusoid_spacing": "paper",
    "t5_buckets": 32,
    "t5_distance": 128,
}
KINDS = "transformer", "encoder_only", "decoder_only", "classifier"


def option(config, name: str):
    return config.options.get(name, OPTIONS[name])


def tables(config, embedding) -> tuple:
    """The matrices [v, d] of source, target and output (section 3.4)."""
    target = embedding["tokens"]
    one_side = config.kind in ("encoder_only", "decoder_only", "classifier")
    shared = config.tied == "all" or one_side
    source = target if shared else embedding["source_tokens"]
    output = embedding["output"] if config.tied == "none" else target
    return source, target, output


def embeddings(config, table_vd, tokens):
    """Embedding times sqrt(d_model) (section 3.4), [..., d]."""
    scaled = config.embedding_scale and config.kind != "conv"
    scale = math.sqrt(table_vd.shape[1]) if scaled else 1
    return table_vd[tokens] * scale


def norm(config, weights, x_td):
    """RMSNorm (Zhang and Sennrich 2019, equation 4): gain * a / root of mean a^2."""
    if config.norm_kind == "none":
        return x_td
    if config.norm_kind == "layer":
        return layer_norm(weights, x_td, config.norm_epsilon)
    square_t1 = (x_td**2).mean(axis=-1, keepdims=True)
    return weights["scale"] * x_td / (square_t1 + config.norm_epsilon) ** 0.5


def logits(config, parameters, batch, older=None, drop=None):
    """float64 [b, t, v], as `Twin.logits`.

    Args:
      older: (config, parameters, batch) -> outputs, for kinds not in `KINDS`.
      drop: (x, rate) -> x, dropout; of older kinds there is none.
    """
    return Variant(config, older, drop).logits(parameters, batch)


class Variant(Twin):
    """The model of a config that may have any variant."""

    def __init__(self, config, older_outputs=None, drop=None):
        super().__init__(config)
        self.older, self.drop = older_outputs, drop or self.drop

    def logits(self, parameters, batch):
        if self.config.kind != "classifier":
            return super().logits(parameters, batch)
        parameters = float64(parameters)
        head = parameters["head"]
        x_btd = self.classifier(parameters, batch)
        return x_btd @ head["labels"].T + head["labels_bias"]

    def tables(self, embedding):
        return tables(self.config, embedding)

    def outputs(self, parameters, batch):
        kind = self.config.kind
        if kind not in KINDS:
            return self.older(self.config, parameters, batch)
        halves = {"encoder_only": self.encoder, "decoder_only": self.decoder}
        return halves.get(kind, super().outputs)(parameters, batch)

    def classifier(self, parameters, batch):
        """tanh(pooled W + b), [b, t, d]: pooled are tokens of the label's sentence."""
        x_bsd, head = self.encoder(parameters, batch), parameters["head"]
        numpy, segment_bt = numpy_of(x_bsd), batch["target_segment"]
        poolings = {"first": lambda x_sd, axis: x_sd[0]}
        poolings |= {"max": numpy.max, "mean": numpy.mean}
        pool = poolings[option(self.config, "pooling")]
        pooled = [np.zeros(x_bsd.shape[2])] * segment_bt.size  # of padding
        for b, t in np.argwhere(segment_bt):
            mine_sd = x_bsd[b, batch["source_segment"][b] == segment_bt[b, t]]
            pooled[b * segment_bt.shape[1] + t] = pool(mine_sd, axis=0)
        pooled_btd = numpy.stack(pooled).reshape(*segment_bt.shape, -1)
        hidden_btd = numpy.tanh(pooled_btd @ head["dense"] + head["dense_bias"])
        return self.drop(hidden_btd, self.config.dropout)

    def embed(self, table_vd, schemes, tokens_bt, position_bt):
        config = self.config
        x_btd = embeddings(config, table_vd, tokens_bt)
        places_bt = position_bt + option(config, "position_offset")
        if config.positions == "learned":
            return x_btd + schemes[0]["table"][places_bt]
        if config.positions == "sinusoid":
            layout = option(config, "sinusoid_layout")
            spacing = option(config, "sinusoid_spacing")
            longest = places_bt.max(initial=0) + 1
            table_td = sinusoids(longest, x_btd.shape[-1], layout, spacing)
            return x_btd + table_td[places_bt]
        return x_btd

    def place(self, side, schemes, layer):
        return Scheme(self.config, schemes, layer, side)

    def norm(self, weights, x_td):
        return norm(self.config, weights, x_td)

    def score(self, q_btk, k_bsk, place, head, heads):
        if place:
            q_btk, k_bsk = place.turn(q_btk), place.turn(k_bsk)
        scale = divisor(self.config, q_btk.shape[-1])
        score_bts = q_btk @ k_bsk.swapaxes(1, 2) / scale
        return score_bts + (place.score(q_btk, head, heads) if place else 0.0)

    def weighted(self, p_bts, v_bsk, place):
        return p_bts @ v_bsk + (place.value(p_bts) if place else 0)

    def feed_forward(self, weights, x_btd):
        """Equation 2, also with another function than max(0, .).

        Gated (Shazeer 2020, equation 6): (f(x W) * x V) W2.
        """
        name, rate = self.config.feed_forward, self.config.activation_dropout
        if name == "relu" and not rate:
            return super().feed_forward(weights, x_btd)
        f = ACTIVATIONS[name]
        inner_btf = x_btd @ weights["inner"]
        if "glu" in name:
            inner_btf = f(x_btd @ weights["gate"]) * inner_btf
            return self.drop(inner_btf, rate) @ weights["outer"]
        inner_btf = self.drop(f(inner_btf + weights["inner_bias"]), rate)
        return inner_btf @ weights["outer"] + weights["outer_bias"]


def sinusoids(length: int, d_model: int, layout: str, spacing: str) -> np.ndarray:
    """Section 3.5, or as the authors' program has it, [t, d].

    That has all sines first, and its wavelengths form a geometric progression that ends
    at 10000 * 2 pi and not before.
    """
    place_t, half = np.arange(length), d_model // 2
    table_td = positional_encoding(place_t, d_model)
    if spacing != "paper":
        angle_ti = place_t[:, None] / 10000 ** (np.arange(half) / (half - 1))
        table_td[:, ::2], table_td[:, 1::2] = np.sin(angle_ti), np.cos(angle_ti)
    if layout != "interleaved":
        table_td = np.concatenate([table_td[:, ::2], table_td[:, 1::2]], axis=1)
    return table_td


class Scheme(Side):
    """A position scheme, as one layer's self-attention applies it.

    Distances are j - i for a query at i and a key at j.
    """

    def __init__(self, config, schemes, layer: int, side: Side):
        vars(self).update(vars(side))
        self.config = config
        self.distance_bts = self.position_bt[:, None, :] - self.position_bt[:, :, None]
        # Shaw et al. have vectors for each layer, T5 has numbers for all (section 2.1).
        self.weights = schemes.get(layer if config.positions == "relative" else 0, {})

    def mask(self, keys):
        seen_bts = super().mask(keys)
        if keys is self and self.config.attention == "restricted":
            # Section 4: "considering only a neighborhood of size r", r / 2 on each
            # side.
            reach = option(self.config, "neighbourhood") // 2
            seen_bts &= np.abs(self.distance_bts) <= reach
        return seen_bts

    def turn(self, x_btk):
        """Su et al. 2021, section 3.2.2: pairs as complex numbers times e^(i m theta).

        theta_i = 10000^(-2 (i - 1) / d), i from 1.
        """
        if self.config.positions != "rotary":
            return x_btk
        d = x_btk.shape[-1]
        theta = option(self.config, "rotary_base") ** (-2.0 * np.arange(d // 2) / d)
        pairs = x_btk[..., 0::2] + 1j * x_btk[..., 1::2]
        pairs = pairs * np.exp(1j * self.position_bt[..., None] * theta)
        turned = numpy_of(x_btk).stack([pairs.real, pairs.imag], axis=-1)
        return turned.reshape(x_btk.shape)

    def score(self, q_btk, head: int, heads: int):
        """The term added to q k / sqrt(d_k), [b, t, s]."""
        if self.config.positions == "alibi":
            # Press et al. 2022, section 3: the geometric sequence that starts at
            # 2^(-8/n) and uses that same value as its ratio.
            return -math.pow(2 ** (-8 / heads), head + 1) * np.abs(self.distance_bts)
        if self.config.positions == "t5":
            bucket_bts = np.vectorize(t5_bucket, otypes=[int])(
                self.distance_bts,
                not self.causal,
                option(self.config, "t5_buckets"),
                option(self.config, "t5_distance"),
            )
            return self.weights["table"][bucket_bts, head]
        if self.config.positions == "relative":  # Shaw et al. 2018, equation 4
            keys_btsk = self._clipped("key")
            score_bts = numpy_of(q_btk).einsum("btk,btsk->bts", q_btk, keys_btsk)
            return score_bts / divisor(self.config, q_btk.shape[-1])
        return 0.0

    def value(self, p_bts):
        """The term added to the values (Shaw et al. 2018, equation 3), [b, t, k]."""
        if self.config.positions != "relative":
            return 0.0
        if not option(self.config, "relative_values"):
            return 0.0
        return numpy_of(p_bts).einsum("bts,btsk->btk", p_bts, self._clipped("value"))

    def _clipped(self, name: str):
        """w_clip(j - i, k) of w = (w_-k, ..., w_k), [b, t, s, k]."""
        k = option(self.config, "relative_clip")
        return self.weights[name][np.clip(self.distance_bts, -k, k) + k]


def t5_bucket(distance: int, both_sides: bool, buckets: int, farthest: int) -> int:
    """Raffel et al. 2020, section 2.1 and its program, in exact arithmetic.

    Half of the buckets hold one distance; bucket half + j begins where
    log(distance / half) / log(farthest / half) * (buckets - half) is j.
    """
    if both_sides:
        offset = buckets // 2 if distance > 0 else 0
        return offset + t5_bucket(-abs(distance), False, buckets // 2, farthest)
    span, half = max(0, -distance), buckets // 2
    if span < half:
        return span
    j = 0
    while Fraction(span, half) ** (buckets - half) >= Fraction(farthest, half) ** (
        j + 1
    ):
        j += 1
    return min(half + j, buckets - 1)


def divisor(config, d_k: int) -> float:
    """Section 3.2.1: scores are divided by sqrt(d_k), to keep them small."""
    return 1.0 if config.attention == "unscaled" else math.sqrt(d_k)


def gelu(x):
    """Hendrycks and Gimpel 2016, section 2: x P(X <= x) of a standard normal X."""
    erf = jax.lax.erf if isinstance(x, jax.Array) else scipy.special.erf
    return x * (1 + erf(x / math.sqrt(2))) / 2


def silu(x):
    """x sigmoid(x), of the same section."""
    return x / (1 + numpy_of(x).exp(-x))


def relu(x):
    return x * (x > 0)


ACTIVATIONS = {"relu": relu, "gelu": gelu, "silu": silu, "swiglu": silu, "geglu": gelu}
