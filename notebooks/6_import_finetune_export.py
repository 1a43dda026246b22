# %% [markdown]
# # 6. Import, fine-tune, export
#
# Models do not stay where they were trained. This notebook takes a trained model,
# trains it further on another text, measures what it gained and what it forgot, and
# hands it to other systems. Training takes about a minute of two CPU cores.

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
import contextlib
import json
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

import t2t_jax
from t2t_jax import Translator, UserError, load_config, train
from t2t_jax import config as fields
from t2t_jax.extensions.grammar import corpus
from t2t_jax.metrics.measures import compared
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.tools.bridges.exporting import export
from t2t_jax.tools.bridges.formats import Request
from t2t_jax.tools.bridges.importing import import_model
from t2t_jax.tools.bridges.table import EXPORTS, IMPORTS
from t2t_jax.tools.pages.run_plots import figure
from t2t_jax.workdir import Workdir

ROOT = Path(t2t_jax.__file__).parents[1]  # the checkout
WORKDIR = Path(os.environ.get("T2T_JAX_NOTEBOOK_WORKDIR", ROOT / "runs/tiny"))
OTHERS = Path(os.environ.get("T2T_JAX_NOTEBOOK_IDEAS", ROOT / "runs"))
# The environment variables are for tests, which train for fewer steps.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", "tiny")
STEPS = int(os.environ.get("T2T_JAX_NOTEBOOK_STEPS", 600))
TUNING = STEPS // 5  # steps of fine-tuning

if not (WORKDIR / "config.json").is_file():
    train(load_config(CONFIG, train={"steps": STEPS}), WORKDIR)

original = Translator.load(WORKDIR)
print(original)

# %% [markdown]
# ## What the model cannot do
#
# The longest sentence of the training text has 22 words. Sentences of `long` are longer
# than that, from the same grammar and with the same words.

# %%
COUNT = min(100, STEPS)  # sentences of each test set
TESTS = {name: corpus.pairs(name)[:COUNT] for name in ("test", "long")}


def translations(translator, name):
    lines = [source for source, _ in TESTS[name]]
    return [str(found) for found in translator.translate(lines, warn=False)]


def bleu(outputs, name):
    references = [target for _, target in TESTS[name]]
    return corpus_scores(outputs, references, "de")["bleu"]


before = {name: translations(original, name) for name in TESTS}
for name, outputs in before.items():
    words = np.mean([len(source.split()) for source, _ in TESTS[name]])
    print(f"{name:5} {words:4.1f} words a sentence, BLEU {bleu(outputs, name):5.1f}")

# %% [markdown]
# An example. In what way does it fail?

# %%
for line in (*TESTS["long"][0], before["long"][0]):
    print(line, end="\n\n")

# %% [markdown]
# ## A text of your own
#
# A text is two files, one sentence a line: `train.en` and `train.de`. Here they are
# filled with other long sentences, none of them in the test set. Yours may hold
# anything; `config.data.train` is their common beginning.

# %%
text = OTHERS / "long-sentences"
text.mkdir(parents=True, exist_ok=True)
held_back = {*corpus.pairs("long")}
for name, seed, count in (("train", 1, 15 * TUNING), ("dev", 2, 60)):
    pairs = [
        pair for pair in corpus.pairs("long", seed, count) if pair not in held_back
    ]
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        content = "".join(f"{line}\n" for line in lines)
        (text / f"{name}.{language}").write_text(content, encoding="utf-8")
    print(f"{name:5} {len(pairs):5,} pairs")

# %% [markdown]
# ## Fine-tuning
#
# The preset `finetune:WORKDIR` takes over model, tokenizer and search of a workdir and
# starts from its parameters, with a low learning rate that falls to 0 and some dropout.
# The original is not changed: this is a run of its own. (The stored outputs are of two
# CPU cores that did other work at the same time: ignore their tokens per second.)

