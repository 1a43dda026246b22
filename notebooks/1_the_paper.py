# %% [markdown]
# # 1. The paper from the top
#
# This notebook walks through "Attention Is All You Need" (Vaswani et al. 2017) section
# by section. Each equation stands beside the code that runs, and beside a number or a
# picture that checks it. Read it with the paper in the other hand: sections, equations,
# figures and tables have the paper's numbers.
#
# Sections 3 and 4 need no training. In section 5 a small model is trained, which takes
# some minutes on two CPU cores; the rest of the notebook looks at that model.

# %%
# Installs t2t_jax if it is missing. If this notebook is not in a checkout, set
# REPOSITORY to what to clone, such as "git+https://github.com/NAME/t2t_jax".
REPOSITORY = ""

import importlib.util
import subprocess
import sys
from pathlib import Path

if not all(map(importlib.util.find_spec, ("t2t_jax", "experiments", "matplotlib"))):
    folder = Path.cwd().parent
    if not (folder / "setup.py").is_file():
        folder = Path.cwd() / "t2t_jax_checkout"
        if not REPOSITORY and not folder.is_dir():
            raise SystemExit("t2t_jax is not installed; set REPOSITORY in this cell")
        if not folder.is_dir():
            url = REPOSITORY.removeprefix("git+")
            subprocess.run(["git", "clone", "--depth=1", url, folder], check=True)
    install = [sys.executable, "-m", "pip", "install", "-q", "-e"]
    subprocess.run([*install, f"{folder}[notebooks]"], check=True)
    sys.path.insert(0, str(folder))  # this process started before the installation

# %%
import inspect
import itertools
import os
import textwrap
from collections import Counter

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx
from matplotlib.patches import FancyBboxPatch

import t2t_jax
from experiments.measures import attention_patterns, layer_cost
from t2t_jax import Translator, load_config, train
from t2t_jax import config as fields
from t2t_jax.costs import flops
from t2t_jax.extensions.grammar import corpus
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.model import (
    attention,
    embedding,
    feed_forward,
    layers,
    positions,
    transformer,
)
from t2t_jax.model.architecture import logits
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.model import build
from t2t_jax.model.transformer import Transformer
from t2t_jax.search.algorithm import gnmt_penalty
from t2t_jax.search.beam import beam_search
from t2t_jax.tools.plan import describe
from t2t_jax.training.averaging import parameter_steps
from t2t_jax.training.cross_entropy import cross_entropy, cross_entropy_gradient
from t2t_jax.training.optimizers import optimizer
from t2t_jax.training.schedules import schedule

ROOT = Path(t2t_jax.__file__).parents[1]  # the checkout
# The environment variables are for tests, which train for fewer steps.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", "tiny")
STEPS = int(os.environ.get("T2T_JAX_NOTEBOOK_STEPS", 600))
WORKDIR = Path(os.environ.get("T2T_JAX_NOTEBOOK_WORKDIR", ROOT / "runs/tiny"))

base = fields.from_config_dict(load_config("base"))  # Table 3, first row
big = fields.from_config_dict(load_config("big"))  # Table 3, last row
rng = np.random.default_rng(0)


def show(*functions):
    """Prints the source of the project's own functions."""
    for function in functions:
        print(textwrap.dedent(inspect.getsource(function)))


def error(a, b):
    """The largest difference of two arrays."""
    return float(np.abs(np.asarray(a, float) - np.asarray(b, float)).max())


