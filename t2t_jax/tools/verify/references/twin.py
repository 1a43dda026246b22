"""The whole model a second time: NumPy, float64, from the papers' formulas alone.

Written to be checked against the printed papers and not to be fast: loops over rows,
heads, queries and keys; masks are dense tables made of plain comparisons; a softmax is
taken over a list of just the keys that may be seen. It shares no line with `t2t_jax`;
it only reads its parameters (nested dicts of arrays, layers under integer keys) and the
fields of a model config. All sizes are those of the parameters.

Here are the Transformer and its halves, the loss and greedy search; `older_twins.py`
has the models of other papers.

Shape suffixes: b batch, s source (keys), t target (queries), d model width, h heads,
k head width, f feed-forward width, v vocabulary.
"""

import cmath
import math
from fractions import Fraction

import numpy as np

from t2t_jax.tools.verify.references import older_twins
from t2t_jax.tools.verify.references.formulas import (
    embeddings,
    float64,
    norm,
    option,
    relu,
    softmax,
    tables,
)

# The entries of the tables that have a formula here.
KNOWN = {
    "kind": {
        *("transformer", "encoder_only", "decoder_only", "classifier"),
        *older_twins.MODELS,
    },
    "positions": {"sinusoid", "learned", "none", "rotary", "relative", "t5", "alibi"},
    "norm_kind": {"layer", "rms", "none"},
    "attention": {"fused", "dense", "unscaled", "chunked", "restricted"},
    "feed_forward": {"relu", "gelu", "silu", "swiglu", "geglu"},
}


def logits(config, parameters, batch) -> np.ndarray:
    """float64 [b, t, v] of a batch that has `target_input`.

    Padding (segment 0) sees nothing and is seen by nothing; its logits mean nothing.
    """
    rows = len(batch["source"])
    return np.stack(
        [
            _row(config, parameters, {name: batch[name][b] for name in batch})
            for b in range(rows)
        ]
    )


def _row(config, parameters, row):
    """The logits of one row, [t, v]."""
    if config.kind == "classifier":
        head = parameters["head"]
        logits_tv = classifier(config, parameters, row) @ float64(head["labels"]).T
        return logits_tv + float64(head["labels_bias"])
    # Section 3.4: the pre-softmax linear transformation is the embedding matrix.
    *_, of_output = tables(config, parameters["embedding"])
    outputs = OUTPUTS.get(config.kind, older_twins.outputs)
    logits_tv = outputs(config, parameters, row) @ float64(of_output).T
    if config.output_bias:
        logits_tv += float64(parameters["embedding"]["output_bias"])
    return logits_tv


def transformer(config, parameters, row) -> np.ndarray:
    """Figure 1, for one row: [t, d]."""
    return decoder(config, parameters, row, encoder(config, parameters, row))


def encoder(config, parameters, row) -> np.ndarray:
    """The left half of figure 1, [s, d]."""
    of_source, *_ = tables(config, parameters["embedding"])
    source = tokens_of(row, "source")
    among_source = allowed(config, source, source)
    schemes = parameters.get("encoder_positions", {})
    x_sd = embed(config, of_source, schemes, row["source"], source["position"])
    for i in range(len(parameters["encoder"])):
        layer = parameters["encoder"][i]
        scheme = Scheme(config, schemes, i, source["position"], causal=False)

        def attend(x_sd, layer=layer, scheme=scheme):
            weights = layer["attention"]
            return attention(config, weights, x_sd, x_sd, among_source, scheme)

        def forward(x_sd, layer=layer):
            return feed_forward(config, layer["ff"], x_sd)

        x_sd = residual(config, layer.get("attention_sub", {}), x_sd, attend)
        x_sd = residual(config, layer.get("ff_sub", {}), x_sd, forward)
    if config.norm in ("pre", "post_final"):
        x_sd = norm(config, parameters.get("encoder_norm"), x_sd)
    return x_sd


