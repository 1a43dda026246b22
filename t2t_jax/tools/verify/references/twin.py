"""The paper's model a second time, in float64: also pre-norm, or learned positions.

From the papers' formulas, head by head, with dense masks made of plain comparisons. It
shares no line with `t2t_jax`; it only reads its parameters (nested dicts of arrays,
layers under integer keys) and the fields of a model config. All sizes are those of the
parameters.

Arrays are NumPy's; under `jax.grad`, with 64-bit types on, those of the parameters are
JAX's, and gradients follow from the same formulas.

The tests have the other variants, `tests/model/twin_variants.py`, and the models of
other papers, `tests/model/older_twins.py`.

Shape suffixes: b batch, s source (keys), t target (queries), d model width, h heads,
k head width, v vocabulary.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np


def numpy_of(array):
    """The module that computes with an array: NumPy, or JAX's under `jax.grad`."""
    return jnp if isinstance(array, jax.Array) else np


def float64(arrays):
    """All arrays as NumPy's in float64; JAX's stay where it differentiates them."""
    return jax.tree.map(
        lambda x: x if isinstance(x, jax.core.Tracer) else np.asarray(x, np.float64),
        arrays,
    )


class Side:
    """The sentences and positions of the tokens of one side of a batch."""

    def __init__(self, batch, side: str):
        self.segment_bt = np.asarray(batch[f"{side}_segment"])
        self.position_bt = np.asarray(batch[f"{side}_position"])
        self.causal = side == "target"

    def mask(self, keys: "Side") -> np.ndarray:
        """True where a query may see a key, [b, t, s]: in the same sentence."""
        query_bt1, key_b1s = self.segment_bt[:, :, None], keys.segment_bt[:, None]
        seen_bts = (query_bt1 == key_b1s) & (query_bt1 != 0)
        if keys is self and self.causal:
            seen_bts &= np.tri(seen_bts.shape[1], dtype=bool)
        return seen_bts