def plain(*axes):
    """Removes the frame's upper and right line."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)


# %% [markdown]
# ## 3 Model architecture
#
# The encoder maps the source $(x_1, \dots, x_n)$ to vectors $(z_1, \dots, z_n)$. The
# decoder generates the target $(y_1, \dots, y_m)$ one token at a time, and reads what
# it has already generated.
#
# **Figure 1**, drawn from the actual module tree of the base model. A box is a module;
# the numbers are the shapes of its weights. `nnx.eval_shape` creates the model without
# allocating its 63 million numbers.


# %%
def children(layer):
    """The modules of a layer in the order in which the layer creates them."""
    return [(k, m) for k, m in vars(layer).items() if isinstance(m, nnx.Module)]


def label(name, module, causal):
    """A name as in figure 1, and a text with the shapes of the weights."""
    if isinstance(module, transformer.SubLayer):
        return "Add & Norm", "norm", ""
    if isinstance(module, attention.Attention):
        title = "Multi-Head Attention"
        if causal and name != "cross":
            title = "Masked " + title
        shapes = f"$W^Q, W^K, W^V$ {shape(module.query)};  $W^O$ {shape(module.out)}"
        return title, "attention", shapes
    shapes = f"$W_1$ {shape(module.inner)};  $W_2$ {shape(module.outer)}"
    return "Feed Forward", "ff", shapes


def shape(parameter):
    return " × ".join(map(str, parameter.shape))


COLORS = {"attention": "#fbe0c0", "ff": "#c6e4f2", "norm": "#f3f3c8", "": "#eeeeee"}


def box(ax, x, y, title, small="", color="", width=3.1, height=0.62):
    """Draws a box whose lower edge is at y; returns its upper edge."""
    style = "round,pad=0.02,rounding_size=0.08"
    corner = x - width / 2, y
    face = COLORS.get(color, color)
    ax.add_patch(
        FancyBboxPatch(corner, width, height, style, facecolor=face, edgecolor="0.3")
    )
    ax.text(
        x, y + height * (0.68 if small else 0.5), title, ha="center", va="center",
        fontsize=9,
    )  # fmt: skip
    ax.text(x, y + height * 0.27, small, ha="center", va="center", fontsize=6.5)
    return y + height


def arrow(ax, start, end, **style):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.3"} | style)


def draw_stack(ax, x, y, stack, causal):
    """Draws one layer of a stack in a frame; returns its top, and where modules are."""
    bottom, heights = y - 0.3, {}
    modules = children(stack[0])
    # A sub-layer is followed by its residual connection.
    for (name, module), (_, residual) in zip(modules[::2], modules[1::2], strict=True):
        title, color, small = label(name, module, causal)
        heights[name] = y + 0.31
        top = box(ax, x, y, title, small, color)
        arrow(ax, (x, top), (x, top + 0.15))
        middle = top + 0.33
        around = [x, x - 1.75, x - 1.75, x - 1.55], [y - 0.18, y - 0.18, middle, middle]
        ax.plot(*around, color="0.3", linewidth=0.9)
        title, color, _ = label(name, residual, causal)
        top = box(ax, x, top + 0.15, title, "", color, height=0.36)
        y = top + 0.42
        arrow(ax, (x, top), (x, y))
    size = 3.75, y - 0.27 - bottom
    frame = FancyBboxPatch((x - 1.95, bottom), *size, "round,pad=0.02")
    frame.set(facecolor="none", edgecolor="0.5", linestyle="--")
    ax.add_patch(frame)
    side = 2.15 if causal else -2.3
    ax.text(x + side, (bottom + y) / 2, f"{len(stack)}×", ha="center", fontsize=12)
    return y, heights


# %%
VOCABULARY = 37_000  # section 5.1
model = nnx.eval_shape(lambda: Transformer(base.model, VOCABULARY, jax.random.key(0)))

ax = plt.subplots(figsize=(8, 7.6), layout="constrained")[1]
tops = {}
for x, side, stack in ((0, "encoder", model.encoder), (5, "decoder", model.decoder)):
    causal = side == "decoder"
    text = "Output" if causal else "Input"
    ax.text(x, -0.1, f"{text}s{' (shifted right)' * causal}", ha="center", va="top")
    arrow(ax, (x, -0.05), (x, 0.3))
    table = shape(model.embedding.tokens)
    y = box(ax, x, 0.3, f"{text} Embedding", f"one table, {table}", "#f7dede")
    arrow(ax, (x, y), (x, y + 0.35))
    y = box(ax, x, y + 0.35, "+ Positional Encoding", color="#ffffff", height=0.36)
    arrow(ax, (x, y), (x, y + 0.65))
    tops[side], heights = draw_stack(ax, x, y + 0.65, stack, causal)
top, y = tops["encoder"], heights["cross"]
ax.plot([0, 0, 2.5, 2.5], [top - 0.3, top + 0.1, top + 0.1, y], color="0.3", lw=0.9)
arrow(ax, (2.5, y), (3.45, y))
ax.text(2.55, y + 0.1, "keys,\nvalues", fontsize=8, color="0.3")
y = box(ax, 5, tops["decoder"], "Linear", f"the same table, {table}", "#dcd6ee")
arrow(ax, (5, y), (5, y + 0.3))
y = box(ax, 5, y + 0.3, "Softmax", color="#cfe8cf", height=0.36)
arrow(ax, (5, y), (5, y + 0.3))
ax.text(5, y + 0.35, "Output probabilities", ha="center")
ax.set(xlim=(-2.6, 7.5), ylim=(-0.5, y + 0.7), title="Figure 1: the base model")
ax.set_axis_off()

# %% [markdown]
# ### 3.1 Residual connections and layer normalization
#
# The output of each sub-layer is
#
# $$\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$$
#
# `SubLayer.after` gets the input $x$ and the output $y$ of a sub-layer. It also has
# dropout (section 5.4), and the order of later models (`pre_norm`), which normalize
# $x$ before the sub-layer.

# %%
show(transformer.SubLayer.after, layers.LayerNorm.__call__)

# %%
x, y = rng.normal(size=(2, 1, 7, 512)).astype(np.float32)
ours = transformer.SubLayer(base.model).after(x, y, None)

added = x + y
mean, variance = added.mean(-1, keepdims=True), added.var(-1, keepdims=True)
print("largest difference from NumPy:", error(ours, (added - mean) / variance**0.5))
print(f"each vector: mean {ours[0, 0].mean():.4f}, variance {ours[0, 0].var():.4f}")

# %% [markdown]
# ### 3.2.1 Scaled dot-product attention
#
# Equation 1:
#
# $$\mathrm{Attention}(Q, K, V)
# = \mathrm{softmax}\left(\frac{QK^T}{\sqrt{d_k}}\right)V$$
#
# The code has one function for each step, from the queries to the output. The letters
# after a name are its axes: **b**atch, **t** queries, **s** keys, **h** heads, and
# **k**, the features of a head. `mask` says which keys count (section 3.2.3).
# `position` is the position scheme: other schemes than the paper's add something to the
# scores or to the values.

# %%
show(
    attention.scaled,
    attention.scores,
    attention.attention_weights,
    attention.weighted_values,
)


# %%
def one_sentence(length):
    """The tokens of one sentence that fills a row."""
    return Tokens(jnp.ones((1, length), int), jnp.arange(length)[None])


def attend(q, k, v, causal=False):
    """The project's attention of one head; q, k, v are matrices as in equation 1."""
    with_axes = (jnp.asarray(a, jnp.float32)[None, :, None] for a in (q, k, v))
    q_bthk, k_bshk, v_bshk = with_axes
    at = one_sentence(len(q))
    mask = Mask(at, at, causal=causal)
    kv = attention.KV(k_bshk, v_bshk)
    weights = attention.attention_weights(q_bthk, kv, mask, attention.NO_POSITION)[0, 0]
    no_dropout = layers.Dropout(0.0, None)
    outputs = attention.dense(q_bthk, kv, mask, attention.NO_POSITION, no_dropout)
    return np.asarray(outputs[0, :, 0]), np.asarray(weights)


Q, K, V = rng.normal(size=(3, 6, 64))
ours, weights = attend(Q, K, V)

# Equation 1 in NumPy:
exponentials = np.exp(Q @ K.T / np.sqrt(64))
numpy = exponentials / exponentials.sum(-1, keepdims=True) @ V
print("largest difference from NumPy:", error(ours, numpy))

# %% [markdown]
# **Figure 2, left**, with numbers in it: each step of equation 1, with the optional
# mask. Rows are queries; the columns of the first four pictures are keys, those of the
# last one are the first 6 features of the output. Below are the smallest and the
# largest number. The mask adds $-10^9$ to the scores of later keys (white), so softmax
# makes them exactly 0.

# %%
ours, weights = attend(Q, K, V, causal=True)
scores = Q @ K.T
masked = np.where(np.tri(6, dtype=bool), scores / 8, np.nan)
steps = [
    ("MatMul: $QK^T$", scores, "RdBu_r"),
    (r"Scale: $/\sqrt{d_k}$", scores / 8, "RdBu_r"),
    ("Mask (opt.)", masked, "RdBu_r"),
    ("SoftMax", weights, "Blues"),
    ("MatMul: times $V$", ours[:, :6], "RdBu_r"),
]
fig, axes = plt.subplots(1, 5, figsize=(9, 2.3), layout="constrained")
for ax, (title, values, colours) in zip(axes, steps, strict=True):
    largest = np.nanmax(np.abs(values))
    lowest = 0 if colours == "Blues" else -largest
    ax.imshow(values, cmap=colours, vmin=lowest, vmax=largest)
    ax.set_title(title, fontsize=10)
    ax.set(xticks=[], yticks=[])
    ax.set_xlabel(f"{np.nanmin(values):.1f} to {np.nanmax(values):.1f}", fontsize=8)