def decoder(config, parameters, row, x_sd=None) -> np.ndarray:
    """The right half, [t, d]; without `x_sd` it has no attention to a source."""
    _, of_target, _ = tables(config, parameters["embedding"])
    source, target = tokens_of(row, "source"), tokens_of(row, "target")
    among_target = allowed(config, target, target, causal=True)
    from_target_to_source = allowed(config, target, source, cross=True)
    schemes = parameters.get("decoder_positions", {})
    x_td = embed(config, of_target, schemes, row["target_input"], target["position"])
    for i in range(len(parameters["decoder"])):
        layer = parameters["decoder"][i]
        scheme = Scheme(config, schemes, i, target["position"], causal=True)

        def attend(x_td, layer=layer, scheme=scheme):
            weights = layer["attention"]
            return attention(config, weights, x_td, x_td, among_target, scheme)

        def attend_to_source(x_td, layer=layer):
            weights = layer["cross"]
            return attention(config, weights, x_td, x_sd, from_target_to_source)

        def forward(x_td, layer=layer):
            return feed_forward(config, layer["ff"], x_td)

        x_td = residual(config, layer.get("attention_sub", {}), x_td, attend)
        if x_sd is not None:
            x_td = residual(config, layer.get("cross_sub", {}), x_td, attend_to_source)
        x_td = residual(config, layer.get("ff_sub", {}), x_td, forward)
    if config.norm in ("pre", "post_final"):
        x_td = norm(config, parameters.get("decoder_norm"), x_td)
    return x_td


def classifier(config, parameters, row) -> np.ndarray:
    """tanh(pooled W + b), [t, d]: pooled are the tokens of the label's sentence."""
    x_sd, head = encoder(config, parameters, row), parameters["head"]
    pooled_td = np.zeros((len(row["target_segment"]), x_sd.shape[1]))
    for t, segment in enumerate(row["target_segment"]):
        if segment == 0:
            continue
        places = enumerate(row["source_segment"])
        mine = [x_sd[s] for s, its_segment in places if its_segment == segment]
        if option(config, "pooling") == "first":
            pooled_td[t] = mine[0]
        elif option(config, "pooling") == "max":
            pooled_td[t] = [max(feature) for feature in zip(*mine, strict=True)]
        else:
            pooled_td[t] = sum(mine) / len(mine)
    return np.tanh(pooled_td @ float64(head["dense"]) + float64(head["dense_bias"]))


OUTPUTS = {
    "transformer": transformer,
    "encoder_only": encoder,
    "decoder_only": decoder,
}


def tokens_of(row, side: str) -> dict:
    """Where the tokens of a side stand."""
    return {"segment": row[f"{side}_segment"], "position": row[f"{side}_position"]}


def allowed(config, query, key, causal=False, cross=False) -> list[list[bool]]:
    """Which query (row) may see which key (column)."""
    # Section 4: "considering only a neighborhood of size r", r / 2 on each side.
    restricted = config.attention == "restricted" and not cross
    reach = option(config, "neighbourhood") // 2 if restricted else math.inf
    table = []
    for t in range(len(query["segment"])):
        line = []
        for s in range(len(key["segment"])):
            both_real = query["segment"][t] != 0 and key["segment"][s] != 0
            same_sentence = query["segment"][t] == key["segment"][s]
            from_the_future = causal and s > t
            near = abs(key["position"][s] - query["position"][t]) <= reach
            line.append(
                bool(both_real and same_sentence and near and not from_the_future)
            )
        table.append(line)
    return table


def embed(config, table_vd, schemes, tokens, positions) -> np.ndarray:
    """Embedding plus position (section 3.5)."""
    x_td = embeddings(config, table_vd, tokens)
    d_model = x_td.shape[1]
    for t, position in enumerate(positions):
        place = int(position) + option(config, "position_offset")
        if config.positions == "learned":
            x_td[t] += float64(schemes[0]["table"])[place]
        elif config.positions == "sinusoid":
            x_td[t] += sinusoid(
                place,
                d_model,
                option(config, "sinusoid_layout"),
                option(config, "sinusoid_spacing"),
            )
    return x_td