class Twin:
    """The model of a config."""

    def __init__(self, config):
        self.config = config

    def drop(self, x, rate: float):
        """Dropout (section 5.4), where the model drops and in its order: none here."""
        return x

    def logits(self, parameters, batch):
        """float64 [b, t, v] of a batch that has `target_input`.

        Padding (segment 0) is seen by nothing; its logits mean nothing.
        """
        parameters = float64(parameters)
        # Section 3.4: the pre-softmax linear transformation is the embedding matrix.
        *_, output_vd = self.tables(parameters["embedding"])
        bias_v = parameters["embedding"].get("output_bias", 0)
        return self.outputs(parameters, batch) @ output_vd.T + bias_v

    def tables(self, embedding) -> tuple:
        """The matrices [v, d] of source, target and output (section 3.4)."""
        return (embedding["tokens"],) * 3

    def outputs(self, parameters, batch):
        """Figure 1, [b, t, d]."""
        return self.decoder(parameters, batch, self.encoder(parameters, batch))

    def encoder(self, parameters, batch):
        """The left half of figure 1, [b, s, d]."""
        source_vd, *_ = self.tables(parameters["embedding"])
        source = Side(batch, "source")
        return self.stack(parameters, "encoder", source_vd, batch["source"], source)

    def decoder(self, parameters, batch, x_bsd=None):
        """The right half, [b, t, d]; without `x_bsd`, no attention to a source."""
        _, target_vd, _ = self.tables(parameters["embedding"])
        tokens_bt, target = batch["target_input"], Side(batch, "target")
        across = None if x_bsd is None else (x_bsd, Side(batch, "source"))
        return self.stack(parameters, "decoder", target_vd, tokens_bt, target, across)

    def stack(self, parameters, half: str, table_vd, tokens_bt, side, across=None):
        """The layers of one half; they also attend to outputs and side of `across`."""
        schemes = parameters.get(f"{half}_positions", {})
        # Section 5.4: dropout of "the sums of the embeddings and the positional
        # encodings in both the encoder and decoder stacks".
        x_btd = self.embed(table_vd, schemes, tokens_bt, side.position_bt)
        x_btd = self.drop(x_btd, self.config.dropout)
        for i in range(len(parameters[half])):
            place = self.place(side, schemes, i)
            x_btd = self.layer(parameters[half][i], place, x_btd, across)
        if self.config.norm in ("pre", "post_final"):
            x_btd = self.norm(parameters.get(f"{half}_norm"), x_btd)
        return x_btd

    def embed(self, table_vd, schemes, tokens_bt, position_bt):
        """Embedding times sqrt(d_model) (3.4) plus position (3.5), [b, t, d]."""
        x_btd = table_vd[tokens_bt] * math.sqrt(table_vd.shape[1])
        if self.config.positions == "learned":
            return x_btd + schemes[0]["table"][position_bt]
        place_t = np.arange(position_bt.max(initial=0) + 1)
        table_td = positional_encoding(place_t, x_btd.shape[-1])
        return x_btd + table_td[position_bt]

    def place(self, side: Side, schemes, layer: int) -> Side:
        """The side as a layer's self-attention sees it; by `schemes` of positions."""
        return side

    def layer(self, weights, place: Side, x_btd, across):
        """Section 3.1: two sub-layers, or three."""

        def attend(x_btd):
            mask_bts = place.mask(place)
            return self.attention(weights["attention"], x_btd, x_btd, mask_bts, place)

        def attend_to_source(x_btd):
            x_bsd, source = across
            mask_bts = place.mask(source)
            return self.attention(weights["cross"], x_btd, x_bsd, mask_bts)

        def forward(x_btd):
            return self.feed_forward(weights["ff"], x_btd)

        subs = [("attention_sub", attend), ("ff_sub", forward)]
        if across:
            subs.insert(1, ("cross_sub", attend_to_source))
        for name, sublayer in subs:
            x_btd = self.residual(weights.get(name, {}), x_btd, sublayer)
        return x_btd

    def residual(self, sub, x_btd, sublayer):
        """Section 3.1: LayerNorm(x + Sublayer(x)).

        Pre-norm: x + Sublayer(LayerNorm(x)).
        Section 5.4: dropout of "the output of each sub-layer, before it is added to the
        sub-layer input and normalized".
        """
        config, weights = self.config, sub.get("norm")
        added_btd = x_btd if config.residual else 0
        if config.norm == "pre":
            y_btd = sublayer(self.norm(weights, x_btd))
            return added_btd + self.drop(y_btd, config.dropout)
        y_btd = self.drop(sublayer(x_btd), config.dropout)
        return self.norm(weights, added_btd + y_btd)

    def norm(self, weights, x_td):
        return layer_norm(weights, x_td, self.config.norm_epsilon)

    def attention(self, weights, queries_btd, keys_bsd, mask_bts, place=None):
        """Section 3.2.2: Concat(head_1, ..., head_h) W^O.

        head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), where (section 3.2.1)
        Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V; here values are the keys.

        Args:
          place: of self-attention, that of the layer.
        """
        heads = weights["query"].shape[1]

        def projected(x_btd, name, h):
            bias_k = weights[f"{name}_bias"][h] if f"{name}_bias" in weights else 0
            return x_btd @ weights[name][:, h] + bias_k

        numpy, p, values = numpy_of(queries_btd), [], []
        for h in range(heads):
            q_btk = projected(queries_btd, "query", h)
            k_bsk = projected(keys_bsd, "key", h)
            values.append(projected(keys_bsd, "value", h))
            score_bts = self.score(q_btk, k_bsk, place, h, heads)
            # Not minus infinity: padding sees nothing, and a softmax of nothing is NaN.
            score_bts = numpy.where(mask_bts, score_bts, -1e30)
            p.append(softmax(score_bts))
        p_bhts = numpy.stack(p, axis=1)
        p_bhts = self.drop(p_bhts, self.config.attention_dropout)
        outputs = [
            self.weighted(p_bhts[:, h], v_bsk, place) for h, v_bsk in enumerate(values)
        ]
        concat = numpy.concatenate(outputs, axis=2)
        w_o = weights["out"].reshape(concat.shape[2], -1)
        return concat @ w_o + weights.get("out_bias", 0)

    def score(self, q_btk, k_bsk, place, head: int, heads: int):
        """Section 3.2.1: divided by sqrt(d_k), to keep them small; [b, t, s]."""
        return q_btk @ k_bsk.swapaxes(1, 2) / math.sqrt(q_btk.shape[-1])

    def weighted(self, p_bts, v_bsk, place):
        """The values, weighted by the softmax, [b, t, k]."""
        return p_bts @ v_bsk

    def feed_forward(self, weights, x_btd):
        """Equation 2: max(0, x W_1 + b_1) W_2 + b_2."""
        inner_btf = x_btd @ weights["inner"] + weights["inner_bias"]
        inner_btf = numpy_of(x_btd).maximum(0, inner_btf)
        return inner_btf @ weights["outer"] + weights["outer_bias"]