print("on later keys:", weights[np.triu_indices(6, k=1)].sum())

# %% [markdown]
# #### Why divide by $\sqrt{d_k}$?
#
# Footnote 4: if the components of $q$ and $k$ are independent with mean 0 and variance
# 1, then $q \cdot k = \sum_{i=1}^{d_k} q_i k_i$ has mean 0 and variance $d_k$. Measured
# over 20,000 random pairs:

# %%
print(f"{'d_k':>5} {'var(q·k)':>10} {'var(scaled(q)·k)':>18}")
for d_k in (4, 16, 64, 256):
    q, k = rng.normal(size=(2, 20_000, d_k))
    products, scaled_products = (q * k).sum(-1), (attention.scaled(q) * k).sum(-1)
    print(f"{d_k:5} {products.var():10.2f} {scaled_products.var():18.3f}")

# %% [markdown]
# Scores of a large variance push softmax "into regions where it has extremely small
# gradients": one key gets nearly all the weight, and a small change of a score changes
# nothing. The pictures compare `dense` attention with the project's `unscaled`
# attention, which leaves the division out, for 10 keys. The gradient is the mean size
# of $\partial\, \mathrm{softmax}(s) / \partial s = \mathrm{diag}(p) - pp^T$.


# %%
def largest_and_gradient(weights_bhts):
    """The mean of the largest weights, and of the norm of softmax's derivative."""
    p = np.asarray(weights_bhts[0, 0], np.float64)
    derivative = p[:, :, None] * np.eye(p.shape[-1]) - p[:, :, None] * p[:, None, :]
    return p.max(-1).mean(), np.linalg.norm(derivative, axis=(1, 2)).mean()


sizes, queries, keys = [4, 8, 16, 32, 64, 128, 256, 512, 1024], 500, 10
measured = {"dense": [], "unscaled": []}
for d_k in sizes:
    q_bthk = jnp.asarray(rng.normal(size=(1, queries, 1, d_k)), jnp.float32)
    k_bshk = jnp.asarray(rng.normal(size=(1, keys, 1, d_k)), jnp.float32)
    mask = Mask(one_sentence(queries), one_sentence(keys))
    for name, points in measured.items():
        function = attention.ATTENTION[name].weights
        kv = attention.KV(k_bshk, k_bshk)
        points.append(
            largest_and_gradient(function(q_bthk, kv, mask, attention.NO_POSITION))
        )

fig, axes = plt.subplots(1, 2, figsize=(8, 2.9), layout="constrained")
for ax, title, column in zip(
    axes, ("Largest of 10 weights", "Size of softmax's gradient"), (0, 1), strict=True
):
    for name, points in measured.items():
        ax.plot(sizes, np.array(points)[:, column], "o-", label=name)
    ax.set_xscale("log", base=2)
    ax.set(xlabel="$d_k$", title=title, ylim=(0, None))
axes[0].legend(frameon=False)
plain(*axes)

# %% [markdown]
# ### 3.2.2 Multi-head attention
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \dots,
# \mathrm{head}_h)W^O, \qquad
# \mathrm{head}_i = \mathrm{Attention}(QW_i^Q, KW_i^K, VW_i^V)$$
#
# The base model has $h = 8$ heads of $d_k = d_v = d_{model}/h = 64$. A weight of the
# module holds the matrices of all heads.

# %%
show(attention.Attention._project)
module = attention.Attention(base.model, jax.random.key(0))
for name in ("query", "key", "value", "out"):
    print(f"{name:6}", getattr(module, name).shape)

# %% [markdown]
# The product of the concatenation with $W^O$ is a *sum over heads*: head $i$ meets only
# its own 64 rows of $W^O$,
#
# $$\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h)W^O
# = \sum_{i=1}^{h} \mathrm{head}_i W_i^O .$$
#
# So heads do not depend on each other, and a head can be removed by setting its $W_i^O$
# to 0. The module itself computes the sum, `einsum("bthk,hkd->btd", ...)`.

# %%
x = jnp.asarray(rng.normal(size=(1, 6, 512)), jnp.float32)
at = one_sentence(6)
ours = np.asarray(module(x, module.keys_values(x), Mask(at, at)))[0]

W_Q, W_K, W_V, W_O = (
    np.asarray(getattr(module, name)[...]) for name in ("query", "key", "value", "out")
)
X = np.asarray(x[0])
heads = [attend(X @ W_Q[:, i], X @ W_K[:, i], X @ W_V[:, i])[0] for i in range(8)]
concatenated = np.concatenate(heads, axis=-1) @ W_O.reshape(512, 512)
summed = sum(head @ W_O[i] for i, head in enumerate(heads))
print("module and concatenation:", error(ours, concatenated))
print("module and sum of heads: ", error(ours, summed))

# %% [markdown]
# "Due to the reduced dimension of each head, the total computational cost is similar to
# that of single-head attention with full dimensionality." Counted in the code, for 64
# tokens; **figure 2, right**, shows the flow with the shapes of the base model.

# %%
for h in (1, 8, 32):
    config = fields.changed(base, "model", heads=h, attention="dense").model
    wide = jax.ShapeDtypeStruct((1, 64, 512), jnp.float32)
    at = one_sentence(64)
    several = attention.Attention(config, jax.random.key(0))
    count = flops.count(
        lambda x, m=several, at=at: m(x, m.keys_values(x), Mask(at, at)), wide
    )
    parameters = sum(p.size for p in jax.tree.leaves(nnx.state(several)))
    print(f"{h:2} heads: {parameters:,} parameters, {count:,.0f} FLOPs")

# %%
ax = plt.subplots(figsize=(6.6, 4.6), layout="constrained")[1]
copies = [0.24, 0.16, 0.08, 0]  # boxes behind each other stand for heads
for x, name in ((-2.6, "V"), (0, "K"), (2.6, "Q")):
    ax.text(x, -0.05, f"${name}$: n × 512", ha="center", va="top", fontsize=9)
    arrow(ax, (x, 0), (x, 0.5))
    for shift in copies:
        box(ax, x + shift, 0.5 + shift, "", "", "#eeeeee", width=2.1)
    box(ax, x, 0.5, "Linear", f"$W_i^{name}$: 512 × 64", width=2.1)
    arrow(ax, (x, 1.15), (x * 0.75, 2.0))
for shift in copies:
    box(ax, shift, 2.0 + shift, "", "", "attention", width=6.6)
