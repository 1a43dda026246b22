# %% [markdown]
# # Change one idea
#
# A researcher who forks the code writes an idea as one function, gives it a name,
# trains with it and without it, and looks inside. The idea here is small and comes from
# the paper. Section 3.2.1 divides the products of queries and keys by √dₖ, because
# large products "push the softmax function into regions where it has extremely small
# gradients". What happens without the division?

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
# The environment variables are for tests, which train for fewer steps.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", "tiny")
STEPS = int(os.environ.get("T2T_JAX_NOTEBOOK_STEPS", 300))
WORKDIRS = Path(os.environ.get("T2T_JAX_NOTEBOOK_IDEAS", ROOT / "runs"))

# %% [markdown]
# ## The idea as a function
#
# All attention variants have one signature. The letters at the end of a name are its
# axes: **b**atch, **t** queries, **s** keys, **h** heads, **k** head width.
#
# - `q_bthk`: the queries.
# - `kv`: `kv.k_bshk` and `kv.v_bshk`, the keys and the values.
# - `mask`: which keys a query may attend to; `mask.bias()` is 0 for these and -1e9 for
#   all others.
# - The last argument is the randomness of dropout, and `None` when the model
#   translates.
#
# The same function serves encoder, decoder and cross attention, in training and in
# decoding.


# %%
def unscaled(q_bthk, kv, mask, rng):
    """Equation 1 without the division by the root of the head width."""
    scores_bhts = jnp.einsum("bthk,bshk->bhts", q_bthk, kv.k_bshk)
    weights_bhts = jax.nn.softmax(scores_bhts.astype(jnp.float32) + mask.bias())
    return jnp.einsum("bhts,bshk->bthk", weights_bhts.astype(q_bthk.dtype), kv.v_bshk)


ATTENTION["unscaled"] = unscaled
print(*ATTENTION)

# %% [markdown]
# `config.model.attention="unscaled"` now selects this function. To keep a variant, add
# it to `t2t_jax/model/attention.py`, so that the commands find it too.
#
# Workdirs and JAX's compiled programs identify a variant only by its *name*. So after
# changing the function, give it a new name, or use a new workdir and restart the
# notebook.
#
# ## Two runs that differ in one thing
#
# The runs share the text, the seed, the order of batches and the initial parameters.
# They are short, so they are compared by the cross-entropy of the dev set and not by
# BLEU.


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
# that you can call or take apart. The softmax of the logits is the probability of each
# piece of the vocabulary at each position.

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
    return np.asarray(jnp.abs(module(changed) - module(batch)).max(axis=(0, 2)))


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
def leaky(q_bthk, kv, mask, rng):
    """Wrong on purpose: every query sees every key, later and other sentences too."""
    everything = dataclasses.replace(
        mask,
        query_segment_bt=jnp.zeros_like(mask.query_segment_bt),
        key_segment_bs=jnp.zeros_like(mask.key_segment_bs),
        causal=False,
    )
    return dense(q_bthk, kv, everything, rng)


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
# `leaky` changes to the left of the line: its predictions depend on the future. If it
# were trained, its loss would fall quickly and its translations would be worthless.
#
# ## From here
#
# - The last argument is there for variants with dropout on the attention weights. Pass
#   it on without splitting it: `dropout(weights_bhts, 0.1, rng)` of
#   `t2t_jax/model/layers.py` does nothing if the `rng` is `None`.
# - `Translator.attention` draws equation 1 for every variant; the true weights of a
#   variant may differ from those in the pictures.
# - `tests/model/` checks the laws: `python -m pytest tests/model`. The table "Where to
#   change what" in `docs/design.md` has the place of the next idea.
