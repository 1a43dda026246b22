"""The translators before the Transformer a second time, as `twin.py` has that one.

From the papers' formulas, with loops over tokens, taps and layers. Each sentence of a
row is a model of its own here, so that a sentence cannot see another; a token outside
of it does not exist.

Shape suffixes: s source, t target, d width, e width of the encoder's output, k taps of
a kernel, i inputs, o outputs; of the Neural GPU: r rows, c columns.
"""

import math
from fractions import Fraction

import numpy as np

from t2t_jax.tools.verify.references.twin import softmax
from tests.model.twin_variants import embeddings, norm, option, relu, tables


def sigmoid(x) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def outputs(config, parameters, batch) -> np.ndarray:
    """The outputs [b, t, d] of a batch; padding has zeros."""
    source_vd, target_vd, _ = tables(config, parameters["embedding"])
    target_bt = batch["target_segment"]
    y_btd = np.zeros((*target_bt.shape, target_vd.shape[1]))
    for b, segment_t in enumerate(target_bt):
        for segment in np.unique(segment_t[segment_t != 0]):
            to_t, from_s = segment_t == segment, batch["source_segment"][b] == segment
            y_btd[b, to_t] = MODELS[config.kind](
                config,
                parameters,
                embeddings(config, source_vd, batch["source"][b, from_s]),
                embeddings(config, target_vd, batch["target_input"][b, to_t]),
            )
    return y_btd


# ------------------------------------------------------------------------------- LSTMs


def lstm(config, parameters, x_sd, y_td) -> np.ndarray:
    """Wu et al. 2016, section 3, or Luong et al. 2015, section 3."""
    if option(config, "lstm_form") == "luong":
        return luong(parameters, x_sd, y_td)
    return gnmt(parameters, x_sd, y_td)


def gnmt(parameters, x_sd, y_td) -> np.ndarray:
    """Wu et al. 2016, section 3, figure 1."""
    z_se = gnmt_encoder(in_order(parameters["encoder"]), x_sd)
    attention, layers = parameters["attention"], in_order(parameters["decoder"])
    states = [zero_state(weights) for weights in layers]
    outputs_td = []
    for y_d in y_td:
        # Equation 4: y_{i-1} is the output of the first layer at the step before.
        before_d, _ = states[0]
        context_e = additive_attention(attention, before_d, z_se)
        x_d = y_d
        for i, weights in enumerate(layers):
            states[i] = lstm_cell(weights, np.concatenate([x_d, context_e]), states[i])
            h_d, _ = states[i]
            x_d = h_d + x_d if i >= 2 else h_d
        outputs_td.append(x_d)
    return np.array(outputs_td)


def gnmt_encoder(layers, x_sd) -> np.ndarray:
    """Section 3.2: the first layer in both directions; residuals are section 3.1."""
    first_layer, *upper_layers = layers
    forward_sd, _ = lstm_layer(first_layer["forward"], x_sd)
    backward_sd, _ = lstm_layer(first_layer["backward"], x_sd[::-1])
    z_se = np.concatenate([forward_sd, backward_sd[::-1]], axis=1)
    for i, weights in enumerate(upper_layers, start=1):
        h_sd, _ = lstm_layer(weights["forward"], z_se)
        z_se = h_sd + z_se if i >= 2 else h_sd  # equation 6
    return z_se


def luong(parameters, x_sd, y_td) -> np.ndarray:
    """Luong et al. 2015, section 3.1, global attention with the score `general`."""
    z_sd, states = x_sd, []
    for weights in in_order(parameters["encoder"]):
        z_sd, state = lstm_layer(weights["forward"], z_sd)
        states.append(state)

    attention = parameters["attention"]
    layers, outputs_td = in_order(parameters["decoder"]), []
    assert len(layers) == len(states)
    for y_d in y_td:
        h_d = y_d
        for i, weights in enumerate(layers):
            states[i] = lstm_cell(weights, h_d, states[i])
            h_d, _ = states[i]
        context_d = general_attention(attention, h_d, z_sd)
        combined_f = np.concatenate([context_d, h_d])
        outputs_td.append(np.tanh(combined_f @ attention["combine"]))  # 5
    return np.array(outputs_td)


def lstm_layer(weights, x_ti, state=None):
    """The outputs [t, d] of all steps, and the last state."""
    state, h_td = state or zero_state(weights), []
    for x_i in x_ti:
        state = lstm_cell(weights, x_i, state)
        h_td.append(state[0])
    return np.array(h_td), state