box(ax, 0, 2.0, "Scaled Dot-Product Attention", "n × 64 each", "attention", width=6.6)
ax.text(3.75, 2.5, "h = 8 heads", fontsize=9)
arrow(ax, (0, 2.9), (0, 3.3))
y = box(ax, 0, 3.3, "Concat", "n × 8 · 64 = n × 512", "#f3f3c8")
arrow(ax, (0, y), (0, y + 0.3))
y = box(ax, 0, y + 0.3, "Linear", "$W^O$: 512 × 512")
arrow(ax, (0, y), (0, y + 0.35))
ax.set(xlim=(-4.1, 5.2), ylim=(-0.45, y + 0.4))
ax.set_title("Figure 2, right: multi-head attention", fontsize=11)
ax.set_axis_off()

# %% [markdown]
# ### 3.2.3 Masks: the future does not change the past
#
# The decoder must not see the tokens that it is going to predict. A `Mask` says which
# keys a query may attend to; `bias()` is what it adds to the scores.

# %%
show(Mask.bias)
at = one_sentence(4)
print(np.asarray(Mask(at, at, causal=True).allowed()[0, 0]).astype(int))

# %% [markdown]
# Does it hold for the complete model? The next cell takes a small decoder with random
# weights and a target of 12 tokens. It changes one token of the target, once for each
# position, and measures how much the output at every position changes. The encoder is
# treated in the same way: there all positions see each other.

# %%
small = fields.changed(
    base, "model", layers=2, width=64, heads=4, hidden=128, dropout=0.0
)
built = build(small.model, 50)
network = nnx.merge(built.definition, built.init(jax.random.key(1)))
n = 12
row = rng.integers(4, 50, n)
rows = np.tile(row, (n + 1, 1))  # the last row is unchanged
rows[np.arange(n), np.arange(n)] = (row - 4 + 7) % 46 + 4
everywhere = Tokens(jnp.ones_like(rows), jnp.broadcast_to(jnp.arange(n), rows.shape))
fixed = jnp.asarray(np.tile(row, (n + 1, 1)))


@jax.jit
def both_outputs(rows):
    batch = {"source": fixed, "target_input": rows}
    for side in ("source", "target"):
        batch[f"{side}_segment"], batch[f"{side}_position"] = everywhere
    # The encoder's output, as the keys for the decoder's first layer.
    k_bshk = network.encode(rows, everywhere).kvs[0].k_bshk
    return logits(network, batch), k_bshk.reshape(*rows.shape, -1)


changes = [
    np.abs(np.asarray(outputs[:-1] - outputs[-1])).max(-1)
    for outputs in both_outputs(jnp.asarray(rows))
]

fig, axes = plt.subplots(1, 2, figsize=(7.6, 3.5), layout="constrained")
for ax, change, title in zip(axes, changes, ("Decoder", "Encoder"), strict=True):
    ax.imshow(np.where(change > 0, change, np.nan), cmap="viridis")
    ax.set(title=title, xlabel="output at position", ylabel="changed token")
fig.suptitle("Size of the change; white: no bit of the output changes")
print(
    "decoder, outputs before the changed token:",
    changes[0][np.tril_indices(n, -1)].max(),
)

# %% [markdown]
# The white triangle is exactly 0. So the decoder can be trained on all positions of a
# sentence at once, and generates one token at a time with the same results.
#
# ### 3.3 Position-wise feed-forward networks
#
# Equation 2:
#
# $$\mathrm{FFN}(x) = \max(0, xW_1 + b_1)W_2 + b_2$$
#
# with $d_{model} = 512$ and $d_{ff} = 2048$. "Position-wise" means: every token by
# itself, with the same weights. So permuting the tokens permutes the outputs.

# %%
show(feed_forward.FeedForward.__call__)

# %%
ff = feed_forward.FEED_FORWARD["relu"](base.model, jax.random.key(0))
x = jnp.asarray(rng.normal(size=(1, 6, 512)), jnp.float32)
W_1, b_1, W_2, b_2 = (
    np.asarray(p[...]) for p in (ff.inner, ff.inner_bias, ff.outer, ff.outer_bias)
)
hidden = np.maximum(0, np.asarray(x[0]) @ W_1 + b_1)
print("largest difference from NumPy:", error(ff(x)[0], hidden @ W_2 + b_2))
order = rng.permutation(6)
print("permuted tokens:              ", error(ff(x[:, order]), ff(x)[:, order]))

# %% [markdown]
# ### 3.4 Embeddings and softmax
#
# "We share the same weight matrix between the two embedding layers and the pre-softmax
# linear transformation. In the embedding layers, we multiply those weights by
# $\sqrt{d_{model}}$."
#
# The table starts with a variance of $1/d_{model}$: right for logits, which are dot
# products with it. As embeddings its rows would be small beside the sinusoids, whose
# mean square is 1/2. The factor makes their mean square 1.

# %%
show(embedding.Embedding._embed)

# %%
table = embedding.Embedding(base.model, 1_000, jax.random.key(0))
words = jnp.arange(1_000)[None]
no_position = attention.NO_POSITION
embedded = table.source(words, one_sentence(1_000), no_position, None)
sinusoids = positions.sinusoids(1_000, 512)
print(f"mean square of the table      {np.square(table.tokens[...]).mean():.5f}")
print(f"mean square of the embeddings {np.square(embedded).mean():.5f}")
print(f"mean square of the sinusoids  {np.square(sinusoids).mean():.5f}")
print("one table for all three:", table.output_layer()[0] is table.tokens[...])

# %% [markdown]
# ### 3.5 Positional encoding
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}}), \qquad
# PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$

# %%
show(positions.sinusoids)

# %%
PE = positions.sinusoids(200, 128)
pos, i = 17, 5
print(
    "the formulas:",
    np.sin(pos / 10000 ** (10 / 128)),
    np.cos(pos / 10000 ** (10 / 128)),
)
print("the table:   ", *PE[pos, [2 * i, 2 * i + 1]])

# %% [markdown]
# "For any fixed offset $k$, $PE_{pos+k}$ can be represented as a linear function of
# $PE_{pos}$." With $\omega_i = 1/10000^{2i/d_{model}}$, the function rotates each pair
# of sine and cosine by $k\omega_i$, whatever the position is:
#
# $$\begin{pmatrix} \sin((pos+k)\,\omega_i) \\ \cos((pos+k)\,\omega_i) \end{pmatrix} =
# \begin{pmatrix} \cos k\omega_i & \sin k\omega_i \\
# -\sin k\omega_i & \cos k\omega_i \end{pmatrix}
# \begin{pmatrix} \sin(pos\,\omega_i) \\ \cos(pos\,\omega_i) \end{pmatrix}$$


