# %% [markdown]
# # Change one idea
#
# A researcher who tries an idea writes one function, gives it a name, trains with it
# and without it, and looks inside. The idea here is small and comes from the paper.
# Section 3.2.1 divides the products of queries and keys by √dₖ, because large products
# "push the softmax function into regions where it has extremely small gradients". What
# happens without the division?

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

# %%
import dataclasses
import json
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx

import t2t_jax
from t2t_jax import Translator, load_config, train
from t2t_jax.data import prepare
from t2t_jax.data.batching import fill
from t2t_jax.data.feeding import plan_for
from t2t_jax.grammar import corpus
from t2t_jax.model.architecture import logits
from t2t_jax.model.attention import ATTENTION, AttentionFunction
from t2t_jax.model.dense import dense, weighted_values
from t2t_jax.model.mask import Tokens
from t2t_jax.model.model import build
from t2t_jax.model.positions import POSITIONS, Position
from t2t_jax.model.teacher_forcing import teacher_forcing
from t2t_jax.training.averaging import average_checkpoints, choose_checkpoints
from t2t_jax.workdir.workdir import Workdir

ROOT = Path(t2t_jax.__file__).parents[1]  # the checkout
# The environment variables are for tests, which train for fewer steps.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", "tiny")
STEPS = int(os.environ.get("T2T_JAX_NOTEBOOK_STEPS", 300))
WORKDIRS = Path(os.environ.get("T2T_JAX_NOTEBOOK_IDEAS", ROOT / "runs"))

# %% [markdown]
# ## The idea as a function
#
# All attention functions have one signature. The letters at the end of a name are its
# axes: **b**atch, **t** queries, **s** keys, **h** heads, **k** head width.
#
# - `q_bthk`: the queries.
# - `kv`: `kv.k_bshk` and `kv.v_bshk`, the keys and the values.
# - `mask`: which keys a query may attend to; `mask.bias()` is 0 for these and -1e9 for
#   all others.
# - `position`: the position scheme, which may add to the scores and to the sums of
#   values. A function that asks it works with every scheme.
# - `drop`: dropout, called on the weights; it does nothing when the model translates.
#
# The same function serves encoder, decoder and cross attention, in training and in
# decoding. A second function returns the weights alone, for pictures and alignments.


# %%
def unscaled_weights(q_bthk, kv, mask, position):
    """Equation 1 without the division by the root of the head width."""
    scores_bhts = jnp.einsum("bthk,bshk->bhts", q_bthk, kv.k_bshk).astype(jnp.float32)
    of_positions = position.scores(q_bthk, mask)
    if of_positions is not None:
        scores_bhts += of_positions
    return jax.nn.softmax(scores_bhts + mask.bias())


def unscaled(q_bthk, kv, mask, position, drop):
    weights_bhts = drop(unscaled_weights(q_bthk, kv, mask, position))
    return weighted_values(weights_bhts.astype(q_bthk.dtype), kv, mask, position)


ATTENTION["unscaled"] = AttentionFunction(unscaled, unscaled_weights)
print(*ATTENTION)

# %% [markdown]
# `config.model.attention="unscaled"` now selects this function. For the commands, put
# the cell into a file `my_idea.py`, which imports what it needs, and give them
# `--ideas=my_idea.py`. To keep it, make it a line of the table in
# `t2t_jax/model/attention.py`.
#
# JAX's compiled programs identify an entry only by its *name*. So after changing the
# function, give it a new name, or use a new workdir and restart the notebook.
#
# ## Two runs that differ in one thing
#
# The runs share the text, the seed, the order of batches and the initial parameters.
# They are short, so they are compared by the cross-entropy of the dev set and not by
# BLEU.


