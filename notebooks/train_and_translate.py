# %% [markdown]
# # Train a small Transformer and translate with it
#
# The model of "Attention Is All You Need" (Vaswani et al. 2017), small enough for two
# CPU cores: it learns a built-in English-German grammar in minutes (README says how
# many). This notebook goes from a config to a trained model, and then shows what the
# model can do.

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
# ## The run
#
# A *config* describes a complete experiment: model, data, training, decoding. A
# *workdir* is the folder of one run. If the workdir exists already, the run continues;
# if it is finished, it is used as it is.

# %%
import json
import os

import matplotlib.pyplot as plt
import numpy as np

import t2t_jax
from t2t_jax import Translator, load_config, train
from t2t_jax.planning import describe, describe_page

ROOT = Path(t2t_jax.__file__).parents[1]  # the checkout
# The environment variables are for tests, which train for fewer steps.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", "tiny")
STEPS = int(os.environ.get("T2T_JAX_NOTEBOOK_STEPS", 600))
WORKDIR = Path(os.environ.get("T2T_JAX_NOTEBOOK_WORKDIR", ROOT / "runs/tiny"))

config = load_config(CONFIG, train={"steps": STEPS})

# %% [markdown]
# Before training, `describe` shows the config's sizes and rates beside the values of
# the paper's base and big models.

# %%
told = describe.describe(config)
print(describe_page.page(told))

# %% [markdown]
# The learning rate rises linearly for `config.train.warmup` steps and then falls with
# the inverse square root of the step (section 5.3, equation 3). A run with fewer steps
# than the warm-up sees it only rise.

# %%
steps = np.arange(1, STEPS + 1)
warmup, width = config.train.warmup, config.model.width
rates = width**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)

ax = plt.subplots(figsize=(6, 2.5), layout="constrained")[1]
ax.plot(steps, rates)
ax.set(xlabel="step", ylabel="learning rate", title="Equation 3", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Training
#
# `train` builds the subword vocabulary, prepares the text, trains, and scores the test
# sets, like `python -m t2t_jax.main`. You may stop it (the stop button, or Ctrl-C):
# everything trained is saved, and the same cell continues.

# %%
scores = train(config, WORKDIR)

# %% [markdown]
# ## How it learned
#
# `metrics.jsonl` in the workdir has one line for each measurement. Lines of kind
# `train` are means over the steps since the previous such line. Lines of kind `dev`
# are of sentences outside the training text, and include BLEU of real translations.

# %%
lines = [json.loads(line) for line in (WORKDIR / "metrics.jsonl").open()]
training = [line for line in lines if line["kind"] == "train"]
dev = [line for line in lines if line["kind"] == "dev"]
print(
    "train:",
    {name: round(value, 4) for name, value in training[-1].items() if name != "kind"},
)
print(
    "dev:  ",
    {name: round(value, 4) for name, value in dev[-1].items() if name != "kind"},
)

# %% [markdown]
# The training loss and the dev loss are not directly comparable. The training loss
# includes label smoothing (section 5.4), which keeps it above zero however good the
# model is, and it is measured with dropout. So the training curve below is the
# logarithm of the training *perplexity*, which is the loss without smoothing. Only
# dropout still distinguishes it from the dev loss.

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.plot(
    [line["step"] for line in training],
    [np.log(line["perplexity"]) for line in training],
    label="training text, with dropout",
)
left.plot(
    [line["step"] for line in dev],
    [line["loss"] for line in dev],
    "o-",
    label="dev set",
)
left.set(xlabel="step", ylabel="nats a subword", title="Cross-entropy", ylim=(0, None))
left.legend(frameon=False)

right.plot(
    [line["step"] for line in dev], [line["bleu"] for line in dev], "o-", color="C1"
)
right.set(xlabel="step", ylabel="BLEU", title="Dev translations", ylim=(0, 100))
right.set_xlim(left.get_xlim())
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Translating
#
# `Translator.load` averages the last checkpoints (section 6.1). `translate` takes lines
# and returns one translation for each, by beam search with `config.decode.beam`
# hypotheses.

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
for ax, (_, target), score in zip(axes, pairs[2:], scored[2:], strict=True):
    places = range(len(score.pieces))
    ax.bar(places, [-x for x in score.log_probs])
    ax.set_xticks(places, score.pieces, rotation=60, parse_math=False)
    ax.set_title(target)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("surprise, -log p")
fig.suptitle("Of two targets, the second with a wrong article")

# %% [markdown]
# ## Scores of the test sets
#
# `test` is like the training text, `unseen` combines words that never occur together
# in training, and `agreement` puts words that must agree far apart. In `long` every
# sentence is longer than any in training; the model is poor at these.

# %%
for name, score in scores.items():
    print(f"{name:10} BLEU {score['bleu']:5.1f}  chrF {score['chrf']:5.1f}")

# %% [markdown]
# A number without its conditions cannot be compared. So each file of `scores/` has
# signatures, the provenance of the scores, and a line that says what they may be
# compared with.

# %%
saved = json.loads((WORKDIR / "scores/test.json").read_text())
print(saved["signature"])
print(saved["compare_with"])

# %% [markdown]
# Next: `attention` shows where the model looks; `change_an_idea` changes the model.
