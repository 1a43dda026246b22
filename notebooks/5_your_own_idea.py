# %% [markdown]
# # 5. Your own idea
#
# A researcher who tries an idea writes one function, gives it a name, tests it, trains
# with it and without it, and compares. Here are two ideas: an attention function and a
# position scheme, beside those of the paper. Training takes about five minutes of two
# CPU cores.

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
import contextlib
import dataclasses
import io
import json
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx

import t2t_jax
from experiments.measures.attention_patterns import patterns, sentences_of
from t2t_jax import Translator, load_config, train
from t2t_jax.extensions.grammar import corpus
from t2t_jax.model.attention import (
    ATTENTION,
    AttentionFunction,
    dense,
    scores,
    weighted_values,
)
from t2t_jax.model.feed_forward import FEED_FORWARD
from t2t_jax.model.layers import NORMS
from t2t_jax.model.mask import Tokens
from t2t_jax.model.model import MODELS
from t2t_jax.model.positions import POSITIONS, Position
from t2t_jax.tools.experiment.statistics import welch_test
from t2t_jax.training.losses import LOSSES
from t2t_jax.training.optimizers import OPTIMIZERS
from t2t_jax.training.schedules import SCHEDULES

ROOT = Path(t2t_jax.__file__).parents[1]  # the checkout
# The environment variables are for tests, which train for fewer steps.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", "tiny")
STEPS = int(os.environ.get("T2T_JAX_NOTEBOOK_STEPS", 200))
WORKDIRS = Path(os.environ.get("T2T_JAX_NOTEBOOK_IDEAS", ROOT / "runs"))
SEEDS = int(os.environ.get("T2T_JAX_NOTEBOOK_SEEDS", 3))

# %% [markdown]
# ## Where ideas enter
#
# A config names its parts, and tables hold them. An idea is one more entry of a table.

# %%
for field, table in {
    "model.kind": MODELS,
    "model.attention": ATTENTION,
    "model.positions": POSITIONS,
    "model.feed_forward": FEED_FORWARD,
    "model.norm_kind": NORMS,
    "train.loss": LOSSES,
    "train.optimizer": OPTIMIZERS,
    "train.schedule": SCHEDULES,
}.items():
    print(f"config.{field:20}", *table)

# %% [markdown]
# ## The first idea: must it be the exponential?
#
# Equation 1 makes weights of scores by a softmax: exp(score), divided by the sum. The
# exponential lets a head ignore nearly everything: a score that is larger by 5 weighs
# 148 times as much. What if it grew only linearly? softplus(x) = log(1 + eˣ) is nearly
# 0 for low scores and nearly x for high ones.

# %%
x = np.linspace(-4, 4, 200)
ax = plt.subplots(figsize=(5, 2.5), layout="constrained")[1]
ax.plot(x, np.exp(x), label="exp")
ax.plot(x, np.logaddexp(0, x), label="softplus")
ax.set(xlabel="score", ylabel="weight before division", ylim=(0, 10))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# All attention functions have one signature. The letters at the end of a name are its
# axes: **b**atch, **t** queries, **s** keys, **h** heads, **k** head width.
#
# - `q_bthk`: the queries.
# - `kv`: `kv.k_bshk` and `kv.v_bshk`, the keys and the values.
# - `mask`: which keys a query may attend to. `scores` adds -1e9 to all others.
# - `position`: the position scheme, which may add to the scores and to the sums of
#   values. A function that passes it on works with every scheme.
# - `drop`: dropout, called on the weights; it does nothing when the model translates.
#
# The same function serves encoder, decoder and cross attention, in training and in
# decoding. A second function returns the weights alone, for pictures and alignments.


# %%
def softplus_weights(q_bthk, kv, mask, position):
    """Equation 1 with softplus in place of the exponential."""
    open_bhts = jax.nn.softplus(scores(q_bthk, kv, mask, position))
    # A row of padding may attend to nothing; without the bound it would divide 0 by 0.
    return open_bhts / jnp.maximum(open_bhts.sum(-1, keepdims=True), 1e-9)


def softplus(q_bthk, kv, mask, position, drop):
    weights_bhts = drop(softplus_weights(q_bthk, kv, mask, position))
    return weighted_values(weights_bhts.astype(q_bthk.dtype), kv, mask, position)


