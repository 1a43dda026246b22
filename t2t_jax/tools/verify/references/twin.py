"""Variants of the paper's model a second time, in float64, from the papers' formulas.

Where the model drops, the twin calls `drop(x, rate)` (section 5.4), which by default
does nothing: whoever has the model's masks can give them to the twin, in its order.

All that is the paper's own is in `transformer.py`, the student's file, a link to
`examples/transformer.py`. Here is what variants and packed rows add, and the model that
has room for them: head by head, with dense masks made of plain comparisons. It shares
no line with `t2t_jax`; it only reads its parameters (nested dicts of arrays, layers
under integer keys) and the fields of a model config. All sizes are those of the
parameters.

Arrays are NumPy's; under `jax.grad`, with 64-bit types on, those of the parameters are
JAX's, and gradients follow from the same formulas.

The tests have the models of other papers, `tests/model/older_twins.py`.

Shape suffixes: b batch, s source (keys), t target (queries), d model width, h heads,
k head width, f feed-forward width, v vocabulary.
"""

import importlib.util
import math
from fractions import Fraction
from types import ModuleType

import jax
import numpy as np

from t2t_jax.tools.verify.references import transformer as in_jax


def _in_numpy() -> ModuleType:
    """A second copy of the student's file, which computes with NumPy: in float64."""
    spec = importlib.util.find_spec(in_jax.__name__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.jnp = np
    return module


IN_NUMPY = _in_numpy()


def paper(array) -> ModuleType:
    """The paper's formulas for an array: in NumPy, or JAX's under `jax.grad`."""
    return in_jax if isinstance(array, jax.Array) else IN_NUMPY


def no_dropout(x, rate):
    return x


# What the options are if a config does not say: the values of their papers.
OPTIONS = {
    "neighbourhood": 32,
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


def float64(arrays):
    """All arrays as NumPy's in float64; JAX's stay where it differentiates them."""
    return jax.tree.map(
        lambda x: x if isinstance(x, jax.core.Tracer) else np.asarray(x, np.float64),
        arrays,
    )


def option(config, name: str):
    return config.options.get(name, OPTIONS[name])


def tables(config, embedding) -> tuple:
    """The matrices [v, d] of source, target and output (section 3.4)."""
    of_target = embedding["tokens"]
    one_side = config.kind in ("encoder_only", "decoder_only", "classifier")
    one = config.tied == "all" or one_side
    of_source = of_target if one else embedding["source_tokens"]
    of_output = embedding["output"] if config.tied == "none" else of_target
    return of_source, of_target, of_output


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
        return paper(x_td).layer_norm(weights, x_td, config.norm_epsilon)
    square_t1 = (x_td**2).mean(axis=-1, keepdims=True)
    return weights["scale"] * x_td / (square_t1 + config.norm_epsilon) ** 0.5


def logits(config, parameters, batch, older=None, drop=no_dropout):
    """float64 [b, t, v] of a batch that has `target_input`.

    Padding (segment 0) is seen by nothing; its logits mean nothing.

    Args:
      older: (config, parameters, batch) -> outputs, for kinds not in `OUTPUTS`.
      drop: dropout; of older kinds there is none.
    """
    parameters = float64(parameters)
    if config.kind == "classifier":
        head = parameters["head"]
        x_btd = classifier(config, parameters, batch, drop)
        return x_btd @ head["labels"].T + head["labels_bias"]
    # Section 3.4: the pre-softmax linear transformation is the embedding matrix.
    *_, of_output_vd = tables(config, parameters["embedding"])
    outputs, options = older, ()
    if config.kind in OUTPUTS:
        outputs, options = OUTPUTS[config.kind], (drop,)
    bias_v = parameters["embedding"]["output_bias"] if config.output_bias else 0
    return outputs(config, parameters, batch, *options) @ of_output_vd.T + bias_v


def transformer(config, parameters, batch, drop):
    """Figure 1, [b, t, d]."""
    x_bsd = encoder(config, parameters, batch, drop)
    return decoder(config, parameters, batch, drop, x_bsd)


def encoder(config, parameters, batch, drop):
    """The left half of figure 1, [b, s, d]."""
    of_source_vd, *_ = tables(config, parameters["embedding"])
    source = Side(batch, "source")
    tokens_bs = batch["source"]
    return stack(config, parameters, "encoder", of_source_vd, tokens_bs, source, drop)


def decoder(config, parameters, batch, drop, x_bsd=None):
    """The right half, [b, t, d]; without `x_bsd` it has no attention to a source."""
    _, of_target_vd, _ = tables(config, parameters["embedding"])
    tokens_bt, target = batch["target_input"], Side(batch, "target")
    across = None if x_bsd is None else (x_bsd, Side(batch, "source"))
    sides = target, drop, across
    return stack(config, parameters, "decoder", of_target_vd, tokens_bt, *sides)


class Side:
    """The sentences and positions of the tokens of one side of a batch."""

    def __init__(self, batch, side: str):
        self.segment_bt = np.asarray(batch[f"{side}_segment"])
        self.position_bt = np.asarray(batch[f"{side}_position"])

    def mask(self, keys: "Side") -> np.ndarray:
        """True where a query may see a key, [b, t, s]: in the same sentence."""
        query_bt1, key_b1s = self.segment_bt[:, :, None], keys.segment_bt[:, None]
        return (query_bt1 == key_b1s) & (query_bt1 != 0)


def stack(
    config, parameters, half: str, table_vd, tokens_bt, side: Side, drop, across=None
):
    """The layers of one half; they also attend to outputs and side of `across`."""
    schemes = parameters.get(f"{half}_positions", {})
    # Section 5.4: dropout of "the sums of the embeddings and the positional encodings
    # in both the encoder and decoder stacks".
    x_btd = embed(config, table_vd, schemes, tokens_bt, side.position_bt)
    x_btd = drop(x_btd, config.dropout)
    for i in range(len(parameters[half])):
        scheme = Scheme(config, schemes, i, side, causal=half == "decoder")
        x_btd = layer(config, parameters[half][i], scheme, x_btd, across, drop)
    if config.norm in ("pre", "post_final"):
        x_btd = norm(config, parameters.get(f"{half}_norm"), x_btd)
    return x_btd


def layer(config, weights, scheme: "Scheme", x_btd, across, drop):
    """Section 3.1: two sub-layers, or three."""

    def attend(x_btd):
        of_layer = weights["attention"]
        return attention(config, of_layer, x_btd, x_btd, scheme.mask(), drop, scheme)

    def attend_to_source(x_btd):
        x_bsd, source = across
        mask_bts = scheme.side.mask(source)
        return attention(config, weights["cross"], x_btd, x_bsd, mask_bts, drop)

    def forward(x_btd):
        return feed_forward(config, weights["ff"], x_btd, drop)

    subs = [("attention_sub", attend), ("ff_sub", forward)]
    if across:
        subs.insert(1, ("cross_sub", attend_to_source))
    for name, sublayer in subs:
        x_btd = residual(config, weights.get(name, {}), x_btd, sublayer, drop)
    return x_btd


def classifier(config, parameters, batch, drop):
    """tanh(pooled W + b), [b, t, d]: pooled are the tokens of the label's sentence."""
    x_bsd, head = encoder(config, parameters, batch, drop), parameters["head"]
    numpy, segment_bt = paper(x_bsd).jnp, batch["target_segment"]
    pool = {"first": lambda x_sd, axis: x_sd[0], "max": numpy.max, "mean": numpy.mean}
    pooled = [np.zeros(x_bsd.shape[2])] * segment_bt.size  # of padding
    for b, t in np.argwhere(segment_bt):
        mine_sd = x_bsd[b, batch["source_segment"][b] == segment_bt[b, t]]
        place = b * segment_bt.shape[1] + t
        pooled[place] = pool[option(config, "pooling")](mine_sd, axis=0)
    pooled_btd = numpy.stack(pooled).reshape(*segment_bt.shape, -1)
    hidden_btd = numpy.tanh(pooled_btd @ head["dense"] + head["dense_bias"])
    return drop(hidden_btd, config.dropout)


OUTPUTS = {
    "transformer": transformer,
    "encoder_only": encoder,
    "decoder_only": decoder,
}


def embed(config, table_vd, schemes, tokens_bt, position_bt):
    """Embedding plus position (section 3.5), [b, t, d]."""
    x_btd = embeddings(config, table_vd, tokens_bt)
    places_bt = position_bt + option(config, "position_offset")
    if config.positions == "learned":
        return x_btd + schemes[0]["table"][places_bt]
    if config.positions == "sinusoid":
        layout = option(config, "sinusoid_layout")
        spacing = option(config, "sinusoid_spacing")
        longest = places_bt.max(initial=0) + 1
        return x_btd + sinusoids(longest, x_btd.shape[-1], layout, spacing)[places_bt]
    return x_btd


def sinusoids(length: int, d_model: int, layout: str, spacing: str) -> np.ndarray:
    """Section 3.5, or as the authors' program has it, [t, d].

    That has all sines first, and its wavelengths form a geometric progression that ends
    at 10000 * 2 pi and not before.
    """
    place_t, half = np.arange(length), d_model // 2
    table_td = IN_NUMPY.positional_encoding(place_t, d_model)
    if spacing != "paper":
        angle_ti = place_t[:, None] / 10000 ** (np.arange(half) / (half - 1))
        table_td[:, ::2], table_td[:, 1::2] = np.sin(angle_ti), np.cos(angle_ti)
    if layout != "interleaved":
        table_td = np.concatenate([table_td[:, ::2], table_td[:, 1::2]], axis=1)
    return table_td


class Scheme:
    """A position scheme, as one layer's self-attention applies it.

    Distances are j - i for a query at i and a key at j.
    """

    def __init__(self, config, schemes, layer: int, side: Side, causal: bool):
        self.config, self.side, self.causal = config, side, causal
        position_bt = side.position_bt
        self.distance_bts = position_bt[:, None, :] - position_bt[:, :, None]
        # Shaw et al. have vectors for each layer, T5 has numbers for all (section 2.1).
        self.weights = schemes.get(layer if config.positions == "relative" else 0, {})

    def mask(self) -> np.ndarray:
        """True where a query may see a key, [b, t, s]."""
        seen_bts = self.side.mask(self.side)
        if self.causal:
            seen_bts &= np.tri(seen_bts.shape[1], dtype=bool)
        if self.config.attention == "restricted":
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
        pairs = pairs * np.exp(1j * self.side.position_bt[..., None] * theta)
        return (
            paper(x_btk)
            .jnp.stack([pairs.real, pairs.imag], axis=-1)
            .reshape(x_btk.shape)
        )

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
            score_bts = paper(q_btk).jnp.einsum("btk,btsk->bts", q_btk, keys_btsk)
            return score_bts / divisor(self.config, q_btk.shape[-1])
        return 0.0

    def value(self, p_bts):
        """The term added to the values (Shaw et al. 2018, equation 3), [b, t, k]."""
        if self.config.positions != "relative":
            return 0.0
        if not option(self.config, "relative_values"):
            return 0.0
        return paper(p_bts).jnp.einsum("bts,btsk->btk", p_bts, self._clipped("value"))

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
        first = buckets // 2 if distance > 0 else 0
        return first + t5_bucket(-abs(distance), False, buckets // 2, farthest)
    far, half = max(0, -distance), buckets // 2
    if far < half:
        return far
    j = 0
    while Fraction(far, half) ** (buckets - half) >= Fraction(farthest, half) ** (
        j + 1
    ):
        j += 1
    return min(half + j, buckets - 1)


def residual(config, sub, x_btd, sublayer, drop):
    """Section 3.1: LayerNorm(x + Sublayer(x)); pre-norm: x + Sublayer(LayerNorm(x)).

    Section 5.4: dropout of "the output of each sub-layer, before it is added to the
    sub-layer input and normalized".
    """
    added_btd, weights = x_btd if config.residual else 0, sub.get("norm")
    if config.norm == "pre":
        y_btd = sublayer(norm(config, weights, x_btd))
        return added_btd + drop(y_btd, config.dropout)
    return norm(config, weights, added_btd + drop(sublayer(x_btd), config.dropout))


def divisor(config, d_k: int) -> float:
    """Section 3.2.1: scores are divided by sqrt(d_k), to keep them small."""
    return 1.0 if config.attention == "unscaled" else math.sqrt(d_k)


def attention(config, weights, queries_btd, keys_bsd, mask_bts, drop, scheme=None):
    """Section 3.2.2: Concat(head_1, ..., head_h) W^O.

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), where (section 3.2.1)
    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V; here values are the keys.
    """
    _, heads, d_k = weights["query"].shape

    def projected(x_btd, name, h):
        bias_k = weights[f"{name}_bias"][h] if f"{name}_bias" in weights else 0
        return x_btd @ weights[name][:, h] + bias_k

    formulas, p, values = paper(queries_btd), [], []
    for h in range(heads):
        q_btk = projected(queries_btd, "query", h)
        k_bsk = projected(keys_bsd, "key", h)
        values.append(projected(keys_bsd, "value", h))
        if scheme:
            q_btk, k_bsk = scheme.turn(q_btk), scheme.turn(k_bsk)
        score_bts = q_btk @ k_bsk.swapaxes(1, 2) / divisor(config, d_k)
        if scheme:
            score_bts = score_bts + scheme.score(q_btk, h, heads)
        # Not minus infinity: padding sees nothing, and a softmax of nothing is NaN.
        score_bts = formulas.jnp.where(mask_bts, score_bts, -1e30)
        p.append(formulas.softmax(score_bts))
    p_bhts = drop(formulas.jnp.stack(p, axis=1), config.attention_dropout)
    outputs = [
        p_bhts[:, h] @ v_bsk + (scheme.value(p_bhts[:, h]) if scheme else 0)
        for h, v_bsk in enumerate(values)
    ]
    concat = formulas.jnp.concatenate(outputs, axis=2)
    w_o = weights["out"].reshape(concat.shape[2], -1)
    return concat @ w_o + weights.get("out_bias", 0)


def feed_forward(config, weights, x_btd, drop):
    """Equation 2, also with another function than max(0, .).

    Gated (Shazeer 2020, equation 6): (f(x W) * x V) W2.
    """
    if config.feed_forward == "relu" and not config.activation_dropout:
        return paper(x_btd).feed_forward(weights, x_btd)
    f = ACTIVATIONS[config.feed_forward]
    inner_btf = x_btd @ weights["inner"]
    if "glu" in config.feed_forward:
        inner_btf = f(x_btd @ weights["gate"]) * inner_btf
        return drop(inner_btf, config.activation_dropout) @ weights["outer"]
    inner_btf = f(inner_btf + weights["inner_bias"])
    inner_btf = drop(inner_btf, config.activation_dropout)
    return inner_btf @ weights["outer"] + weights["outer_bias"]


@np.vectorize
def gelu(x: float) -> float:
    """Hendrycks and Gimpel 2016, section 2: x P(X <= x) of a standard normal X."""
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


@np.vectorize
def silu(x: float) -> float:
    """x sigmoid(x), of the same section."""
    return x / (1 + math.exp(-x))


def relu(x):
    return x * (x > 0)


ACTIVATIONS = {"relu": relu, "gelu": gelu, "silu": silu, "swiglu": silu, "geglu": gelu}


def teacher_forcing(batch, bos: int) -> dict:
    """Adds `target_input`: every sentence of a row moved right by one, behind BOS."""
    target_input = np.zeros(batch["target"].shape, np.int32)
    for b, segment_t in enumerate(batch["target_segment"]):
        for t, segment in enumerate(segment_t):
            begins = t == 0 or segment_t[t - 1] != segment
            target_input[b, t] = bos if begins else batch["target"][b, t - 1]
    return {**batch, "target_input": target_input}
