"""The whole model a second time: NumPy, float64, from the paper's formulas alone.

Written to be checked against the printed paper and not to be fast: loops over rows,
heads and queries; masks are dense tables made of plain comparisons; a softmax is taken
over a list of just the keys that may be seen. It shares no line with `t2t_jax`; it only
reads its parameters (nested dicts of arrays, layers under integer keys) and the fields
`norm` and `positions` of a model config.

Shape suffixes: b batch, s source (keys), t target (queries), d model width, h heads,
k head width, v vocabulary.
"""

import math

import numpy as np

EPSILON = 1e-6  # of LayerNorm; the paper is silent


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
    """Figure 1, for one row: [t, v]."""
    source_segment, segment = row["source_segment"], row["target_segment"]
    among_source = allowed(source_segment, source_segment, causal=False)
    among_target = allowed(segment, segment, causal=True)
    from_target_to_source = allowed(segment, source_segment, causal=False)

    x_sd = embed(config, parameters, row["source"], row["source_position"])
    for i in range(len(parameters["encoder"])):
        layer = parameters["encoder"][i]

        def attend(x_sd, layer=layer):
            return attention(layer["attention"], x_sd, x_sd, among_source)

        def forward(x_sd, layer=layer):
            return feed_forward(layer["ff"], x_sd)

        x_sd = residual(config, layer["attention_sub"], x_sd, attend)
        x_sd = residual(config, layer["ff_sub"], x_sd, forward)
    if config.norm == "pre":
        x_sd = layer_norm(parameters["encoder_norm"], x_sd)

    x_td = embed(config, parameters, row["target_input"], row["target_position"])
    for i in range(len(parameters["decoder"])):
        layer = parameters["decoder"][i]

        def attend(x_td, layer=layer):
            return attention(layer["attention"], x_td, x_td, among_target)

        def attend_to_source(x_td, layer=layer, x_sd=x_sd):
            return attention(layer["cross"], x_td, x_sd, from_target_to_source)

        def forward(x_td, layer=layer):
            return feed_forward(layer["ff"], x_td)

        x_td = residual(config, layer["attention_sub"], x_td, attend)
        x_td = residual(config, layer["cross_sub"], x_td, attend_to_source)
        x_td = residual(config, layer["ff_sub"], x_td, forward)
    if config.norm == "pre":
        x_td = layer_norm(parameters["decoder_norm"], x_td)

    # Section 3.4: the pre-softmax linear transformation is the embedding matrix.
    return x_td @ float64(parameters["embedding"]["tokens"]).T


def float64(array) -> np.ndarray:
    return np.asarray(array, np.float64)


def allowed(query_segment, key_segment, causal: bool) -> list[list[bool]]:
    """Which query (row) may see which key (column)."""
    table = []
    for t in range(len(query_segment)):
        line = []
        for s in range(len(key_segment)):
            both_real = query_segment[t] != 0 and key_segment[s] != 0
            same_sentence = query_segment[t] == key_segment[s]
            from_the_future = causal and s > t
            line.append(bool(both_real and same_sentence and not from_the_future))
        table.append(line)
    return table


def embed(config, parameters, tokens, positions) -> np.ndarray:
    """Embedding times sqrt(d_model) (section 3.4) plus position (section 3.5)."""
    table_vd = float64(parameters["embedding"]["tokens"])
    d_model = table_vd.shape[1]
    x_td = np.zeros((len(tokens), d_model))
    for t, (token, position) in enumerate(zip(tokens, positions, strict=True)):
        if config.positions == "learned":
            position_d = float64(parameters["embedding"]["positions"])[position]
        else:
            position_d = sinusoid(int(position), d_model)
        x_td[t] = table_vd[token] * math.sqrt(d_model) + position_d
    return x_td


def sinusoid(pos: int, d_model: int) -> np.ndarray:
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos."""
    encoding_d = np.zeros(d_model)
    for i in range(d_model // 2):
        angle = pos / math.pow(10000, 2 * i / d_model)
        encoding_d[2 * i] = math.sin(angle)
        encoding_d[2 * i + 1] = math.cos(angle)
    return encoding_d


def residual(config, sub, x_td, sublayer) -> np.ndarray:
    """Section 3.1: LayerNorm(x + Sublayer(x)); pre-norm: x + Sublayer(LayerNorm(x))."""
    if config.norm == "pre":
        return x_td + sublayer(layer_norm(sub["norm"], x_td))
    return layer_norm(sub["norm"], x_td + sublayer(x_td))


def layer_norm(norm, x_td) -> np.ndarray:
    """Ba et al. 2016, equation 4: gain * (a - mean) / deviation + bias."""
    y_td = np.zeros(x_td.shape)
    for t, a_d in enumerate(x_td):
        mean = sum(a_d) / len(a_d)
        variance = sum((a - mean) ** 2 for a in a_d) / len(a_d)
        y_td[t] = (a_d - mean) / math.sqrt(variance + EPSILON)
    return y_td * float64(norm["scale"]) + float64(norm["bias"])


def attention(weights, queries_td, keys_sd, allowed_ts) -> np.ndarray:
    """Section 3.2.2: Concat(head_1, ..., head_h) W^O.

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), where (section 3.2.1)
    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V; here values are the keys.
    """
    _, heads, d_k = weights["query"].shape
    concat = np.zeros((len(queries_td), heads * d_k))
    for h in range(heads):
        q_tk = queries_td @ float64(weights["query"])[:, h, :]
        k_sk = keys_sd @ float64(weights["key"])[:, h, :]
        v_sk = keys_sd @ float64(weights["value"])[:, h, :]
        for t in range(len(queries_td)):
            seen = [s for s in range(len(keys_sd)) if allowed_ts[t][s]]
            if not seen:  # padding
                continue
            scores = [q_tk[t] @ k_sk[s] / math.sqrt(d_k) for s in seen]
            head_k = np.zeros(d_k)
            for s, probability in zip(seen, softmax(scores), strict=True):
                head_k += probability * v_sk[s]
            concat[t, h * d_k : (h + 1) * d_k] = head_k
    w_o = float64(weights["out"]).reshape(heads * d_k, -1)
    return concat @ w_o


def softmax(scores) -> list[float]:
    highest = max(scores)
    exponentials = [math.exp(score - highest) for score in scores]
    return [e / sum(exponentials) for e in exponentials]


def feed_forward(weights, x_td) -> np.ndarray:
    """Equation 2: max(0, x W1 + b1) W2 + b2."""
    inner_tf = x_td @ float64(weights["inner"]) + float64(weights["inner_bias"])
    outer_td = np.maximum(0, inner_tf) @ float64(weights["outer"])
    return outer_td + float64(weights["outer_bias"])


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