def sinusoid(pos: int, d_model: int, layout="interleaved", spacing="paper"):
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos.

    The authors' program differs: it has all sines first, and its wavelengths form a
    geometric progression that ends at 10000 * 2 pi and not before.
    """
    encoding_d = np.zeros(d_model)
    half = d_model // 2
    for i in range(half):
        exponent = 2 * i / d_model if spacing == "paper" else i / (half - 1)
        angle = pos / math.pow(10000, exponent)
        sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, half + i)
        encoding_d[sine] = math.sin(angle)
        encoding_d[cosine] = math.cos(angle)
    return encoding_d


class Scheme:
    """How one layer's self-attention knows where its tokens stand.

    Distances are j - i for a query at i and a key at j.
    """

    def __init__(self, config, schemes, layer: int, position, causal: bool):
        self.config, self.position, self.causal = config, position, causal
        # Shaw et al. have vectors for each layer, T5 has numbers for all (section 2.1).
        self.weights = schemes.get(layer if config.positions == "relative" else 0, {})

    def turn(self, x_k, t: int) -> np.ndarray:
        """Su et al. 2021, section 3.2.2: pairs as complex numbers times e^(i m theta).

        theta_i = 10000^(-2 (i - 1) / d), i from 1.
        """
        if self.config.positions != "rotary":
            return x_k
        y_k = np.zeros(len(x_k))
        for i in range(1, len(x_k) // 2 + 1):
            theta = option(self.config, "rotary_base") ** (-2 * (i - 1) / len(x_k))
            pair = complex(x_k[2 * i - 2], x_k[2 * i - 1])
            pair *= cmath.exp(1j * int(self.position[t]) * theta)
            y_k[2 * i - 2], y_k[2 * i - 1] = pair.real, pair.imag
        return y_k

    def score(self, q_k, t: int, s: int, head: int, heads: int) -> float:
        """What is added to q k / sqrt(d_k)."""
        distance = int(self.position[s]) - int(self.position[t])
        if self.config.positions == "alibi":
            # Press et al. 2022, section 3: the geometric sequence that starts at
            # 2^(-8/n) and uses that same value as its ratio.
            return -math.pow(2 ** (-8 / heads), head + 1) * abs(distance)
        if self.config.positions == "t5":
            buckets = option(self.config, "t5_buckets")
            farthest = option(self.config, "t5_distance")
            bucket = t5_bucket(distance, not self.causal, buckets, farthest)
            return float64(self.weights["table"])[bucket, head]
        if self.config.positions == "relative":  # Shaw et al. 2018, equation 4
            return q_k @ self._clipped("key", distance) / divisor(self.config, len(q_k))
        return 0.0

    def value(self, t: int, s: int) -> np.ndarray | float:
        """What is added to the value (Shaw et al. 2018, equation 3)."""
        if self.config.positions != "relative":
            return 0.0
        if not option(self.config, "relative_values"):
            return 0.0
        return self._clipped("value", int(self.position[s]) - int(self.position[t]))

    def _clipped(self, name: str, distance: int) -> np.ndarray:
        """w_clip(j - i, k) of w = (w_-k, ..., w_k)."""
        k = option(self.config, "relative_clip")
        return float64(self.weights[name])[max(-k, min(k, distance)) + k]


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


def residual(config, sub, x_td, sublayer) -> np.ndarray:
    """Section 3.1: LayerNorm(x + Sublayer(x)); pre-norm: x + Sublayer(LayerNorm(x))."""
    added_td, weights = x_td if config.residual else 0, sub.get("norm")
    if config.norm == "pre":
        return added_td + sublayer(norm(config, weights, x_td))
    return norm(config, weights, added_td + sublayer(x_td))


def divisor(config, d_k: int) -> float:
    """Section 3.2.1: scores are divided by sqrt(d_k), to keep them small."""
    return 1.0 if config.attention == "unscaled" else math.sqrt(d_k)


def attention(
    config, weights, queries_td, keys_sd, allowed_ts, scheme=None
) -> np.ndarray:
    """Section 3.2.2: Concat(head_1, ..., head_h) W^O.

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), where (section 3.2.1)
    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V; here values are the keys.
    """
    _, heads, d_k = weights["query"].shape
    d_v = weights["value"].shape[2]

    def projected(x_d, name, h):
        bias_k = weights[f"{name}_bias"][h] if f"{name}_bias" in weights else 0
        return x_d @ float64(weights[name])[:, h, :] + float64(bias_k)

    concat = np.zeros((len(queries_td), heads * d_v))
    for h in range(heads):
        q_tk = projected(queries_td, "query", h)
        k_sk = projected(keys_sd, "key", h)
        v_sk = projected(keys_sd, "value", h)
        if scheme:
            q_tk = [scheme.turn(q_k, t) for t, q_k in enumerate(q_tk)]
            k_sk = [scheme.turn(k_k, s) for s, k_k in enumerate(k_sk)]
        for t in range(len(queries_td)):
            seen = [s for s in range(len(keys_sd)) if allowed_ts[t][s]]
            if not seen:  # padding
                continue
            scores = [q_tk[t] @ k_sk[s] / divisor(config, d_k) for s in seen]
            if scheme:
                for i, s in enumerate(seen):
                    scores[i] += scheme.score(q_tk[t], t, s, h, heads)
            head_k = np.zeros(d_v)
            for s, probability in zip(seen, softmax(scores), strict=True):
                head_k += probability * v_sk[s]
                if scheme:
                    head_k += probability * scheme.value(t, s)
            concat[t, h * d_v : (h + 1) * d_v] = head_k
    w_o = float64(weights["out"]).reshape(heads * d_v, -1)
    return concat @ w_o + float64(weights.get("out_bias", 0))


def feed_forward(config, weights, x_td) -> np.ndarray:
    """Equation 2: max(0, x W1 + b1) W2 + b2, or with another function than max(0, .).

    Gated (Shazeer 2020, equation 6): (f(x W) * x V) W2.
    """
    f = ACTIVATIONS[config.feed_forward]
    inner_tf = x_td @ float64(weights["inner"])
    if "glu" in config.feed_forward:
        gate_tf = x_td @ float64(weights["gate"])
        return (f(gate_tf) * inner_tf) @ float64(weights["outer"])
    inner_tf = f(inner_tf + float64(weights["inner_bias"]))
    return inner_tf @ float64(weights["outer"]) + float64(weights["outer_bias"])


@np.vectorize
def gelu(x: float) -> float:
    """Hendrycks and Gimpel 2016, section 2: x P(X <= x) of a standard normal X."""
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


@np.vectorize
def silu(x: float) -> float:
    """x sigmoid(x), of the same section."""
    return x / (1 + math.exp(-x))


ACTIVATIONS = {
    **{"relu": relu, "gelu": gelu, "silu": silu},
    **{"swiglu": silu, "geglu": gelu},
}


def teacher_forcing(batch, bos: int) -> dict:
    """Adds `target_input`: every sentence of a row moved right by one, behind BOS."""
    target_input = np.zeros(batch["target"].shape, np.int32)
    for b, segment_t in enumerate(batch["target_segment"]):
        for t, segment in enumerate(segment_t):
            begins = t == 0 or segment_t[t - 1] != segment
            target_input[b, t] = bos if begins else batch["target"][b, t - 1]
    return {**batch, "target_input": target_input}


def loss_sums(logits_btv, batch, smoothing: float) -> tuple[float, float, int]:
    """Sums over the real target tokens: (smoothed loss, -log p, number of tokens).

    Szegedy et al. 2015, section 7: the cross-entropy with the distribution
    q'(v) = (1 - smoothing) [v is the target] + smoothing / vocabulary.
    """
    vocabulary = logits_btv.shape[2]
    loss, nll, tokens = 0.0, 0.0, 0
    for b, segment_t in enumerate(batch["target_segment"]):
        for t, segment in enumerate(segment_t):
            if segment == 0:
                continue
            wanted_v = np.full(vocabulary, smoothing / vocabulary)
            wanted_v[batch["target"][b, t]] += 1 - smoothing
            log_p_v = np.log(softmax(logits_btv[b, t]))
            loss -= wanted_v @ log_p_v
            nll -= log_p_v[batch["target"][b, t]]
            tokens += 1
    return loss, nll, tokens


def greedy(config, parameters, source, length: int, bos: int, eos: int, never=()):
    """The most probable next token, again and again: (tokens, their log-probability).

    Every step runs the whole model anew on all that has been written. Stops behind EOS
    or after `length` tokens. Tokens in `never` are not written.
    """
    written, log_probability = [], 0.0
    while len(written) < length and eos not in written:
        row = {
            "source": source,
            "source_segment": [1] * len(source),
            "source_position": range(len(source)),
            "target_input": [bos, *written],
            "target_segment": [1] * (len(written) + 1),
            "target_position": range(len(written) + 1),
        }
        probability_v = softmax(_row(config, parameters, row)[-1])
        ranked = sorted(range(len(probability_v)), key=lambda v: -probability_v[v])
        best = next(token for token in ranked if token not in never)
        written.append(best)
        log_probability += math.log(probability_v[best])
    return written, log_probability
