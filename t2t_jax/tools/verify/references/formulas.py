"""The formulas that every model of the twin needs, in NumPy float64.

Shape suffixes: t length, d model width, v vocabulary.
"""

import math

import numpy as np

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


def float64(array) -> np.ndarray:
    return np.asarray(array, np.float64)


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


def embeddings(config, table_vd, tokens) -> np.ndarray:
    """Embedding times sqrt(d_model) (section 3.4), [t, d]."""
    table_vd = float64(table_vd)
    d_model = table_vd.shape[1]
    scaled = config.embedding_scale and config.kind != "conv"
    scale = math.sqrt(d_model) if scaled else 1
    x_td = np.zeros((len(tokens), d_model))
    for t, token in enumerate(tokens):
        x_td[t] = table_vd[token] * scale
    return x_td


def norm(config, weights, x_td) -> np.ndarray:
    """Ba et al. 2016, equation 4: gain * (a - mean) / deviation + bias.

    RMSNorm (Zhang and Sennrich 2019, equation 4): gain * a / root of the mean of a^2.
    """
    if config.norm_kind == "none":
        return x_td
    y_td, epsilon = np.zeros(x_td.shape), config.norm_epsilon
    for t, a_d in enumerate(x_td):
        if config.norm_kind == "layer":
            mean = sum(a_d) / len(a_d)
            variance = sum((a - mean) ** 2 for a in a_d) / len(a_d)
            y_td[t] = (a_d - mean) / math.sqrt(variance + epsilon)
        else:
            y_td[t] = a_d / math.sqrt(sum(a**2 for a in a_d) / len(a_d) + epsilon)
    y_td *= float64(weights["scale"])
    return y_td + float64(weights["bias"]) if config.norm_kind == "layer" else y_td


def softmax(scores) -> list[float]:
    highest = max(scores)
    exponentials = [math.exp(score - highest) for score in scores]
    return [e / sum(exponentials) for e in exponentials]


def sigmoid(x) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def relu(x) -> np.ndarray:
    return np.maximum(0, x)
