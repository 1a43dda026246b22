"""The formulas that every model of the twin needs, in float64.

Shape suffixes: t length, d model width, v vocabulary.
"""

import math

import jax
import jax.numpy as jnp
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


def xp(array):
    """The module of an array's functions: NumPy, or JAX's under `jax.grad`."""
    return jnp if isinstance(array, jax.Array) else np


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
    """Ba et al. 2016, equation 4: gain * (a - mean) / deviation + bias.

    RMSNorm (Zhang and Sennrich 2019, equation 4): gain * a / root of the mean of a^2.
    """
    if config.norm_kind == "none":
        return x_td
    if config.norm_kind == "layer":
        x_td = x_td - x_td.mean(axis=-1, keepdims=True)
    square_t1 = (x_td**2).mean(axis=-1, keepdims=True)
    y_td = weights["scale"] * x_td / (square_t1 + config.norm_epsilon) ** 0.5
    return y_td + weights["bias"] if config.norm_kind == "layer" else y_td


def softmax(scores):
    """Softmax over the last axis."""
    exponentials = xp(scores).exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def sigmoid(x) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def relu(x):
    return xp(x).maximum(0, x)