# %%
def shift_matrix(k, width):
    """The matrix M_k for which PE[pos + k] = M_k PE[pos] at every position."""
    matrix = np.zeros((width, width))
    for i in range(width // 2):
        angle = k / 10000 ** (2 * i / width)
        sin, cos = np.sin(angle), np.cos(angle)
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, sin], [-sin, cos]]
    return matrix


for k in (1, 5, 40):
    difference = error(PE[:-k] @ shift_matrix(k, 128).T, PE[k:])
    print(f"k = {k:2}: largest error at {len(PE) - k} positions {difference:.1e}")

# %% [markdown]
# The dot product of two encodings depends on their distance alone, and mostly falls
# with it. The three curves on the right begin at different positions and lie on each
# other.

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3), layout="constrained")
image = left.imshow(PE[:80].T, cmap="RdBu_r", aspect="auto")
left.set(xlabel="position", ylabel="dimension", title="The sinusoids")
fig.colorbar(image, ax=left)
for pos, style in ((20, "-"), (90, "--"), (160, ":")):
    distance = np.arange(-20, 39)
    right.plot(distance, PE[pos + distance] @ PE[pos], style, label=f"pos = {pos}")
right.set(xlabel="distance k", title="$PE_{pos} \\cdot PE_{pos+k}$")
right.legend(frameon=False)
plain(right)

# %% [markdown]
# ## 4 Why self-attention
#
# **Table 1**, measured. `flops.count` counts the FLOPs of the matrix products in a
# function's jaxpr; it computes nothing. The exponents say how the count of a layer
# grows with the length $n$ and the width $d$: `n^2.0` means that twice the length costs
# $2^2$ times as much. The last column is the number of sequential operations at
# $n = 512$: the longest chain of loop iterations that wait for each other.

# %%
paper_says = {  # layer of this project: (row of table 1, complexity, sequential)
    "attention_function": ("Self-Attention", "O(n² d)", "O(1)"),
    "recurrence": ("Recurrent", "O(n d²)", "O(n)"),
    "convolution": ("Convolutional", "O(k n d²)", "O(1)"),
    "restricted_function": ("Self-Attention (restricted)", "O(r n d)", "O(1)"),
}


def layer_flops(layer, n, d):
    apply, _, shapes = layer_cost.build_layer(layer, d, {})
    return flops.count(apply, shapes, jax.ShapeDtypeStruct((1, n, d), jnp.float32))


print(f"{'':28}{'the paper':>20}{'measured':>22}")
for layer, (name, complexity, chain) in paper_says.items():
    n, d = 512, 256
    once = layer_flops(layer, n, d)
    in_n = np.log2(layer_flops(layer, 2 * n, d) / once)
    in_d = np.log2(layer_flops(layer, n, 2 * d) / once)
    apply, _, shapes = layer_cost.build_layer(layer, d, {})
    x = jax.ShapeDtypeStruct((1, n, d), jnp.float32)
    loops = layer_cost.sequential_operations(apply, shapes, x)
    exponents = f"n^{in_n:.1f} d^{in_d:.1f}"
    print(f"{name:28}{complexity:>12}{chain:>8}{exponents:>16}{loops:6.0f}")

# %% [markdown]
# The third column of the table, the **maximum path length**, is the number of steps
# which a signal needs from one end of a sentence to the other. Measured with gradients:
# how many layers does it take until the last output depends on the first input, times
# the sequential operations in a layer? The convolutions have a kernel of 3, so each
# layer reaches one token further; the neighbourhood of restricted attention is 32.

# %%
for layer, says in {
    "attention": "O(1)",
    "recurrence": "O(n)",
    "convolution": "O(n/k)",
    "restricted": "O(n/r)",
}.items():
    path = layer_cost.path_lengths(None, layer, [65])["longest"]
    print(f"{layer:12} the paper: {says:8} measured for n = 65: {path:3}")

# %% [markdown]
# The table leaves the four projections of multi-head attention out; they add
# $8 n d^2$ FLOPs. The picture counts a complete attention layer, too. "Self-attention
# layers are faster than recurrent layers when the sequence length $n$ is smaller than
# the representation dimensionality $d$." An LSTM multiplies with 8 matrices of
# $d \times d$, so in FLOPs it loses up to a larger $n$.

# %%
lengths, d = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096], 512
ax = plt.subplots(figsize=(6, 3.4), layout="constrained")[1]
for layer, name in (
    ("attention_function", "self-attention, as in table 1"),
    ("attention", "self-attention with projections"),
    ("recurrence", "recurrent (LSTM)"),
    ("restricted_function", "restricted self-attention, r = 32"),
):
    ax.loglog(
        lengths, [layer_flops(layer, n, d) for n in lengths], "o-", ms=3, label=name
    )
ax.axvline(d, color="0.7", linewidth=1)
ax.text(d * 0.95, 1e6, "n = d", rotation=90, ha="right", color="0.4")
ax.set(xlabel="length n", ylabel="FLOPs of one layer", title="d = 512")
ax.legend(frameon=False, fontsize=8)
plain(ax)

# %% [markdown]
# ## 5 Training
#
# ### 5.2 How large the models are
#
# The number of parameters of the base and the big model, by part. The formula at the
# left follows from sections 3.1 to 3.4; `describe` counts the arrays of the model. The
# paper's table 3 says 65 and 213 million; the count depends on the vocabulary, of which
# section 5.1 says "about 37000" pieces.

# %%
counted = {
    name: describe.describe(config)["parameters"]
    for name, config in (("base", base), ("big", big))
}
by_hand = {}
for name, config in (("base", base), ("big", big)):
    d, f, N = config.model.width, config.model.hidden, config.model.layers
    network = 2 * d * f + f + d  # equation 2
    by_hand[name] = {
        "embedding": VOCABULARY * d,
        "encoder": N * (4 * d * d + network),
        "decoder": N * (8 * d * d + network),
        "norms": N * 5 * 2 * d,  # 2 in a layer of the encoder, 3 in one of the decoder
    }
print(f"{'':28}{'base':>14}{'big':>14}   by hand")
for part, formula in {
    "embedding": "v d",
    "encoder": "N (4 d² + 2 d f + f + d)",
    "decoder": "N (8 d² + 2 d f + f + d)",
    "norms": "N (2 + 3) 2 d",
}.items():
    counts = [counted[name]["parts"][part] for name in ("base", "big")]
    same = counts == [by_hand[name][part] for name in ("base", "big")]
    print(
        f"{part:10} {formula:25}" + "".join(f"{n:>14,}" for n in counts),
        "  same" * same,
    )
totals = [counted[name]["total"] for name in ("base", "big")]
print(f"{'total':28}" + "".join(f"{n:>14,}" for n in totals))