def layer_norm(weights, x_td, epsilon: float):
    """Mean 0 and variance 1 of each vector, then scale and bias (Ba et al. 2016)."""
    x_td = x_td - x_td.mean(axis=-1, keepdims=True)
    deviation_t1 = ((x_td**2).mean(axis=-1, keepdims=True) + epsilon) ** 0.5
    return weights["scale"] * x_td / deviation_t1 + weights["bias"]


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)  # changes nothing, but exp cannot overflow
    numpy = numpy_of(x)
    return x - numpy.log(numpy.exp(x).sum(axis=-1, keepdims=True))


def softmax(x):
    return numpy_of(x).exp(log_softmax(x))


def positional_encoding(position_t, d_model: int) -> np.ndarray:
    """Section 3.5: sin(pos / 10000^(2i / d_model)) at 2i, the cosine at 2i + 1."""
    angle_ti = position_t[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    table_td = np.stack([np.sin(angle_ti), np.cos(angle_ti)], axis=-1)
    return table_td.reshape(-1, d_model)


def cross_entropy(logits_btv, target_bt, real_bt, smoothing: float) -> tuple:
    """The sum over all real tokens, in nats, and their number.

    Label smoothing (section 5.4): 1 - epsilon of the probability is to go to the true
    token, the rest evenly to all (Szegedy et al. 2015, section 7).
    """
    log_p_btv, numpy = log_softmax(logits_btv), numpy_of(logits_btv)
    true_bt = numpy.take_along_axis(log_p_btv, target_bt[..., None], axis=-1)[..., 0]
    loss_bt = -(1 - smoothing) * true_bt - smoothing * log_p_btv.mean(axis=-1)
    return numpy.where(real_bt, loss_bt, 0).sum(), real_bt.sum()


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """Equation 3; `step` is from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def adam(parameters, gradients, m, v, step: int, rate: float) -> tuple:
    """A step of Adam (Kingma and Ba 2015, algorithm 1), as in section 5.3."""
    beta1, beta2, epsilon = 0.9, 0.98, 1e-9
    m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, m, gradients)
    v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g**2, v, gradients)

    def updated(x, m, v):
        m, v = m / (1 - beta1**step), v / (1 - beta2**step)
        return x - rate * m / (v**0.5 + epsilon)

    return jax.tree.map(updated, parameters, m, v), m, v


def teacher_forcing(batch, bos: int) -> dict:
    """Adds `target_input`: every sentence of a row moved right by one, behind BOS."""
    target_input = np.zeros(batch["target"].shape, np.int32)
    for b, segment_t in enumerate(batch["target_segment"]):
        for t, segment in enumerate(segment_t):
            begins = t == 0 or segment_t[t - 1] != segment
            target_input[b, t] = bos if begins else batch["target"][b, t - 1]
    return {**batch, "target_input": target_input}
