# %% [markdown]
# # 3. Train and watch
#
# From a config to a trained model and its translations. The model is that of
# "Attention Is All You Need" (Vaswani et al. 2017), small enough for two CPU cores: it
# learns a built-in English-German grammar in about two minutes.

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
# ## A config is a difference
#
# A *config* describes a complete experiment: model, data, training, decoding. Its
# defaults are the paper's base model. A preset such as `tiny` changes some fields, and
# `load_config` changes some more. What is left out is as in the paper.

# %%
import contextlib
import json
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

import t2t_jax
from t2t_jax import Translator, figure, load_config, train
from t2t_jax import config as fields
from t2t_jax.extensions.grammar import corpus
from t2t_jax.tools.plan.describe import describe
from t2t_jax.training.averaging import parameter_steps
from t2t_jax.training.schedules import schedule

ROOT = Path(t2t_jax.__file__).parents[1]  # the checkout
# The environment variables are for tests, which train for fewer steps.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", "tiny")
STEPS = int(os.environ.get("T2T_JAX_NOTEBOOK_STEPS", 600))
WORKDIR = Path(os.environ.get("T2T_JAX_NOTEBOOK_WORKDIR", ROOT / "runs/tiny"))
OTHERS = Path(os.environ.get("T2T_JAX_NOTEBOOK_IDEAS", ROOT / "runs"))