# %%
def config_of(**model):
    return load_config(
        CONFIG,
        model=model,
        data={"test": ""},
        train={
            "steps": STEPS,
            "log_every": max(1, STEPS // 30),
            "eval_every": max(1, STEPS // 10),
            "save_every": STEPS,
            "dev_lines": 0,
        },
    )


folders = {name: WORKDIRS / f"idea-{name}-{STEPS}" for name in ("dense", "unscaled")}
for name, folder in folders.items():
    train(config_of(attention=name), folder)


# %%
def draw(folders):
    """Draws dev loss and gradient norms of runs, and prints their last dev loss."""
    _, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for name, folder in folders.items():
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
        dev = [line for line in lines if line["kind"] == "dev"]
        training = [line for line in lines if line["kind"] == "train"]
        steps = [line["step"] for line in training]
        norms = [line["gradient_norm"] for line in training]
        axes[0].plot(
            [x["step"] for x in dev], [x["loss"] for x in dev], ".-", label=name
        )
        axes[1].plot(steps, norms, label=name)
        print(f"{name:10} dev loss {dev[-1]['loss']:.3f} after {dev[-1]['step']} steps")
    axes[0].set(
        xlabel="step", ylabel="nats a subword", title="Cross-entropy of the dev set"
    )
    axes[1].set(xlabel="step", title="Norm of the gradient", ylim=(0, None))
    for ax in axes:
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)


draw(folders)

# %% [markdown]
# One pair of runs is an anecdote. Before you believe a difference, train each config
# again with other values of `config.train.seed`, and see how much two runs of the
# *same* config differ.
#
# ## The parameters
#
# A model has two parts: a definition, without arrays, and parameters, a plain dict of
# arrays. `build` creates the first; a workdir stores the second.

# %%
folder = folders["dense"]
config = Workdir(folder).config()
vocabulary = Workdir(folder).vocabulary()
model = build(config.model, len(vocabulary))
_, parameters = average_checkpoints(
    choose_checkpoints(folder, config, "last"), model.shapes
)
print(f"{model.count():,} parameters in", *parameters)

# %% [markdown]
# Every array has a path of names and a shape. The weights of all heads' queries are one
# array, and so are those of keys and values: [width, heads, head width].

# %%
for path, array in jax.tree_util.tree_leaves_with_path(parameters):
    print(f"{jax.tree_util.keystr(path, simple=True, separator='.'):38} {array.shape}")

# %% [markdown]
# ## A batch by hand
#
# Text becomes token ids, lengths become a plan, and `fill` builds one batch of the
# plan. Several sentence pairs share a row ("packing"). `source_segment` is the number
# of a token's pair, 0 for padding; attention never crosses from one segment to
# another.

# %%
pairs = prepare.tokenize_in_memory(corpus.pairs("dev", count=200), vocabulary)
plan = plan_for(pairs, config.data, seed=0, epoch=0)
batch = teacher_forcing(fill(plan[0], pairs.source, pairs.target), vocabulary.bos)
for name, array in batch.items():
    print(f"{name:16} {array.shape} {array.dtype}")

# %%
row = np.asarray(batch["source_segment"][0])
for segment in range(1, row.max() + 1):
    for side in ("source", "target"):
        inside = np.asarray(batch[f"{side}_segment"][0]) == segment
        ids = np.asarray(batch[side][0])[inside].tolist()
        print(segment, side, vocabulary.decode([ids])[0])

# %% [markdown]
# `nnx.merge` combines definition and parameters into the model, a plain Python object
# that you can use or take apart. The softmax of the logits is the probability of each
# piece of the vocabulary at each position.

# %%
module = nnx.merge(model.definition, parameters)
logits_btv = logits(module, batch)
print("logits", logits_btv.shape, "batch, target position, vocabulary")

real = np.asarray(batch["target_segment"]) > 0
log_probs = jax.nn.log_softmax(logits_btv)
found = jnp.take_along_axis(log_probs, batch["target"][..., None], axis=-1)[..., 0]
right = np.asarray(logits_btv.argmax(-1) == batch["target"])
print(f"cross-entropy {-np.asarray(found)[real].mean():.3f} nats a subword")
print(f"the most probable piece is the right one: {right[real].mean():.1%}")

# %% [markdown]
# ## A law: the future does not change the past
#
# The decoder's prediction at a position may depend on earlier positions, never on
# later ones; otherwise it could copy the answer in training. To check this by hand,
# change the decoder's input from one position on, and see which predictions change.


# %%
def change_by_position(attention, at):
    """How much logits move, at most, if the decoder's input changes from `at` on."""
    fields = dataclasses.replace(config.model, attention=attention)
    module = nnx.merge(build(fields, len(vocabulary)).definition, parameters)
    later = np.arange(batch["target_input"].shape[1]) >= at
    other = np.random.default_rng(0).integers(
        8, len(vocabulary), size=batch["target_input"].shape
    )
    changed = batch | {"target_input": jnp.where(later, other, batch["target_input"])}
    difference_btv = logits(module, changed) - logits(module, batch)
    return np.asarray(jnp.abs(difference_btv).max(axis=(0, 2)))


AT = batch["target_input"].shape[1] // 2
for name in ("dense", "unscaled"):
    moved = change_by_position(name, AT)
    print(
        f"{name:10} before: {moved[:AT].max()}   from there on: {moved[AT:].max():.3f}"
    )

# %% [markdown]
# Before that position the difference is exactly zero, not merely small. A check is
# useful only if it can fail. So the next variant has a common mistake: it forgets the
# mask.


# %%
def leaky(q_bthk, kv, mask, position, drop):
    """Wrong on purpose: every query sees every key, later and other sentences too."""
    query, key = (
        Tokens(jnp.zeros_like(at.segment), at.position) for at in (mask.query, mask.key)
    )
    everything = dataclasses.replace(mask, query=query, key=key, causal=False)
    return dense(q_bthk, kv, everything, position, drop)


ATTENTION["leaky"] = AttentionFunction(leaky)

ax = plt.subplots(figsize=(7, 3), layout="constrained")[1]
for name, style in (("dense", "-"), ("leaky", "--")):
    ax.plot(change_by_position(name, AT), style, label=name)
ax.axvline(AT - 0.5, color="grey", linewidth=1)
ax.text(AT, ax.get_ylim()[1], " changed from here on", va="top", color="grey")
ax.set(xlabel="target position", ylabel="largest change of a logit")
ax.legend(frameon=False, loc="center left")
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# `leaky` changes to the left of the line: its predictions depend on the future. If it
# were trained, its loss would fall quickly and its translations would be worthless.
#
# ## The weights
#
# `Translator.attention` shows the weights of the function that the model was trained
# with: here those of `unscaled_weights`. (`leaky` has none, so it cannot be shown.)

# %%
translator = Translator.load(folders["unscaled"], checkpoint="last")
translator.attention(corpus.pairs("dev", count=1)[0][0]).plot()

# %% [markdown]
# ## Another table: positions
#
# Ideas of other kinds have tables of their own. A position scheme is a class that
# overrides what it changes. This one adds to the scores: a window in the shape of a
# cosine. Each head learns its width and its depth. `mask.distance()` is the distance
# of each key from its query, within the sentence.


# %%
class CosineWindow(Position):
    """Lowers the scores of far keys: by 0 at the query, by 2 * `depth` at most."""

    def __init__(self, config, causal, rng):
        self.depth = nnx.Param(jnp.ones(config.heads), axes=("heads",))
        log_width_h = jnp.linspace(1.0, 3.0, config.heads)  # 2 to 8 tokens
        self.log_width = nnx.Param(log_width_h, axes=("heads",))

    def scores(self, q_bthk, mask):
        depth_h11, log_width_h11 = (
            x[...][:, None, None] for x in (self.depth, self.log_width)
        )
        share = jnp.abs(mask.distance())[:, None] / 2**log_width_h11
        return depth_h11 * (jnp.cos(jnp.pi * jnp.minimum(share, 1)) - 1)


POSITIONS["cosine_window"] = CosineWindow

name = "cosine_window"
folders[name] = WORKDIRS / f"idea-{name}-{STEPS}"
train(config_of(attention="dense", positions=name), folders[name])
draw(folders)

# %% [markdown]
# The model has no other positions now: the sinusoids are gone, and it knows only how
# far apart two tokens are. Attention functions and position schemes compose, so
# `config_of(attention="unscaled", positions="cosine_window")` is a model too.
#
# ## From here
#
# - `docs/your-idea.md` has six ideas, one for each table: positions, attention,
#   feed-forward, a whole model, a loss, a learning rate schedule.
# - `tests/model/laws.py` has the other laws. They run over the tables, so over yours,
#   too: `python -m pytest tests/model/test_laws_of_variants.py --ideas=my_idea.py`.