# %% [markdown]
# Table 2 gives the training cost of the base model as $3.3 \cdot 10^{18}$ FLOPs. The
# paper estimates it as time × number of GPUs × what such a GPU can sustain. Counted
# from the code, without attention's pairs of tokens, which add a few percent:

# %%
per_token = describe.describe(base)["compute"]
tokens = base.train.steps * 25_000  # of each side; section 5.1
total = tokens * (per_token["flops_source_token"] + per_token["flops_target_token"])
print(f"{total:.2g} FLOPs are needed, {total / 3.3e18:.0%} of the paper's estimate")

# %% [markdown]
# ### 5.3 Optimizer
#
# Adam with $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\epsilon = 10^{-9}$, and equation 3:
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step\_num^{-0.5},\;
# step\_num \cdot warmup\_steps^{-1.5})$$

# %%
steps = np.arange(1, 20_001)
equation_3 = 512**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5)
rates = np.asarray(schedule(base)(steps - 1))  # the code counts from 0
print("largest relative difference:", np.abs(rates / equation_3 - 1).max())

ax = plt.subplots(figsize=(6, 2.7), layout="constrained")[1]
for width, warmup in ((512, 4000), (512, 8000), (256, 4000), (1024, 4000)):
    config = fields.changed(base, "train", warmup=warmup)
    config = fields.changed(config, "model", width=width, heads=8)
    name = f"$d_{{model}}$ = {width}, warm-up {warmup:,}"
    ax.plot(steps, schedule(config)(steps - 1), label=name)
ax.set(xlabel="step", ylabel="learning rate", title="Equation 3", ylim=(0, None))
ax.legend(frameon=False, fontsize=8)
plain(ax)

# %% [markdown]
# And Adam itself: five updates of four numbers, by Kingma and Ba's algorithm 1 in NumPy
# and by the project's optimizer, which takes the rate from equation 3.

# %%
gradients = rng.normal(size=(5, 4)).astype(np.float32)
theirs = optimizer(base)
state = theirs.init(np.zeros(4, np.float32))
x, m, v = np.zeros(4), 0, 0
for step, g in enumerate(gradients, 1):
    update, state = theirs.update(g, state)
    m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
    m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.98**step)
    by_numpy = -equation_3[step - 1] * m_hat / (np.sqrt(v_hat) + 1e-9)
    print(
        f"update {step}: {np.asarray(update)}, difference {error(update, by_numpy):.0e}"
    )

# %% [markdown]
# The first update is the learning rate with the gradient's sign, however large the
# gradient is. The warm-up keeps it tiny while $v$ rests on few gradients.
#
# ### 5.4 Regularization: dropout and label smoothing
#
# **Residual dropout** sets a share $P_{drop}$ of the numbers to 0 and scales the others
# up, so that the mean stays.

# %%
ones = jnp.ones((8, 100, 512))
dropped = layers.dropout(ones, 0.1, layers.DropoutRng(jax.random.key(0), jnp.arange(8)))
print(f"zeros {np.mean(dropped == 0):.4f}, mean {dropped.mean():.4f}")

# %% [markdown]
# **Label smoothing** with $\epsilon_{ls} = 0.1$: the target distribution gives
# $1 - \epsilon_{ls}$ to the true piece and spreads $\epsilon_{ls}$ over the whole
# vocabulary of $v$ pieces. The loss is lowest where the model predicts exactly that
# distribution: $p = 1 - \epsilon_{ls} + \epsilon_{ls}/v$ for the true piece. "This
# hurts perplexity, as the model learns to be more unsure".

# %%
show(cross_entropy)


# %%
def loss_at(p, smoothing, v=VOCABULARY):
    """The loss if the true piece has probability p, and all others are alike."""
    p = np.asarray(p)
    rows = np.zeros((1, len(p), v), np.float32)
    rows[0, :, 0] = np.log(p) - np.log((1 - p) / (v - 1))  # logits
    return np.asarray(cross_entropy(rows, np.zeros((1, len(p)), int), smoothing)[0][0])


p = 1 - np.logspace(-6, np.log10(0.5), 61)
ax = plt.subplots(figsize=(6, 2.9), layout="constrained")[1]
for smoothing in (0.0, 0.1, 0.2):
    losses = loss_at(p, smoothing)
    line = ax.plot(1 - p, losses, label=f"$\\epsilon_{{ls}}$ = {smoothing}")[0]
    if smoothing:
        best = 1 - smoothing + smoothing / VOCABULARY
        (lowest,) = loss_at([best], smoothing)
        ax.plot(1 - best, lowest, "o", color=line.get_color())
        print(f"smoothing {smoothing}: at p = {best:.6f} the loss is {lowest:.3f}")
        print(f"               and the perplexity 1 / p is {1 / best:.3f}")
ax.set(xscale="log", xlabel="1 − p(true piece)", ylabel="loss in nats", ylim=(0, 6))
ax.invert_xaxis()
ax.legend(frameon=False)
plain(ax)

# %%
best = 0.9 + 0.1 / VOCABULARY
row = np.full((1, 1, VOCABULARY), np.log((1 - best) / (VOCABULARY - 1)), np.float32)
row[0, 0, 0] = np.log(best)
gradient = cross_entropy_gradient(row, np.zeros((1, 1), int), 0.1)
print(f"largest gradient at p = {best:.7f}: {np.abs(gradient).max():.1e}")

# %% [markdown]
# ### A model of our own
#
# From here on the notebook needs a trained model. The config `tiny` is the paper's
# architecture with 2 layers, $d_{model} = 128$ and 4 heads, trained for 600 steps on a
# built-in English-German corpus. If the workdir is there already, it is used.

# %%
if not (WORKDIR / "config.json").is_file():
    train(load_config(CONFIG, train={"steps": STEPS}), WORKDIR)

translator = Translator.load(WORKDIR)
LAYERS, HEADS = translator.config.model.layers, translator.config.model.heads
# Short lines are quicker, and similar lengths share a compiled program.
pairs = [pair for pair in corpus.pairs("dev") if max(map(len, pair)) <= 40][:60]
print(translator)

# %% [markdown]
# ## 6 Results
#
# ### 6.1 Checkpoint averaging
#
# "For the base models, we used a single model obtained by averaging the last 5
# checkpoints." Each point is the cross-entropy of 60 dev pairs, in nats per piece; the
# line is the average of the checkpoints' *parameters*.


# %%
def nats_per_piece(model):
    scores = model.score(pairs)
    return -sum(s.log_prob for s in scores) / sum(len(s.pieces) for s in scores)


