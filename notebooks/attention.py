# %% [markdown]
# # Where a Transformer looks
#
# Section 3.2 of "Attention Is All You Need" says: "An attention function can be
# described as mapping a query and a set of key-value pairs to an output". The output
# is a weighted sum of the values, and equation 1 gives the weights, softmax(QKᵀ /
# √dₖ). This notebook draws the weights, like the figures in the paper's appendix.

# %%
# Installs t2t_jax if it is missing. If this notebook is not in a checkout, set
# REPOSITORY to what to clone, such as "git+https://github.com/NAME/t2t_jax".
REPOSITORY = ""

import importlib.util
import subprocess
import sys
from pathlib import Path

if not all(map(importlib.util.find_spec, ("t2t_jax", "matplotlib"))):
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

# %% [markdown]
# `WORKDIR` is any trained workdir; the sentences below are for English-German. If it
# does not exist, the small model is trained, in minutes on two CPU cores.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

import t2t_jax
from t2t_jax import Translator, load_config, train

ROOT = Path(t2t_jax.__file__).parents[1]  # the checkout
WORKDIR = Path(os.environ.get("T2T_JAX_NOTEBOOK_WORKDIR", ROOT / "runs/tiny"))
# The environment variables are for tests, which train for fewer steps.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", "tiny")
STEPS = int(os.environ.get("T2T_JAX_NOTEBOOK_STEPS", 600))

if not (WORKDIR / "config.json").is_file():
    train(load_config(CONFIG, train={"steps": STEPS}), WORKDIR)

translator = Translator.load(WORKDIR)
LAYERS, HEADS = translator.config.model.layers, translator.config.model.heads
print(translator)

# %% [markdown]
# ## The weights of one sentence
#
# `attention` translates a line (or takes a given translation) and returns all weights.
# The model has three kinds of attention (section 3.2.3):
#
# - **encoder**: each position of the source looks at all positions of the source;
# - **decoder**: each position of the target looks at itself and at the positions
#   before it;
# - **cross**: each position of the target looks at the encoder's output for the
#   source.

# %%
source = "The man whom the teacher helps buys the book."
maps = translator.attention(source)
print(maps)
print("source ", " ".join(maps.source))
print("target ", " ".join(maps.target))
for which in ("encoder", "decoder", "cross"):
    print(f"{which:8}", getattr(maps, which).shape, "layers, heads, queries, keys")

# %% [markdown]
# Words are spelled with pieces. `▁` is a space, so a piece without it continues the
# word before it. `</s>` is the end of the sentence, and `<s>` is the decoder's first
# input.
#
# A row of a map belongs to one query. It is a probability distribution: it sums to 1.

# %%
for which in ("encoder", "decoder", "cross"):
    sums = getattr(maps, which).sum(axis=-1)
    print(f"{which:8} every row sums to 1: {np.allclose(sums, 1, atol=1e-5)}")

# %% [markdown]
# ## Cross attention
#
# First the mean of the heads of the last layer. Read it row by row: to predict the
# piece at the left, how much does the decoder look at each piece of the source? A
# dark diagonal means that the two sentences run in parallel; a jump means that word
# order differs.

# %%
LAYER = LAYERS - 1
ax = maps.plot("cross", layer=LAYER)

# %% [markdown]
# A mean hides that heads do different things. Section 3.2.2: "Multi-head attention
# allows the model to jointly attend to information from different representation
# subspaces at different positions." The next figure shows each head, all with one
# colour scale from 0 to 1.