ATTENTION["softplus"] = AttentionFunction(softplus, softplus_weights)

# %% [markdown]
# `config.model.attention="softplus"` now selects this function. If you change it, run
# the cell again, and train in a new workdir. Models that are built afterwards use the
# new function; what was compiled or scored with the old one is not used for them.
#
# ## The second idea: a window for positions
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

# %% [markdown]
# The model then has no other positions: the sinusoids are gone, and it knows only how
# far apart two tokens are.
#
# ## The laws
#
# A mistake in attention does not always show in training. A decoder that sees the
# future has a wonderful loss. So before anything is trained, the *laws* are tried on
# the new entries: what must hold for every model, whatever it computes. A law returns
# the worst figure that it saw on a small random model, and has a bound.
#
# A check is useful only if it can fail. So a third entry has a common mistake: it
# forgets the mask.


# %%
def leaky(q_bthk, kv, mask, position, drop):
    """Wrong on purpose: every query sees every key, later and other sentences too."""
    query, key = (
        Tokens(jnp.zeros_like(at.segment), at.position) for at in (mask.query, mask.key)
    )
    everything = dataclasses.replace(mask, query=query, key=key, causal=False)
    return dense(q_bthk, kv, everything, position, drop)


ATTENTION["leaky"] = AttentionFunction(leaky)

# %%
sys.path.insert(0, str(ROOT))  # the laws are among the tests of the checkout
from tests.model import cases
from tests.model.laws import LAWS
from tests.model.subject import Excused, Subject

tried = {
    "softplus": Subject(cases.config_of(attention="softplus")),
    "cosine_window": Subject(cases.config_of(positions="cosine_window")),
    "leaky": Subject(cases.config_of(attention="leaky")),
}


def verdict(law, subject):
    try:
        figure = law(subject)
    except Excused:
        return "-"  # it does not apply
    return f"{figure:.1e} BROKEN" if figure > LAWS[law] else f"{figure:.1e}"


print(f"{'':24}", *(f"{name:15}" for name in tried), "bound")
for law, bound in LAWS.items():
    if law.__name__ == "sharded_is_one_device":
        continue  # needs eight devices
    found = [verdict(law, subject) for subject in tried.values()]
    print(f"{law.__name__:24}", *(f"{text:15}" for text in found), f"{bound:.1e}")

# %% [markdown]
# A dash is a law that does not apply: `leaky` has no second function for its weights,
# and the model's twin in NumPy knows only the entries that come with the program.
#
# The first law by hand: change the decoder's input from one position on, and see which
# predictions change. To the left of the line nothing may: not little, but nothing.


# %%
def change_by_position(subject, at):
    """How much logits move, at most, if the decoder's input changes from `at` on."""
    batch = subject.alone(range(4))
    words = batch["target_input"].copy()
    words[:, at:] = (words[:, at:] + 5) % subject.sizes[0]
    moved_btv = subject.forced(batch | {"target_input": words}) - subject.forced(batch)
    return np.abs(moved_btv).max(axis=(0, 2))


AT = 12
ax = plt.subplots(figsize=(7, 3), layout="constrained")[1]
for (name, subject), style in zip(tried.items(), ("-", "-", "--"), strict=True):
    moved = change_by_position(subject, AT)
    ax.plot(moved, style, label=name)
    print(f"{name:14} largest change before the line: {moved[:AT].max():g}")
ax.axvline(AT - 0.5, color="grey", linewidth=1)
ax.text(AT, ax.get_ylim()[1], " changed from here on", va="top", color="grey")
ax.set(xlabel="target position", ylabel="largest change of a logit")
ax.legend(frameon=False, loc="center left")
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Runs that differ in one thing
#
# The runs share the text, the order of batches and everything else that the config
# says. They are short, so they are compared by the cross-entropy of the dev set and
# not by BLEU. One pair of runs is an anecdote: two runs of the *same* config differ
# too. So each config is trained with several values of `config.train.seed`, from which
# the initial parameters and the order of the sentences follow.