kept = parameter_steps(WORKDIR)
single = [nats_per_piece(Translator.load(WORKDIR, checkpoint=step)) for step in kept]
averaged = nats_per_piece(translator)
ax = plt.subplots(figsize=(5, 2.6), layout="constrained")[1]
ax.plot(kept, single, "o", label="one checkpoint")
ax.axhline(averaged, color="C1", label=f"average of {len(translator.members[0].steps)}")
ax.set(xlabel="step", ylabel="nats per piece", xticks=kept, ylim=(0, None))
ax.legend(frameon=False)
plain(ax)
print(f"mean of single checkpoints {np.mean(single):.4f}, their average {averaged:.4f}")

# %% [markdown]
# ### 6.1 Beam search
#
# Greedy search takes the most probable token at each step. That need not lead to the
# most probable sentence. A language of two words, with the probabilities below, is
# small enough to try all sentences: greedy search starts with *a* (0.6) and ends at
# 0.24, while *b* leads to 0.36.

# %%
WORDS = ["<pad>", "<s>", "</s>", "a", "b"]
NEXT = np.array(  # row: the word before; column: the probability of the next word
    [[0, 0, 1, 0, 0], [0, 0, 0, 0.6, 0.4], [0, 0, 1, 0, 0],
     [0, 0, 0.4, 0.3, 0.3], [0, 0, 0.9, 0.05, 0.05]]
)  # fmt: skip


def next_word(cache, token_bn, position):
    return jnp.log(jnp.asarray(NEXT) + 1e-30)[token_bn], cache


def probability(words):
    sentence = [1, *words, 2]
    return np.prod([NEXT[a, b] for a, b in itertools.pairwise(sentence)])


everything = [w for n in (1, 2, 3) for w in itertools.product((3, 4), repeat=n)]
most_probable = max(everything, key=probability)
print(
    "all sentences:",
    *(WORDS[w] for w in most_probable),
    f"{probability(most_probable):.2f}",
)
for beam in (1, 2):
    found = beam_search(
        next_word, {"none": jnp.zeros((1, beam))}, [4], max_length=4, beam=beam,
        alpha=0.0, bos=1, eos=2, pad=0,
    )  # fmt: skip
    words = [WORDS[w] for w in found.tokens_bnt[0, 0, : found.length_bn[0, 0]]]
    print(f"beam {beam}:       ", *words, f"{np.exp(found.log_prob_bn[0, 0]):.2f}")

# %% [markdown]
# The same for the trained model. A wider beam finds translations that are more probable
# on average; it does not always find better ones.

# %%
sources, references = zip(*pairs, strict=True)
for beam in (1, 4, 16):
    found = translator.translate(sources, beam=beam, alpha=0.0)
    mean = np.mean([t.log_prob for t in found])
    bleu = corpus_scores([t.text for t in found], references)["bleu"]
    print(f"beam {beam}: mean log p {mean:8.4f}   BLEU {bleu:5.1f}")

# %% [markdown]
# **Length penalty.** Each further piece makes a sentence less probable, so the search
# would prefer short translations. Hypotheses are ranked by (Wu et al. 2016, equation
# 14)
#
# $$\frac{\log P(Y|X)}{lp(Y)}, \qquad lp(Y) = \frac{(5 + |Y|)^\alpha}{(5 + 1)^\alpha},
# \qquad \alpha = 0.6$$

# %%
show(gnmt_penalty)

# %%
length = np.arange(1, 61)
ax = plt.subplots(figsize=(5, 2.6), layout="constrained")[1]
for alpha in (0.0, 0.6, 1.0):
    ax.plot(length, gnmt_penalty(length, alpha), label=f"$\\alpha$ = {alpha}")
ax.set(xlabel="length |Y| in pieces", ylabel="lp(Y)", ylim=(0, None))
ax.legend(frameon=False)
plain(ax)

best = translator.translate(sources[:1])[0].best
pieces = len(best.tokens)
print("log P / lp:         ", best.log_prob / gnmt_penalty(pieces, 0.6))
print("score of the search:", best.score)

# %% [markdown]
# ### BLEU
#
# Tables 2 and 3 report BLEU (Papineni et al. 2002): the geometric mean of the
# precisions $p_n$ of word sequences of length 1 to 4, times a penalty for a candidate
# that is shorter ($c$ words) than the reference ($r$ words).
#
# $$\mathrm{BLEU} = \min(1, e^{1 - r/c}) \cdot
# \exp\left(\tfrac{1}{4}\sum_{n=1}^{4}\log p_n\right)$$
#
# The cell computes it by hand and by the project, which calls sacreBLEU. The candidates
# are references with a word left out or doubled.


# %%
def bleu_by_hand(candidates, references):
    matches, counts = np.zeros(4), np.zeros(4)
    lengths = np.zeros(2)
    for candidate, reference in zip(candidates, references, strict=True):
        sides = [split_words(line) for line in (candidate, reference)]
        lengths += [len(side) for side in sides]
        for n in range(1, 5):
            theirs, wanted = (
                Counter(zip(*(side[i:] for i in range(n)), strict=False))
                for side in sides
            )
            matches[n - 1] += (theirs & wanted).total()  # & clips repeated words
            counts[n - 1] += theirs.total()
    c, r = lengths
    return 100 * min(1, np.exp(1 - r / c)) * np.exp(np.log(matches / counts).mean())


def split_words(line):
    return line.replace(",", " ,").replace(".", " .").replace("?", " ?").split()


candidates = []
for number, line in enumerate(references):
    spoiled = line.split()
    place = number % len(spoiled)
    spoiled[place : place + 1] = [] if number % 3 else [spoiled[place]] * 2
    candidates.append(" ".join(spoiled))
print("by hand:    ", bleu_by_hand(candidates, references))
print("the project:", corpus_scores(candidates, references)["bleu"])

# %% [markdown]
# ## Attention visualizations: figures 3 to 5
#
# The appendix of the paper shows what heads attend to. The same pictures follow for the
# small model. A picture of one sentence proves little, so a number over several
# sentences stands beside each.


# %%
def draw_lines(ax, above, below, weights_hts, queries, heads):
    """Lines from some queries (below) to the keys (above), a colour for each head."""
    for head in heads:
        x = 0.08 * (head - (len(heads) - 1) / 2) * (len(heads) > 1)
        style = {"color": f"C{head}", "linewidth": 2.5, "solid_capstyle": "round"}
        for query in queries:
            for key, weight in enumerate(weights_hts[head][query]):
                if weight > 0.05:
                    shade = min(1.0, float(weight)) ** 0.7
                    ax.plot([query + x, key + x], [0, 1], alpha=shade, **style)
        ax.plot([], [], label=f"head {head + 1}", **style)
    for words, y, side in ((above, 1.06, "bottom"), (below, -0.06, "top")):
        for place, word in enumerate(words):
            style = {"rotation": 90, "ha": "center", "va": side, "fontsize": 9}
            ax.text(place, y, word.strip("▁"), parse_math=False, **style)
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    ax.set(xlim=(-0.7, max(len(above), len(below)) - 0.3), ylim=(-0.9, 1.9))
    ax.set_axis_off()