# %%
def all_heads(maps, which, layer):
    """A heat map for each head of a layer, with one colour scale."""
    rows, columns = getattr(maps, which).shape[2:]
    across = min(HEADS, 2)
    down = -(-HEADS // across)
    size = across * (0.26 * columns + 1), down * (0.26 * rows + 1)
    fig, axes = plt.subplots(
        down, across, figsize=size, squeeze=False, layout="constrained"
    )
    for head, ax in enumerate(axes.flat):
        if head >= HEADS:
            ax.set_axis_off()
            continue
        maps.plot(which, layer=layer, head=head, ax=ax)
        ax.images[0].set_clim(0, 1)
        ax.set_title(f"head {head}")
        if head % across:
            ax.set(ylabel="", yticks=[])
        if head + across < HEADS:
            ax.set(xlabel="", xticks=[])
    fig.suptitle(f"{which} attention, layer {layer}")
    fig.colorbar(axes[0, 0].images[0], ax=axes, label="weight", shrink=0.6, aspect=30)


all_heads(maps, "cross", LAYER)

# %% [markdown]
# Some heads follow the words one by one; others look at the end of the sentence,
# `</s>`, or the full stop. The weights must sum to 1, so a head that has nothing to do
# at a word puts its weight on a position that carries little information.
#
# ## Encoder self-attention
#
# Here rows and columns are the same sentence, and every position may see every other.
# Look for heads that look one piece back or ahead (a line beside the diagonal), and
# for words that attend to a word they depend on: *whom* and *helps*, an article and
# its noun.

# %%
all_heads(maps, "encoder", 0)

# %% [markdown]
# ## Decoder self-attention
#
# The upper triangle is empty: a position sees only itself and earlier positions
# (section 3.2.3; the mask). The columns are the decoder's *input*: the target shifted
# by one, after `<s>`. So the row of a piece never sees that piece itself.

# %%
all_heads(maps, "decoder", LAYER)
above = np.triu(np.ones(maps.decoder.shape[2:], bool), k=1)
print("largest weight on the future:", maps.decoder[..., above].max())

# %% [markdown]
# ## Which head looks where
#
# The appendix of the paper draws lines instead of a grid: from each query word to the
# words it looks at, a colour for each head, stronger for larger weights. This is
# easier to read for a long sentence. The sentence below has a subordinate clause
# within a subordinate clause.


# %%
long_source = "She knows that the farmer who helps the child has bought a red car."
long_maps = translator.attention(long_source)
translation = translator.translate([long_source])[0]
print(translation)


# %%
def draw_lines(ax, below, above, weights, color):
    """Lines from the pieces below, which ask, to those above; stronger: more weight."""
    middle = (max(len(above), len(below)) - 1) / 2
    starts = np.arange(len(below)) + middle - (len(below) - 1) / 2
    ends = np.arange(len(above)) + middle - (len(above) - 1) / 2
    for row, start in enumerate(starts):
        for column, end in enumerate(ends):
            weight = min(1.0, float(weights[row, column]))
            if weight > 0.1:
                ax.plot([start, end], [0, 1], color=color, alpha=weight, linewidth=2)
    style = {"rotation": 90, "ha": "center", "parse_math": False}
    for x, piece in zip(ends, above, strict=True):
        ax.text(x, 1.04, piece, va="bottom", **style)
    for x, piece in zip(starts, below, strict=True):
        ax.text(x, -0.04, piece, va="top", **style)
    ax.set(xlim=(-0.7, 2 * middle + 0.7), ylim=(-0.6, 1.6))
    ax.set_axis_off()


def head_by_head(maps, which, layer):
    """The lines of each head of a layer, one below the other."""
    above = {"cross": maps.source, "encoder": maps.source, "decoder": maps.read}[which]
    below = maps.source if which == "encoder" else maps.target
    width = 0.36 * max(len(above), len(below)) + 1
    axes = plt.subplots(
        HEADS, figsize=(width, 2.9 * HEADS), squeeze=False, layout="constrained"
    )[1]
    for head, ax in enumerate(axes.flat):
        weights = getattr(maps, which)[layer, head]
        draw_lines(ax, below, above, weights, f"C{head}")
        ax.set_title(f"{which} attention, layer {layer}, head {head}", fontsize=10)


head_by_head(long_maps, "cross", LAYER)

# %% [markdown]
# The same for one head of the encoder, as in the paper's figures 3 to 5: both rows
# are the same sentence. A vertical line is a piece that looks at itself.

# %%
fig, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
draw_lines(ax, long_maps.source, long_maps.source, long_maps.encoder[LAYER, 0], "C0")
ax.set_title(f"encoder attention, layer {LAYER}, head 0", fontsize=10)

# %% [markdown]
# ## From attention to an alignment
#
# `align` sums the pieces to words, takes the mean of the heads of one layer, and
# links each target word to the source word with the largest weight. The notation `6-8`
# means word 6 of the source and word 8 of the target, counted from 0.

# %%
alignment = translator.align([(long_source, translation)])[0]
print(alignment)


# %%
def draw_alignment(source, target, links):
    """Source words above, target words below; links that cross others are red."""
    above, below = source.split(), target.split()
    widths = [max(map(len, words)) for words in zip(above, below, strict=False)]
    step = 0.105 * max([*widths, 7])
    size = step * max(len(above), len(below)) + 0.5, 2.2
    ax = plt.subplots(figsize=size, layout="constrained")[1]
    for s, t in links:
        crossed = sum((s - s2) * (t - t2) < 0 for s2, t2 in links)
        most = crossed > len(links) / 5
        ax.plot([s, t], [1, 0], color="C3" if most else "C0", linewidth=1.5)
    for x, word in enumerate(above):
        ax.text(x, 1.06, word, ha="center", va="bottom", parse_math=False)
    for x, word in enumerate(below):
        ax.text(x, -0.06, word, ha="center", va="top", parse_math=False)
    ax.set(xlim=(-0.6, max(len(above), len(below)) - 0.4), ylim=(-0.3, 1.3))
    ax.set_axis_off()


draw_alignment(long_source, str(translation), alignment.links)

# %% [markdown]
# ## Word order
#
# In a German main clause the verb comes second, and its second part (an infinitive,
# a participle) last. In a subordinate clause all of the verb comes last. In English the
# verb precedes its object in both. So if the model has learned this, links cross at
# verbs, and only there.

# %%
for line in (
    "The dog has seen the cat.",
    "The gardener wants to buy the house.",
    "She knows that the old farmer bought a small dog.",
):
    found = translator.translate([line])[0]
    draw_alignment(line, str(found), translator.align([(line, found)])[0].links)

# %% [markdown]
# ## How far to trust these pictures
#
# - A weight says how much of a *value* is used. After some layers a value no longer
#   stands for one word: it mixes information from the complete sentence.
# - In a wrong translation, a link shows where the model looked, not where it should
#   have looked.
# - The model was not trained to align. The default layer is the one that works best
#   overall; `layer=` selects another, which may disagree.

# %%
for layer in range(LAYERS):
    print(layer, translator.align([(long_source, translation)], layer=layer)[0])