config = load_config(CONFIG, train={"steps": STEPS, "eval_every": max(1, STEPS // 6)})
ours = fields.from_config_dict(config)
for name, (paper, here, _) in fields.differences(fields.Config(), ours).items():
    print(f"{name:22} {paper!s:10} -> {here}")

# %% [markdown]
# ## How large it is
#
# `describe` computes sizes without training anything; `python -m t2t_jax describe`
# prints all of it. Three tenths of the base model are its table of embeddings, and so
# are those of `tiny`, whose vocabulary is small, too.

# %%
print(f"{'':6} {'parameters':>12} {'embeddings':>11} {'checkpoint':>11} {'FLOPs':>9}")
for name, described in (("tiny", config), ("base", "base"), ("big", "big")):
    if isinstance(described, str):
        described = load_config(described)
    size = describe(described)
    parameters = size["parameters"]
    share = parameters["parts"]["embedding"] / parameters["total"]
    print(
        f"{name:6} {parameters['total']:12,} {share:11.0%} "
        f"{size['bytes']['state'] / 1e6:8,.0f} MB "
        f"{size['compute']['flops_target_token']:9.1e}"
    )

# %% [markdown]
# FLOPs are those of training, for one target token.
#
# ## The learning rate
#
# It rises linearly for `config.train.warmup` steps and then falls with the inverse
# square root of the step (section 5.3, equation 3). The curve is the program's; the
# dots are the formula. A run with fewer steps than the warm-up sees it only rise.

# %%
steps = np.arange(1, STEPS + 1)
some = steps[:: max(1, STEPS // 20)]
warmup, width = config.train.warmup, config.model.width

ax = plt.subplots(figsize=(6, 2.5), layout="constrained")[1]
ax.plot(steps, schedule(ours)(steps - 1))
ax.plot(some, width**-0.5 * np.minimum(some**-0.5, some * warmup**-1.5), "k.")
ax.set(xlabel="step", ylabel="learning rate", title="Equation 3", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Training, watched
#
# `train` builds the subword vocabulary, prepares the text, trains, and scores the test
# sets, like `python -m t2t_jax.main`. Its messages appear below, and a picture of its
# metrics that is drawn again every few seconds. The folder of a run, its *workdir*, has
# a file `metrics.jsonl`, to which training appends; `figure` draws it at any time. In a
# terminal, `python -m t2t_jax plot --workdir=runs/tiny` does the same.
#
# You may stop the cell (the stop button, or Ctrl-C): everything trained is saved, and
# the same cell continues. If the run is finished, it is used as it is.
#
# The stored outputs are of two CPU cores that did other work at the same time, so
# their tokens per second do not show the program's speed.

# %%
with contextlib.redirect_stderr(sys.stdout):  # which Jupyter does not paint red
    scores = train(config, WORKDIR)
display(figure(WORKDIR))

# %% [markdown]
# Each line of `metrics.jsonl` is one measurement. Lines of kind `train` are means over
# the steps since the previous such line. Lines of kind `dev` are of sentences outside
# the training text, and include BLEU of real translations.

# %%
for kind in ("train", "dev"):
    lines = [json.loads(line) for line in (WORKDIR / "metrics.jsonl").open()]
    last = [line for line in lines if line["kind"] == kind][-1]
    for name, value in last.items():
        print(
            f"{kind:6} {name:18} {value if isinstance(value, str) else round(value, 4)}"
        )

# %% [markdown]
# The `loss` of the two kinds is not comparable. That of training includes label
# smoothing (section 5.4), which keeps it above zero however good the model is. The
# logarithm of `perplexity` is the loss without smoothing, for both. The gap between
# the two is what the model has learned by heart.

# %%
for kind in ("train", "dev"):
    last = [line for line in lines if line["kind"] == kind][-1]
    print(f"{kind:6} {np.log(last['perplexity']):.3f} nats a piece")

# %% [markdown]
# ## Stop and continue
#
# A run that was stopped and continued computes the same bytes as one that was not:
# parameters, optimizer, order of the sentences and random numbers are all restored.
# Here a short run ends itself, by a function that is called after each step, and is
# continued. A second run is not stopped.

# %%
SHORT = max(40, STEPS // 10)
short = load_config(
    CONFIG,
    data={"test": ""},
    train={
        "steps": SHORT,
        "log_every": SHORT // 10,
        "eval_every": SHORT,
        "dev_lines": 0,
    },
)


def losses(workdir):
    """The exact training losses that were logged, by step."""
    file = workdir / "metrics.jsonl"
    lines = map(json.loads, file.read_text().splitlines() if file.exists() else ())
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}


def stop_at_a_third(step, loss, metrics, state):
    print(f"step {step}: loss {loss:.3f}", end="  ")
    return step == SHORT // 10 * 3


stopped, straight = (OTHERS / f"short-{name}" for name in ("stopped", "straight"))
with contextlib.redirect_stderr(sys.stdout):
    if not stopped.exists():
        train(short, stopped, stop_at_a_third)
    for workdir in (stopped, straight):
        train(short, workdir)

# %%
equal = sum(losses(stopped)[step] == loss for step, loss in losses(straight).items())
print(f"{equal} of {len(losses(straight))} losses are the same number")
for folder in (stopped, straight):
    last = Translator.load(folder, checkpoint="last")
    sha256 = last.provenance()["parameters_sha256"][0]
    print(f"{folder.name:15} SHA-256 of the parameters {sha256[:32]}...")

# %% [markdown]
# ## Checkpoints and their average
#
# A run saves its parameters every `config.train.save_every` steps and keeps the last
# few. The paper translates with their average (section 6.1): the mean of each number.
# Is it better? The dots are single checkpoints; the line is the average of the last 1,
# 2, 3, ... of them.

# %%
dev = corpus.pairs("dev", count=200)


def loss_of(checkpoint):
    """Nats a piece, on sentences that training has not seen."""
    scored = Translator.load(WORKDIR, checkpoint=checkpoint).score(dev, warn=False)
    pieces = sum(len(score.pieces) for score in scored)
    return -sum(score.log_prob for score in scored) / pieces


kept = parameter_steps(WORKDIR)
single = [loss_of(step) for step in kept]
averaged = [loss_of(",".join(map(str, kept[-n:]))) for n in range(1, len(kept) + 1)]

ax = plt.subplots(figsize=(6, 2.8), layout="constrained")[1]
ax.plot(kept, single, "o", label="checkpoint of this step")
ax.plot(kept[::-1], averaged, ".-", label="average from this step to the last")
ax.set(xlabel="step", ylabel="nats a piece", title="Cross-entropy of the dev set")
ax.set_xticks(kept)
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
print(f"last {single[-1]:.4f}, average of {len(kept)} {averaged[-1]:.4f}")

# %% [markdown]
# ## Translating
#
# `Translator.load` averages the last checkpoints. `translate` takes lines and returns
# one translation for each, by beam search with `config.decode.beam` hypotheses.

# %%
translator = Translator.load(WORKDIR)
print(translator)

# %%
typed = [
    "The dog sees the cat.",
    "The man whom the teacher helps buys the book.",
    "She knows that the old farmer bought a small dog.",
    "The cat sleeps because the dog barks.",
]
for translation in translator.translate(typed):
    print(f"{translation.source:52} {translation.text}")

# %% [markdown]
# The model knows only the words of its corpus, and it was trained for minutes: it
# makes mistakes with words that it saw rarely or never. The last line is an example.
#
# **The n best.** Hypotheses are ranked by `score`, the log-probability divided by a
# length penalty (section 6.1). The best few often differ in only one word.

# %%
for hypothesis in translator.translate(typed[:1], beam=8, nbest=4)[0].hypotheses:
    print(f"{hypothesis.score:8.3f}  {hypothesis.text}")

# %% [markdown]
# **A forced beginning.** The search continues `prefix`. German may put the object
# first, but this corpus never does: the output shows how the model handles it.

# %%
for prefix in (None, "Die Katze", "Die Katze wird"):
    print(f"{prefix!s:16} {translator.translate(typed[:1], prefix=prefix)[0]}")

# %% [markdown]
# **Words that must or must not appear.** Both are rules for the search; the model does
# not change. If the model finds a required word improbable, the rest of the sentence
# suffers, and the score is low.

# %%
for rules in ({}, {"must": ["eine"]}, {"must_not": ["sieht"]}):
    found = translator.translate(typed[:1], beam=8, **rules)[0]
    print(f"{rules!s:26} {found.score:8.3f}  {found}")

# %% [markdown]
# **Sampling.** Random samples show what else the model considers possible. Label
# smoothing has taught it to give a tenth of its probability to all other pieces, so
# plain samples sometimes contain nonsense. `top_k` and `top_p` cut that tail off; a
# `temperature` below 1 makes it thinner.

# %%
for options in ({}, {"top_p": 0.8}, {"temperature": 0.5}):
    print(options or "plain")
    for drawn in translator.sample(typed[3:], samples=4, seed=1, **options)[
        0
    ].hypotheses:
        print(f"    {drawn}")

# %% [markdown]
# ## The probability of a translation
#
# `score` computes how probable a given translation is. Two translations that differ in
# one point test the model's grammar: does it prefer the right article? *Hund* is
# masculine, and its article depends on the case.

# %%
pairs = [
    ("The dog sees the cat.", "Der Hund sieht die Katze."),
    ("The dog sees the cat.", "Das Hund sieht die Katze."),
    ("The cat sees the dog.", "Die Katze sieht den Hund."),
    ("The cat sees the dog.", "Die Katze sieht der Hund."),
]
scored = translator.score(pairs)
for (_, target), score in zip(pairs, scored, strict=True):
    print(
        f"{target:28} log p = {score.log_prob:8.3f}   perplexity {score.perplexity:.3f}"
    )

# %% [markdown]
# `log_probs` has the log-probability of each piece, so it shows where the mistake is.
# The last piece, `</s>`, is the end of the sentence.

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
fig.suptitle("Of two targets, the second with a wrong article")
for ax, (_, target), score in zip(axes, pairs[2:], scored[2:], strict=True):
    places = range(len(score.pieces))
    ax.bar(places, [-x for x in score.log_probs])
    ax.set_xticks(places, score.pieces, rotation=60, parse_math=False)
    ax.set_title(target)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("surprise, -log p")

# %% [markdown]
# ## Scores of the test sets
#
# `test` is like the training text, `unseen` combines words that never occur together
# in training, and `agreement` puts words that must agree far apart. In `long` every
# sentence is longer than any in training; the model is poor at these. Notebook 6
# mends that.

# %%
for name, score in scores.items():
    print(f"{name:10} BLEU {score['bleu']:5.1f}  chrF {score['chrf']:5.1f}")

# %% [markdown]
# A number without its conditions cannot be compared. So each file of `scores/` has
# signatures, the provenance of the scores, and a line that says what they may be
# compared with.

# %%
saved = json.loads((WORKDIR / f"scores/{next(iter(scores))}.json").read_text())
print(saved["signature"])
print(saved["compare_with"])

# %% [markdown]
# Next: `4_inside` shows why the model translates as it does.