# %% [markdown]
# ### Figure 3: a long-distance dependency
#
# In the paper's example, heads in layer 5 of the encoder's 6 attend from *making* to
# *more difficult*, several words away. Here the decoder writes the verb of a main
# clause. It must agree with its subject, and a relative clause stands between them. The
# lines lead from the position that predicts the verb (below) to the tokens which it has
# read (above), for all heads of the last layer.

# %%
source = "The old farmer whom the child sees sells the car."
target = "Der alte Bauer, den das Kind sieht, verkauft das Auto."
maps = translator.attention(source, target)


def position_of(word, after=0):
    """The first token of a target word, or of one that stands `after` words later."""
    of_target = maps.units[1]
    return of_target.of_token.index(of_target.texts.index(word) + after)


verb = position_of("verkauft")
ax = plt.subplots(figsize=(8, 3.4), layout="constrained")[1]
draw_lines(ax, maps.read, maps.target, maps.decoder[-1], [verb], range(HEADS))
ax.set_title(f"Figure 3: layer {LAYERS} of the decoder, predicting the verb")
for head in range(HEADS):
    far = maps.decoder[-1, head, verb]
    strongest = np.argsort(far)[::-1][:3]
    print(f"head {head + 1}:", *(f"{maps.read[i]} {far[i]:.2f}" for i in strongest))

# %% [markdown]
# How far do heads look? The mean distance of what is attended to, over all queries of
# 40 sentences whose agreeing words stand on both sides of a relative clause; 0 is the
# token itself.

# %%
lines = corpus.pairs("agreement", count=40)
all_maps = [translator.attention(*pair) for pair in lines]
found = {
    which: attention_patterns.patterns(sentences)
    for which, sentences in attention_patterns.sentences_of(all_maps, ()).items()
}
for which in ("encoder", "decoder"):
    for layer in range(LAYERS):
        far = found[which]["absolute_distance"][layer]
        print(f"{which}, layer {layer + 1}:", *(f"{d:5.1f}" for d in far), "tokens")

# %% [markdown]
# ### Figure 4: which word does a pronoun stand for?
#
# In the paper's figure 4, two heads attend from *its* to *Law* and *application*. A
# German relative pronoun has the gender of the noun that it stands for: *der Bauer,
# den ...* but *die Frau, die ...*. So the position that predicts the pronoun has to
# know the noun. The lines show where the heads of the last layer look from there: in
# the source, and in what the decoder has read.

# %%
pronoun = position_of(",", after=1)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
fig.suptitle("Figure 4: predicting the pronoun")
for ax, which, above in zip(
    axes, ("cross", "decoder"), (maps.source, maps.read), strict=True
):
    weights = getattr(maps, which)[-1]
    draw_lines(ax, above, maps.target, weights, [pronoun], range(HEADS))
    ax.set_title(f"{which} attention, layer {LAYERS}")

# %% [markdown]
# A weight on *whom* says little: the encoder may have mixed the noun into that vector.
# A weight shows where a head looks, not what it uses. A stronger test changes the noun
# and asks for the probability of each pronoun.

# %%
nouns = {"The farmer": "Der Bauer", "The woman": "Die Frau", "The child": "Das Kind"}
print(f"{'':12}" + "".join(f"{p:>8}" for p in ("den", "die", "das")))
for english, german in nouns.items():
    likely = []
    for relative in ("den", "die", "das"):
        text = f"{german}, {relative} der Lehrer sieht, verkauft das Auto."
        score = translator.score(
            [(f"{english} whom the teacher sees sells the car.", text)]
        )[0]
        place = score.pieces.index(",") + 1
        likely.append(np.exp(score.log_probs[place]))
    print(f"{german:12}" + "".join(f"{p:8.3f}" for p in likely))

# %% [markdown]
# ### Figure 5: heads do different things
#
# "Many of the attention heads exhibit behaviour that seems related to the structure of
# the sentence." The cell picks the two heads of the encoder whose weights over the 40
# sentences differ most, by the shares of their weight that fall on some kinds of keys.
# Look for a head that connects an article, an adjective or a relative pronoun with its
# noun.

# %%
kinds = [name for name in found["encoder"] if name.startswith("share.")]
shares = np.stack([found["encoder"][kind] for kind in kinds], axis=-1)
distances = {
    (layer, a, b): np.abs(shares[layer, a] - shares[layer, b]).sum()
    for layer in range(LAYERS)
    for a, b in itertools.combinations(range(HEADS), 2)
}
layer, *two = max(distances, key=distances.get)
print(f"{'share of the weight on':24}" + "".join(f"{f'head {h + 1}':>9}" for h in two))
for kind, of_kind in zip(kinds, np.moveaxis(shares, -1, 0), strict=True):
    print(
        f"{kind.removeprefix('share.'):24}"
        + "".join(f"{of_kind[layer, h]:9.2f}" for h in two)
    )

fig, axes = plt.subplots(2, 1, figsize=(8, 6.4), layout="constrained")
fig.suptitle(f"Figure 5: two heads of the encoder's layer {layer + 1}")
for ax, head in zip(axes, two, strict=True):
    n = len(maps.source)
    draw_lines(ax, maps.source, maps.source, maps.encoder[layer], range(n), [head])

# %% [markdown]
# ## Where it is in the code
#
# | Paper | Module |
# |---|---|
# | 3, figure 1; 3.1 stacks, layers, residual | `model/transformer.py` |
# | LayerNorm; 5.4 dropout | `model/layers.py` |
# | 3.2.1, equation 1; 3.2.2 | `model/attention.py` |
# | 3.2.3 | `model/mask.py` |
# | 3.3, equation 2 | `model/feed_forward.py` |
# | 3.4 | `model/embedding.py` |
# | 3.5 | `model/positions.py` |
# | 4, table 1 | `experiments/measures/layer_cost.py`, `costs/flops.py` |
# | 5.1 | `data/` |
# | 5.3, equation 3 | `training/optimizers.py`, `training/schedules.py` |
# | 5.4 label smoothing | `training/cross_entropy.py` |
# | 6.1 | `training/averaging.py`, `search/beam.py`, `search/algorithm.py` |
# | BLEU | `metrics/` |
# | Table 3 | `configs/`, `experiments/` |
#
# Next: notebook 2 follows a text from its file to the batches of section 5.1.
