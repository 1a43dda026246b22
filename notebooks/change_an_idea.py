# %% [markdown]
# # Change one idea
#
# This is what a researcher does who forks the code: write an idea as one function,
# give it a name, train with it and without it, and look inside. The idea here is
# small and in the paper. Section 3.2.1 divides the products of queries and keys by
# √dₖ, because large products "push the softmax function into regions where it has
# extremely small gradients". What if they are not divided?

# %%
# Where t2t_jax is missing, this cell installs it. Where this notebook does not lie in a
# checkout, say what to clone, such as "git+https://github.com/NAME/t2t_jax".
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
    sys.path.insert(0, str(folder))  # this process started before it was installed

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
from t2t_jax import load_config, train
from t2t_jax.data import prepare
from t2t_jax.data.batching import fill
from t2t_jax.data.feeding import plan_for
from t2t_jax.grammar import corpus
from t2t_jax.model.attention import ATTENTION, dense
from t2t_jax.model.model import build
from t2t_jax.model.teacher_forcing import teacher_forcing
from t2t_jax.training.averaging import average_checkpoints, choose_checkpoints
from t2t_jax.workdir.workdir import Workdir

ROOT = Path(t2t_jax.__file__).parents[1]  # the checkout
# The environment variables are for tests, which train less.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", ROOT / "configs/tiny.py")
STEPS = int(os.environ.get("T2T_JAX_NOTEBOOK_STEPS", 300))
WORKDIRS = Path(os.environ.get("T2T_JAX_NOTEBOOK_IDEAS", ROOT / "runs"))

# %% [markdown]
# ## The idea as a function
#
# All attention variants have one signature. Letters at the end of a name say what the
# axes are: **b**atch, **t** queries, **s** keys, **h** heads, **k** head width.
#
# - `q_bthk`: the queries.
# - `kv`: `kv.k_bshk` and `kv.v_bshk`, the keys and the values.
# - `mask`: which key a query may see; `mask.bias()` is 0 where it may and -1e9 where
#   not.
# - `key`: for dropout; `None` when the model translates.
#
# The same function serves encoder, decoder and cross attention, in training and in
# decoding.


# %%
def unscaled(q_bthk, kv, mask, key):
    """Equation 1 without the division by the root of the head width."""
    scores_bhts = jnp.einsum("bthk,bshk->bhts", q_bthk, kv.k_bshk)
    weights_bhts = jax.nn.softmax(scores_bhts.astype(jnp.float32) + mask.bias())
    return jnp.einsum("bhts,bshk->bthk", weights_bhts.astype(q_bthk.dtype), kv.v_bshk)


ATTENTION["unscaled"] = unscaled
print(*ATTENTION)

# %% [markdown]
# That is all: `config.model.attention="unscaled"` now means this function. A variant
# that stays belongs into `t2t_jax/model/attention.py`, so that the commands know it
# too.
#
# A workdir, and what JAX has compiled, know a variant by its *name* alone. So a
# function that you have changed wants a new name, or a new workdir and a restart of
# the notebook.
#
# ## Two runs that differ in one thing
#
# Same text, same seed, same order of batches, same random parameters at the start.
# The runs are short, and instead of BLEU they are compared by the cross-entropy of
# the dev set.