def lstm_cell(weights, x_i, state):
    """One step: the new (h, c). Hochreiter and Schmidhuber 1997, with forget gates."""
    h_d, c_d = state
    i_d, f_d, g_d, o_d = (
        x_i @ weights["input"][:, g]
        + h_d @ weights["recurrent"][:, g]
        + weights["bias"][g]
        for g in range(4)
    )
    c_d = sigmoid(f_d) * c_d + sigmoid(i_d) * np.tanh(g_d)
    return sigmoid(o_d) * np.tanh(c_d), c_d


def zero_state(weights):
    zeros_d = np.zeros(len(weights["recurrent"]))
    return zeros_d, zeros_d


def additive_attention(weights, q_d, z_se) -> np.ndarray:
    """Equation 4 of Wu et al. with a feed-forward network of one hidden layer."""
    hidden_sd = np.tanh(q_d @ weights["query"] + z_se @ weights["key"])
    return softmax(hidden_sd @ weights["score"]) @ z_se


def general_attention(weights, h_d, z_sd) -> np.ndarray:
    """Section 3.1 of Luong et al.: h^T W z, where W is the transpose of `key`."""
    return softmax(z_sd @ weights["key"] @ h_d) @ z_sd


# ------------------------------------------------------------------------ convolutions


def conv(config, parameters, x_sd, y_td) -> np.ndarray:
    """Gehring et al. 2017, section 3."""
    e_sd = with_positions(config, parameters["encoder_positions"], x_sd)
    z_sd = conv_encoder(config, parameters, e_sd)
    g_td = with_positions(config, parameters["decoder_positions"], y_td)
    x_td, m = normalised_linear(parameters["decoder_in"], g_td), len(z_sd)
    k = option(config, "conv_kernel")
    causal = [j - (k - 1) for j in range(k)]
    for weights in in_order(parameters["decoder"]):
        h_td = glu(normalised_convolution(weights["conv"], x_td, causal))
        d_td = normalised_linear(weights["query"], h_td) + g_td  # equation 1
        c_td = softmax(d_td @ z_sd.T) @ (z_sd + e_sd)  # equation 2
        c_td *= m * math.sqrt(1 / m)  # section 3.4
        h_td = (h_td + normalised_linear(weights["context"], c_td)) * math.sqrt(0.5)
        x_td = (x_td + h_td) * math.sqrt(0.5)
    return normalised_linear(parameters["decoder_out"], x_td)