# %%
def config_of(seed, **model):
    return load_config(
        CONFIG,
        model=model,
        data={"test": ""},
        train={
            "steps": STEPS,
            "seed": seed,
            "log_every": max(1, STEPS // 4),
            "eval_every": max(1, STEPS // 10),
            "save_every": STEPS,
            "dev_lines": 0,
        },
    )


VARIANTS = {
    "paper": {"attention": "dense"},
    "softplus": {"attention": "softplus"},
    "cosine_window": {"attention": "dense", "positions": "cosine_window"},
}
folders = {
    name: [WORKDIRS / f"idea-{name}-{STEPS}-{seed}" for seed in range(SEEDS)]
    for name in VARIANTS
}


def dev_losses(folder):
    """The steps and the dev losses of a run."""
    lines = map(json.loads, (folder / "metrics.jsonl").open())
    dev = [line for line in lines if line["kind"] == "dev"]
    return [line["step"] for line in dev], [line["loss"] for line in dev]


for name, model in VARIANTS.items():
    for seed, folder in enumerate(folders[name]):
        with contextlib.redirect_stderr(io.StringIO()):  # nine times the same messages
            train(config_of(seed, **model), folder)
        print(f"{name:14} seed {seed}: dev loss {dev_losses(folder)[1][-1]:.3f}")

# %%
last = {name: [dev_losses(f)[1][-1] for f in runs] for name, runs in folders.items()}

left, right = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")[1]
for place, (name, runs) in enumerate(folders.items()):
    for folder in runs:
        left.plot(*dev_losses(folder), color=f"C{place}", alpha=0.6)
    right.plot([place] * SEEDS, last[name], "o", color=f"C{place}", alpha=0.6)
    right.plot(place, np.mean(last[name]), "_", color=f"C{place}", markersize=24)
left.set(xlabel="step", ylabel="nats a piece", title="Cross-entropy of the dev set")
right.set(title=f"After {STEPS} steps", xlim=(-0.5, len(folders) - 0.5))
right.set_xticks(range(len(folders)), folders)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# How much of a difference is luck? The standard deviation over seeds says how far two
# runs of one config are apart. Welch's test asks how often a difference this large
# comes up between configs that are equally good.

# %%
for name, values in last.items():
    print(f"{name:14} {np.mean(values):.3f}, deviation {np.std(values, ddof=1):.3f}")
    if name != "paper":
        difference = np.mean(values) - np.mean(last["paper"])
        p = welch_test(values, last["paper"])
        print(f"{'':14} {difference:+.3f} against the paper, p = {p:.2g}")

# %% [markdown]
# Three short runs of a tiny model show what is certainly worse at the beginning, not
# what is better in the end. The paper's own variants, each with several seeds, are
# measured by `python -m t2t_jax experiment` (`docs/experiments.md`).
#
# ## Looking inside
#
# Pictures and alignments show the weights of the function that the model was trained
# with. Is attention broader without the exponential? The entropy of the weights, in
# bits, is the answer: 0 looks at one piece, 3 at eight alike.

# %%
pairs = corpus.pairs("dev", count=20)
axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")[1]
for ax, name in zip(axes, ("paper", "softplus"), strict=True):
    translator = Translator.load(folders[name][0], checkpoint="last")
    maps = [translator.attention(*pair) for pair in pairs]
    for attention, sentences in sentences_of(maps, []).items():
        entropy = patterns(sentences)["entropy"].mean()
        print(f"{name:9} {attention:8} {entropy:.2f} bits")
    shown = translator.attention("The dog sees the cat.", "Der Hund sieht die Katze.")
    shown.plot("cross", ax=ax)
    ax.images[0].set_clim(0, 1)
    ax.set_title(f"{name}: cross attention, mean")

# %% [markdown]
# ## From here
#
# - Entries compose: `config_of(0, attention="softplus", positions="cosine_window")` is
#   a model too.
# - For the commands, put an entry into a file `my_idea.py`, which imports what it
#   needs, and give them `--ideas=my_idea.py`. To keep it, make it a line of its table.
# - `docs/your-idea.md` has six ideas, one for each kind of table.
# - All laws, on eight devices and together with entries of other tables:
#   `python -m pytest tests/model/test_laws_of_variants.py --ideas=my_idea.py`.