# %%
def config_of(attention):
    return load_config(
        CONFIG,
        model={"attention": attention},
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
    train(config_of(name), folder)

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for name, folder in folders.items():
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    dev = [line for line in lines if line["kind"] == "dev"]
    training = [line for line in lines if line["kind"] == "train"]
    steps = [line["step"] for line in training]
    norms = [line["gradient_norm"] for line in training]
    axes[0].plot([x["step"] for x in dev], [x["loss"] for x in dev], ".-", label=name)
    axes[1].plot(steps, norms, label=name)
    print(f"{name:10} dev loss {dev[-1]['loss']:.3f} after {dev[-1]['step']} steps")
axes[0].set(
    xlabel="step", ylabel="nats a subword", title="Cross-entropy of the dev set"
)
axes[1].set(xlabel="step", title="Norm of the gradient", ylim=(0, None))
for ax in axes:
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# One pair of runs is an anecdote. Before you believe a difference, train each again
# with some other `config.train.seed` and see how far two runs of the *same* config
# lie apart.
#
# ## The parameters
#
# A model is two things: a definition, without arrays, and parameters, a plain dict of
# arrays. `build` makes the first; a workdir holds the second.

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
# Every array has a path of names and a shape. Queries, keys and values of all heads
# are one array each: [width, heads, head width].

# %%
for path, array in jax.tree_util.tree_leaves_with_path(parameters):
    print(f"{jax.tree_util.keystr(path, simple=True, separator='.'):38} {array.shape}")

# %% [markdown]
# ## A batch by hand
#
# Text becomes token ids, lengths become a plan, and `fill` makes one batch of the
# plan. Several sentence pairs share a row ("packing"): `source_segment` says which
# pair a token belongs to, 0 is padding, and attention never crosses from one segment
# to another.

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
# `nnx.merge` puts definition and parameters together; the result is the model as a
# plain Python object, to be called, or to be taken apart. The logits say how probable
# each piece of the vocabulary is at each position.

# %%
module = nnx.merge(model.definition, parameters)
logits = module(batch)
print("logits", logits.shape, "batch, target position, vocabulary")

real = np.asarray(batch["target_segment"]) > 0
log_probs = jax.nn.log_softmax(logits)
found = jnp.take_along_axis(log_probs, batch["target"][..., None], axis=-1)[..., 0]
right = np.asarray(logits.argmax(-1) == batch["target"])
print(f"cross-entropy {-np.asarray(found)[real].mean():.3f} nats a subword")
print(f"the most probable piece is the right one: {right[real].mean():.1%}")

# %% [markdown]
# ## A law: the future does not change the past
#
# What the decoder predicts at a position may depend on what came before, never on
# what comes after; else training would let it copy the answer. This is checked by
# hand: change everything that the decoder reads from one position on, and see which
# predictions move.


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
    return np.asarray(jnp.abs(module(changed) - module(batch)).max(axis=(0, 2)))


AT = batch["target_input"].shape[1] // 2
for name in ("dense", "unscaled"):
    moved = change_by_position(name, AT)
    print(
        f"{name:10} before: {moved[:AT].max()}   from there on: {moved[AT:].max():.3f}"
    )

# %% [markdown]
# Before the change: exactly zero, not merely small. A check is worth something only
# if it can fail. So here is a variant with a mistake that is easily made: it forgets
# the mask.


# %%
def leaky(q_bthk, kv, mask, key):
    """Wrong on purpose: every query sees every key, later and other sentences too."""
    everything = mask._replace(
        query_segment_bt=jnp.zeros_like(mask.query_segment_bt),
        key_segment_bs=jnp.zeros_like(mask.key_segment_bs),
        first=None,
    )
    return dense(q_bthk, kv, everything, key)


ATTENTION["leaky"] = leaky

ax = plt.subplots(figsize=(7, 3), layout="constrained")[1]
for name, style in (("dense", "-"), ("leaky", "--")):
    ax.plot(change_by_position(name, AT), style, label=name)
ax.axvline(AT - 0.5, color="grey", linewidth=1)
ax.text(AT, ax.get_ylim()[1], " changed from here on", va="top", color="grey")
ax.set(xlabel="target position", ylabel="largest change of a logit")
ax.legend(frameon=False, loc="center left")
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# `leaky` moves to the left of the line: its predictions know the future. Trained so,
# its loss would fall quickly and its translations would be worthless.
#
# ## From here
#
# - Dropout on the weights is an idea for which `key` is there. Split nothing, just
#   use it: `dropout(weights_bhts, 0.1, key)` of `t2t_jax/model/layers.py` does
#   nothing where `key` is `None`.
# - `Translator.attention` draws equation 1 whatever the variant; a variant that
#   weighs otherwise has other weights than those in the pictures.
# - `tests/model/` holds the laws: `python -m pytest tests/model`. `docs/design.md`
#   says where the next idea has its place.