def conv_encoder(config, parameters, e_sd) -> np.ndarray:
    """Section 3.2; the residual sums are scaled as in section 3.4."""
    k = option(config, "conv_kernel")
    both_sides = [j - (k - 1) // 2 for j in range(k)]
    x_sd = normalised_linear(parameters["encoder_in"], e_sd)
    for weights in in_order(parameters["encoder"]):
        h_sd = glu(normalised_convolution(weights, x_sd, both_sides))
        x_sd = (x_sd + h_sd) * math.sqrt(0.5)
    return normalised_linear(parameters["encoder_out"], x_sd)


def with_positions(config, positions, x_td) -> np.ndarray:
    """Section 3.1: e = (w_1 + p_1, ..., w_m + p_m)."""
    offset = option(config, "position_offset")
    return x_td + positions["table"][offset : offset + len(x_td)]


def glu(v_tf) -> np.ndarray:
    """Section 3.2: v([A B]) = A * sigmoid(B)."""
    d = v_tf.shape[1] // 2
    return v_tf[:, :d] * sigmoid(v_tf[:, d:])


def normalised(weights) -> np.ndarray:
    """Salimans and Kingma 2016, equation 2: w = g v / |v|, one g for each output."""
    v = weights["direction"]
    norm_o = np.sqrt((v**2).sum(axis=tuple(range(v.ndim - 1))))
    return weights["norm"] * v / norm_o


def normalised_linear(weights, x_ti) -> np.ndarray:
    return x_ti @ normalised(weights) + weights["bias"]


def normalised_convolution(weights, x_ti, offsets) -> np.ndarray:
    return convolution(normalised(weights), weights["bias"], x_ti, offsets)


def convolution(kernel_kio, bias_o, x_ti, offsets) -> np.ndarray:
    """y_t = bias + sum over taps k of x_{t + offset of k} kernel_k; no x is zero."""
    y_to = np.tile(np.asarray(bias_o, np.float64), (len(x_ti), 1))
    for t in range(len(x_ti)):
        for kernel_io, offset in zip(kernel_kio, offsets, strict=True):
            if 0 <= t + offset < len(x_ti):
                y_to[t] += x_ti[t + offset] @ kernel_io
    return y_to


def bytenet(config, parameters, x_sd, y_td) -> np.ndarray:
    """Kalchbrenner et al. 2016, section 3; dynamic unfolding is section 3.2."""
    k = option(config, "bytenet_kernel")
    # In decimals, as a config is written: 1.1 * 10 is 11, and not a little more.
    a = Fraction(str(option(config, "bytenet_unfold")))
    b = Fraction(str(option(config, "bytenet_extra")))
    columns = max(len(x_sd), math.ceil(a * len(x_sd) + b))
    x_cd = np.concatenate([x_sd, np.zeros((columns - len(x_sd), x_sd.shape[1]))])
    for i, weights in enumerate(in_order(parameters["encoder"])):
        rate = 2 ** (i % option(config, "bytenet_set"))
        offsets = [(j - (k - 1) // 2) * rate for j in range(k)]
        x_cd = residual_block(config, weights, x_cd, offsets)

    z_td = np.array(y_td)
    for t in range(min(len(y_td), columns)):
        z_td[t] += x_cd[t]
    for i, weights in enumerate(in_order(parameters["decoder"])):
        rate = 2 ** (i % option(config, "bytenet_set"))
        offsets = [(j - (k - 1)) * rate for j in range(k)]
        z_td = residual_block(config, weights, z_td, offsets)
    z_td = relu(norm(config, parameters.get("final_norm"), z_td))
    return z_td @ parameters["final"] + parameters["final_bias"]


def residual_block(config, weights, x_td, offsets) -> np.ndarray:
    """Figure 3, left: three times normalization, ReLU, (masked) convolution."""
    h_td = relu(norm(config, weights.get("norm1"), x_td))
    h_th = h_td @ weights["inner"] + weights["inner_bias"]
    h_th = relu(norm(config, weights.get("norm2"), h_th))
    h_th = convolution(weights["conv"], weights["conv_bias"], h_th, offsets)
    h_th = relu(norm(config, weights.get("norm3"), h_th))
    return x_td + h_th @ weights["outer"] + weights["outer_bias"]


# -------------------------------------------------------------------------- Neural GPU


def neural_gpu(config, parameters, x_sd, y_td) -> np.ndarray:
    """Kaiser and Bengio 2016: the Extended Neural GPU, figure 5.

    The target input is on the tape, so that BOS is where the paper's first tape is
    empty. A state has just the columns that are not zero yet; beside it all is zero.
    """
    rows, d = option(config, "neural_gpu_rows"), x_sd.shape[1]
    state_rcd = np.zeros((rows, len(x_sd), d))
    state_rcd[0] = x_sd
    for _ in range(len(x_sd)):
        for weights in in_order(parameters["encoder"]):
            state_rcd = cgru(weights, state_rcd)

    outputs_td = []
    for t in range(len(y_td)):
        if t == state_rcd.shape[1]:
            state_rcd = np.concatenate([state_rcd, np.zeros((rows, 1, d))], axis=1)
        tape_rcd = np.zeros(state_rcd.shape)
        tape_rcd[0, : t + 1] = y_td[: t + 1]
        for weights in in_order(parameters["decoder"]):
            state_rcd = cgru(weights, state_rcd, tape_rcd)
        outputs_td.append(state_rcd[0, t])
    return np.array(outputs_td)


def cgru(weights, s_rcd, tape_rcd=None) -> np.ndarray:
    """CGRU(s), and with a tape p, CGRU^d(s, p).

    u = sigmoid(U' * s + W' * p + B'), r = sigmoid(U'' * s + W'' * p + B''),
    u s + (1 - u) tanh(U * (r s) + W * p + B).
    """
    gates, biases = weights["gates"], weights["gates_bias"]

    def tape_part(part: int):
        if tape_rcd is None:
            return 0
        return convolution_3x3(weights["tape"][..., part, :], tape_rcd)

    u_rcd, r_rcd = (
        sigmoid(
            convolution_3x3(gates[..., part, :], s_rcd) + tape_part(part) + biases[part]
        )
        for part in range(2)
    )
    candidate_rcd = np.tanh(
        convolution_3x3(weights["candidate"], r_rcd * s_rcd)
        + tape_part(2)
        + weights["candidate_bias"]
    )
    return u_rcd * s_rcd + (1 - u_rcd) * candidate_rcd


def convolution_3x3(kernel_33io, x_rci) -> np.ndarray:
    """y[r, c] = sum of x[r + a - 1, c + b - 1] kernel[a, b]; outside, x is zero."""
    rows, columns, _ = x_rci.shape
    padded_rci = np.pad(x_rci, ((1, 1), (1, 1), (0, 0)))
    return sum(
        padded_rci[a : a + rows, b : b + columns] @ kernel_33io[a, b]
        for a in range(3)
        for b in range(3)
    )


# ---------------------------------------------------------------------------- for all


def in_order(layers) -> list:
    """Layers under integer keys."""
    return [layers[i] for i in range(len(layers))]


MODELS = {"lstm": lstm, "conv": conv, "bytenet": bytenet, "neural_gpu": neural_gpu}