# %%
config = load_config(
    f"finetune:{WORKDIR}",
    data={
        "train": str(text / "train"),
        "dev": str(text / "dev"),
        "test": "",
        "feeder": "numpy",
    },
    train={
        "steps": TUNING,
        "warmup": max(1, TUNING // 6),
        "peak_learning_rate": 1e-3,
        "log_every": max(1, TUNING // 12),
        "eval_every": max(1, TUNING // 4),
        "save_every": TUNING,
        "dev_lines": 30,
    },
)
theirs = original.config
ours = fields.from_config_dict(config)
for name, (old, new, _) in fields.differences(theirs, ours).items():
    print(f"{name:26} {old!s:22.22} -> {new!s:.40}")

# %%
tuned_dir = OTHERS / f"tuned-{TUNING}"
with contextlib.redirect_stderr(sys.stdout):  # which Jupyter does not paint red
    train(config, tuned_dir)
tuned = Translator.load(tuned_dir)
display(figure(str(tuned_dir)))

# %% [markdown]
# ## Gained and forgotten
#
# A model that is trained on something else may forget what it knew. So both test sets
# are translated again. The p-value is that of a paired bootstrap over the sentences:
# how often would a difference like this come up by the choice of sentences alone?

# %%
after = {name: translations(tuned, name) for name in TESTS}
ax = plt.subplots(figsize=(5, 2.8), layout="constrained")[1]
for place, name in enumerate(TESTS):
    old, new = (bleu(outputs[name], name) for outputs in (before, after))
    found = compared(text_measures("de"), after[name], before[name], TESTS[name])
    p = found["bleu"]["p_value"]
    print(f"{name:5} BLEU {old:5.1f} -> {new:5.1f}   p = {p:.3f}")
    ax.bar([place - 0.2, place + 0.2], [old, new], 0.38, color=["C7", "C0"])
    ax.text(place - 0.2, old, f"{old:.0f}", ha="center", va="bottom")
    ax.text(place + 0.2, new, f"{new:.0f}", ha="center", va="bottom")
ax.set_xticks(range(len(TESTS)), TESTS)
ax.set(ylabel="BLEU", title="Before (grey) and after (blue)", ylim=(0, 110))
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# In our run (100 sentences each) `long` rose from 36 to 62, p = 0.001, and `test` went
# from 93.6 to 91.2, which 100 sentences do not tell from chance: much gained, and
# perhaps a little forgotten. If it were more, the old text could be mixed in:
# `config.data.train` takes several places.
#
# The same example again: the reference, before, after.

# %%
for line in (TESTS["long"][0][1], before["long"][0], after["long"][0]):
    print(line, end="\n\n")

# %% [markdown]
# ## Going out
#
# `export` writes the files of another system, has *that system* translate some lines in
# a process of its own, and compares. If they are not the same, nothing gets the name
# that was asked for. Formats that are written, and those that are read:

# %%
for title, table in (("export", EXPORTS), ("import", IMPORTS)):
    for name, form in table.items():
        print(f"{title}  {name:20} {form.name}")

# %% [markdown]
# To compare, `export` needs the other system. If it is not installed, it says what to
# install; this notebook then goes on without it.

# %%
# The command compares 1,000 lines of the run's dev and test text; 40 are enough here.
checked = zip(*TESTS["test"][:40], strict=True)
for language, lines in zip(("en", "de"), checked, strict=True):
    content = "".join(f"{line}\n" for line in lines)
    (text / f"check.{language}").write_text(content, encoding="utf-8")

exported = {}


def hand_over(translator, name, **options):
    """Exports and shows what was compared; or shows why that is not possible here."""
    folder = OTHERS / "-".join([f"export-{TUNING}-{name}", *options.values()])
    try:
        if not folder.exists():
            export(translator, name, folder, test=str(text / "check"), **options)
    except UserError as e:
        print(e)
        return
    found = json.loads((folder / "agreement.json").read_text())
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder.name}: {size / 1e6:.1f} MB; {found['summary']}")
    exported[name] = folder


# %% [markdown]
# ### StableHLO: the search as a program of JAX
#
# The encoder and the whole beam search, compiled for CPU, GPU and TPU. Whoever runs it
# needs JAX, NumPy and SentencePiece, and nothing of ours. Sources of at most 32 pieces
# are enough here, which makes one program for beam search and one for greedy search.

# %%
hand_over(tuned.with_options(max_source=32), "stablehlo")

# %% [markdown]
# The export has a README with a few lines of Python that translate. They run here, in
# another process, and the answer is that of our own search.

# %%
line = "The man whom the teacher helps buys the book."
readme = (exported["stablehlo"] / "README.md").read_text()
code = readme.split("```python\n")[1].split("```")[0].replace("A line of text.", line)
print(code)
done = subprocess.run(
    [sys.executable, "-c", code],
    cwd=exported["stablehlo"],
    capture_output=True,
    text=True,
    check=True,
)
print("the program:", done.stdout.strip())
print("t2t_jax:    ", tuned.translate([line])[0])

# %% [markdown]
# ### safetensors: the parameters, out and in again
#
# Every number under our own names, bit for bit; a format that many libraries read.
# `import` reads the folder back into a workdir. The way out and in changes no bit.

# %%
hand_over(tuned, "safetensors")

# %%
if "safetensors" in exported:
    back = OTHERS / f"imported-{TUNING}"
    if not back.exists():
        import_model(Request(exported["safetensors"]), Workdir(back))
    for name, translator in (("out", tuned), ("in", Translator.load(back))):
        print(f"{name:4}", translator.provenance()["parameters_sha256"][0])

# %% [markdown]
# ### CTranslate2: small and fast
#
# An inference engine in C++. With 8-bit integers the model is a third of the size. That
# changes some translations, so it is compared by BLEU.

# %%
hand_over(tuned, "ctranslate2")

# %%
hand_over(tuned, "ctranslate2", quantization="int8")

# %% [markdown]
# ### Hugging Face Transformers, out and in again
#
# The model becomes a MarianMT, which `from_pretrained` loads. A published MarianMT,
# such as OPUS-MT, comes in on the same way: `import_model` with its folder, and then
# fine-tuning as above.

# %%
hand_over(tuned, "huggingface")

# %%
if "huggingface" in exported:
    back = OTHERS / f"marian-{TUNING}"
    if not back.exists():
        import_model(Request(exported["huggingface"]), Workdir(back))
    print("out", tuned.translate([line])[0])
    print("in ", Translator.load(back).translate([line])[0])

# %% [markdown]
# ## The same in a terminal
#
#     python -m t2t_jax import --model=opus-mt-en-de --workdir=runs/opus
#     python -m t2t_jax.main --config=finetune:runs/opus --workdir=runs/tuned \
#         --config.data.train=mine/train --config.data.dev=mine/dev
#     python -m t2t_jax evaluate --workdir=runs/tuned --test=mine/test
#     python -m t2t_jax export --workdir=runs/tuned --to=ctranslate2 \
#         --quantization=int8 --output=deploy/ct2
#
# `docs/bridges.md` has all formats, what was measured, and what differs from the
# originals.
