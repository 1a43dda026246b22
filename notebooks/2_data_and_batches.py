# %% [markdown]
# # 2. Data and batches
#
# Section 5.1 of "Attention Is All You Need" takes one paragraph for this: "Sentences
# were encoded using byte-pair encoding, which has a shared source-target vocabulary of
# about 37000 tokens. [...] Sentence pairs were batched together by approximate sequence
# length. Each training batch contained a set of sentence pairs containing approximately
# 25000 source tokens and 25000 target tokens."
#
# This notebook follows a text from its two files to the arrays of a batch. No model is
# trained.

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
import itertools
import os
import tempfile
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from t2t_jax import UserError, load_config
from t2t_jax import config as fields
from t2t_jax.data import cleaning, prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.feeding import BatchLookup, Position, feed, plan_for
from t2t_jax.data.filling import fill
from t2t_jax.data.pairs import encode_pairs
from t2t_jax.data.shapes import static_shapes
from t2t_jax.data.tokenizers.training import make_tokenizer, train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.transformer import teacher_forcing

# The environment variable is for tests, which take less text.
CONFIG = os.environ.get("T2T_JAX_NOTEBOOK_CONFIG", "tiny")
config = fields.from_config_dict(load_config(CONFIG))
data, seed = config.data, config.train.seed


def plain(*axes):
    """Removes the frame's upper and right line."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)


# %% [markdown]
# ## Text: one sentence a line
#
# A corpus is two text files with the same number of lines: line 7 of one is the
# translation of line 7 of the other. `config.data.train` names it by the part of the
# file names that both share: `news/train` stands for `news/train.en` and
# `news/train.de`. The built-in corpus is `grammar:train`. Commas separate several
# corpora.

# %%
print("config.data.train =", repr(data.train))
corpora = open_corpora(data.train, data.source, data.target, data.dir, weights=True)
for english, german in itertools.islice(corpora[0].pairs(), 5):
    print(f"{english}\n    {german}")

# %% [markdown]
# ### Your own two files
#
# The next cell writes two small files with the faults that collected text has. A line
# ends at a line feed and nowhere else: the carriage return of Windows is dropped, and
# other line separators of Unicode, such as U+2028, are part of the sentence. So no
# character can shift the lines of one file against the other.

# %%
OWN = [
    ("The dog sees the cat.\r", "Der Hund sieht die Katze.\r"),
    ("First line.\u2028Still the first.", "Erste Zeile.\u2028Immer noch die erste."),
    ("", "Zu dieser Zeile fehlt die Quelle."),
    ("The dog sees the cat.", "Der Hund sieht die Katze."),
    ("Yes.", "Das ist eine sehr lange Übersetzung eines sehr kurzen Satzes."),
    ("word " * 80 + ".", "Wort " * 80 + "."),
    ("Good morning!", "Guten Morgen!"),
]
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
for language, lines in zip(("en", "de"), zip(*OWN, strict=True), strict=True):
    (folder / f"own.{language}").write_bytes("".join(f"{x}\n" for x in lines).encode())

own = open_corpora("own", "en", "de", str(folder))
for number, (english, german) in enumerate(own[0].pairs(), 1):
    print(f"{number}  {english[:40]!r:45} {german[:40]!r}")

# %% [markdown]
# Two files that do not fit together are an error, and nothing is trained on them.

# %%
(folder / "bad.en").write_text("One.\nTwo.\n")
(folder / "bad.de").write_text("Eins.\nZwei.\nDrei.\n")
try:
    list(open_corpora("bad", "en", "de", str(folder))[0].pairs())
except UserError as error:
    print(error)

# %% [markdown]
# ## Cleaning
#
# Four rules drop pairs from *training* text: a side without a visible character, a pair
# that came before, a side with more than `max_length` pieces, and a side with more than
# `max_ratio` times the pieces of the other. Dev and test sets are never cleaned, since
# a score must be of the complete set. The rules about pieces need a tokenizer, so here
# is the one of the training text.

# %%
vocabulary = make_tokenizer(corpora, data)
print(vocabulary)

strict = dataclasses.replace(data, max_length=60, max_ratio=4.0)
cleaner = cleaning.Cleaner(strict)
for chunk in cleaning.read_chunks(own):
    chunk = cleaner.by_text(chunk)
    sides = encode_pairs(chunk.pairs, vocabulary)
    kept_p = cleaner.by_length(chunk, *(side.lengths for side in sides))
    print("kept lines:", chunk.lines[kept_p].tolist())
print("dropped:   ", cleaner.dropped)

# %% [markdown]
# A run writes the first examples of each rule to a file, `left_out.txt`, for you to
# look at. It looks like this:

# %%
print("\n".join(line[:70] for line in cleaner.show(["own"]).splitlines()))

# %% [markdown]
# ## Subwords
#
# Byte-pair encoding starts from single characters and joins the most frequent pair of
# neighbours into a new piece, again and again, until there are `vocab_size` pieces. A
# frequent word is one piece, a rare one is several. `▁` stands for a space.

# %%
for line in (
    "The old farmer bought a small dog.",
    "Der alte Bauer kaufte einen kleinen Hund.",
    "Donaudampfschifffahrt",
):
    print(" ".join(vocabulary.pieces(line)))

# %% [markdown]
# **Bytes.** A character that the training text does not have is spelled in its UTF-8
# bytes, so no text is unknown. Every line comes back as it was, spaces included.

# %%
for line in ("日本", "😀", "two  spaces and a\ttab", " Привет! "):
    ids = vocabulary.encode([line])
    same = vocabulary.decode(ids) == [line]
    print(f"{line!r:28} back again: {same}   {' '.join(vocabulary.pieces(line))}")

# %% [markdown]
# **Joint.** Source and target share one set of pieces, which makes one embedding table
# for both possible (section 3.4). Names, punctuation and parts of words serve both
# languages.

# %%
sample = list(itertools.islice(corpora[0].pairs(), 3_000))
english, german = (
    {i for row in vocabulary.encode(lines) for i in row}
    for lines in zip(*sample, strict=True)
)
both = english & german
parts = {
    "English only": len(english - both),
    "both": len(both),
    "German only": len(german - both),
}
longest = sorted(map(vocabulary.piece, both), key=len)[::-1][:12]
print("in both:", *longest)
ax = plt.subplots(figsize=(6, 1.3), layout="constrained")[1]
left = 0
for (name, count), color in zip(parts.items(), ("C0", "C2", "C1"), strict=True):
    ax.barh([0], [count], left=left, color=color)
    ax.text(left + count / 2, 0, f"{name}\n{count:,}", ha="center", va="center")
    left += count
ax.set(yticks=[], xlabel=f"pieces used in {len(sample):,} pairs")
ax.spines[["top", "right", "left"]].set_visible(False)

# %% [markdown]
# **How many pieces?** More pieces make shorter sentences, so less computing, but a
# larger table and rarer pieces, of which each is seen less often. The curve is of
# tokenizers trained on the sample.

# %%
text = [line for pair in sample for line in pair]
sizes, lengths = [], []
for size in (350, 500, 700, 1_000, 1_500, 2_000):
    try:
        trained = Vocabulary(train_tokenizer(text, size))
    except UserError as error:  # this text has no more different pieces
        print(error)
        break
    sizes.append(size)
    lengths.append(np.mean([len(row) for row in trained.encode(text)]))
ax = plt.subplots(figsize=(5, 2.6), layout="constrained")[1]
ax.plot(sizes, lengths, "o-")
words = np.mean([len(line.split()) for line in text])
ax.axhline(words, color="0.6", linewidth=1)
ax.text(sizes[-1], words, "words ", ha="right", va="bottom", color="0.4")
ax.set(xlabel="vocab_size", ylabel="pieces in a sentence", ylim=(0, None))
plain(ax)

# %% [markdown]
# ## Arrays
#
# The text is cleaned and encoded once, and stored in the cache folder. All sentences of
# a side are one flat array; `offsets` says where each begins. Every sentence ends in
# `</s>`, the end of the sentence.

# %%
pairs = prepare.training_pairs(corpora, vocabulary, data)
print("\n".join(prepare.report_lines(pairs)))
print("tokens ", pairs.source.tokens.shape, pairs.source.tokens.dtype)
print("offsets", pairs.source.offsets[:5], "...")
for side in (pairs.source, pairs.target):
    print(side[0], " ".join(map(vocabulary.piece, side[0])))

# %% [markdown]
# ## The plan of an epoch
#
# Which pair stands in which row of which batch is decided before the epoch begins. The
# plan is a **pure function** of the lengths of the sentences, the config, the seed and
# the number of the epoch. Nothing else enters: neither the number of devices nor where
# a run was interrupted.

# %%
plan = plan_for(pairs, data, seed, epoch=0)
print(f"{len(plan)} batches of {len(pairs):,} pairs")

layout = plan[0]
print(f"batch 0: {len(layout.pair_p)} pairs in {layout.shape}, the first of them:")
print("pair in the text, row, segment, first place in source and target")
columns = "pair_p", "row_p", "segment_p", "source_start_p", "target_start_p"
for numbers in list(zip(*(getattr(layout, c) for c in columns), strict=True))[:7]:
    print("".join(f"{number:7}" for number in numbers))

# %%
again, other = plan_for(pairs, data, seed, 0), plan_for(pairs, data, seed, epoch=1)


def same(a, b):
    return len(a) == len(b) and all(
        np.array_equal(*arrays) for arrays in zip(a.arrays, b.arrays, strict=True)
    )


print("the same epoch planned again: the same plan?", same(plan, again))
print("another epoch:                the same plan?", same(plan, other))
drawn = Counter(plan.arrays[0].tolist())
print(
    "every pair exactly once:",
    sorted(drawn) == [*range(len(pairs))],
    set(drawn.values()),
)

# %% [markdown]
# So any batch of any run can be **listed again**, although training records nothing.
# `python -m t2t_jax whatwas --workdir=DIR --step=N` does this for a step of a run, to
# find the sentences behind a jump of the loss.

# %%
lookup = BatchLookup(config, pairs, vocabulary)
for pair in itertools.islice(lookup.pairs(Position(epoch=3, batch=5)), 4):
    print(f"row {pair['row']}, line {pair['line']} of {pair['corpus']}")
    print(f"    {pair['source']}\n    {pair['target']}")

# %% [markdown]
# ## The token budget
#
# A batch has at most `batch_tokens` tokens on each side, padding included: the paper's
# 25,000. XLA compiles a program for each shape of its arrays, so shapes have to be few
# and fixed. Two ways of batching fill them:
#
# - **packed**: several pairs share a row; one shape;
# - **bucketed**: one pair a row, pairs of similar length together; a few shapes.

# %%
for batching in ("packed", "bucketed"):
    shapes = static_shapes(
        pairs.source.lengths,
        pairs.target.lengths,
        batch_tokens=data.batch_tokens,
        batching=batching,
        row_length=data.row_length,
        buckets=data.buckets,
    )
    print(f"{batching}, at most {data.batch_tokens:,} tokens a side")
    for shape in shapes:
        tokens = shape.rows * max(shape.source, shape.target)
        print(
            f"    {shape.rows:4} rows of {shape.source} + {shape.target} ({tokens:,})"
        )

# %% [markdown]
# ## A packed batch
#
# `fill` makes the arrays. `source_segment` has the number of a token's sentence in its
# row, from 1; 0 is padding. `source_position` counts from 0 in each sentence.

# %%
packed = dataclasses.replace(data, batching="packed")
plan = plan_for(pairs, packed, seed, epoch=0)
batch = fill(plan[0], pairs.source, pairs.target)
for name, array in batch.items():
    print(f"{name:16} {array.shape} {array[0, :14]}")

# %% [markdown]
# Each colour is a sentence; white is padding. The sentences of a pair have the same
# number, and so the same colour, on both sides. They need not begin at the same place.

# %%
# Neighbouring sentences get different colours; padding is white.
CYCLE = plt.get_cmap("tab20").colors[::2]
SEGMENTS = ListedColormap(["white", *CYCLE])


def draw_segments(ax, segments, title):
    colours = np.where(segments > 0, (segments - 1) % len(CYCLE) + 1, 0)
    scale = {"cmap": SEGMENTS, "vmin": 0, "vmax": len(CYCLE)}
    ax.imshow(colours, aspect="auto", interpolation="nearest", **scale)
    ax.set(title=title, xlabel="place in the row", ylabel="row")


fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for ax, side in zip(axes, ("source", "target"), strict=True):
    draw_segments(ax, batch[f"{side}_segment"], f"{side}_segment")

# %% [markdown]
# The first places of row 0, piece by piece. `teacher_forcing` adds the decoder's input:
# the target, shifted right by one within each sentence, after `<s>` (figure 1).

# %%
forced = teacher_forcing(batch, vocabulary.bos)
print(f"{'place':>5} {'segment':>7} {'position':>8}  {'target_input':16} target")
for place in range(min(18, batch["target"].shape[1])):
    token, read = (forced[name][0, place] for name in ("target", "target_input"))
    print(
        f"{place:5} {batch['target_segment'][0, place]:7} "
        f"{batch['target_position'][0, place]:8}  "
        f"{vocabulary.piece(read):16} {vocabulary.piece(token)}"
    )

# %% [markdown]
# Sentences in one row must not see each other. The mask makes sure: a query attends
# only to keys of its own segment, and in the decoder only to earlier ones. The three
# pictures are the masks of row 0 in the encoder, the decoder and between them.

# %%
source, target = Tokens.of(batch, "source"), Tokens.of(batch, "target")
masks = {
    "encoder": (Mask(source, source), "source", "source"),
    "decoder": (Mask(target, target, causal=True), "target", "target"),
    "decoder to encoder": (Mask(target, source), "target", "source"),
}
fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
for ax, (name, (mask, rows, columns)) in zip(axes, masks.items(), strict=True):
    allowed = np.asarray(mask.allowed())[0, 0]
    # Padding attends to padding, which nobody reads; it is left out here.
    numbers = np.where(allowed, batch[f"{rows}_segment"][0][:, None], 0)
    draw_segments(ax, numbers, name)
    ax.set(xlabel=f"keys: {columns}", ylabel=f"queries: {rows}", aspect="equal")

# %% [markdown]
# ## A bucketed batch
#
# The paper's way: pairs of similar length stand together. Every row has one pair, so
# the segments are all 1. Below, a batch of the shortest and one of the longest shape.

# %%
bucketed = dataclasses.replace(data, batching="bucketed")
by_length = plan_for(pairs, bucketed, seed, epoch=0)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for ax, kind in zip(
    axes, (by_length.shape_b.min(), by_length.shape_b.max()), strict=True
):
    number = int(np.flatnonzero(by_length.shape_b == kind)[0])
    filled = fill(by_length[number], pairs.source, pairs.target)
    shape = by_length.shape(number)
    title = f"source_segment: {shape.rows} rows of {shape.source}"
    draw_segments(ax, filled["source_segment"], title)

# %% [markdown]
# ## How much is padding?
#
# A model computes padding like any other token. Its share, measured on the complete
# epoch, for three ways: pairs in random order, each batch padded to its longest
# sentence; bucketed; and packed.


# %%
def padded_to_longest(order):
    """Real and computed tokens of batches of consecutive pairs, padded."""
    real, computed = 0, 0
    lengths = np.stack([pairs.source.lengths, pairs.target.lengths], axis=1)[order]
    rows = data.batch_tokens // lengths.max()
    for begin in range(0, len(lengths), rows):
        part = lengths[begin : begin + rows]
        real, computed = real + part.sum(), computed + (part.max(0) * len(part)).sum()
    return real / computed


ways = {
    "random order": padded_to_longest(np.random.default_rng(0).permutation(len(pairs))),
    "bucketed": by_length.efficiency,
    "packed": plan.efficiency,
}
ax = plt.subplots(figsize=(6, 1.7), layout="constrained")[1]
ax.barh([*ways], [*ways.values()])
ax.barh([*ways], [1 - x for x in ways.values()], left=[*ways.values()], color="0.85")
for number, real in enumerate(ways.values()):
    ax.text(1.02, number, f"{1 - real:.1%} padding", va="center")
ax.set(xlabel="share of what is computed; grey: padding", xlim=(0, 1))
ax.invert_yaxis()
plain(ax)

# %% [markdown]
# Packing pays for this with attention: a row's queries and keys are all compared, and
# most of the comparisons are masked. For short rows that is little beside the products
# with weights; `row_length` limits it.
#
# ## The same order, always
#
# A position in the data is two numbers, epoch and batch. A run that continues after an
# interruption starts the feeder there, and gets the batches which the uninterrupted run
# would have got, byte for byte.

# %%
straight = list(itertools.islice(feed(pairs, data, seed), 6))
position = straight[3][0]  # after four batches
continued = list(itertools.islice(feed(pairs, data, seed, position), 2))
for (_, one), (_, two) in zip(straight[4:], continued, strict=True):
    print("the same arrays:", all(np.array_equal(one[name], two[name]) for name in one))

# %% [markdown]
# ## Training on your own files
#
# A config names the files; the rest is as for the built-in text. The one field that
# often has to change is the size of the vocabulary, and the error message says to what.

# %%
own_config = load_config(
    CONFIG, data={"dir": str(folder), "train": "own", "vocab_size": 3_000}
)
try:
    make_tokenizer(own, fields.from_config_dict(own_config).data)
except UserError as error:
    print(error)
temporary.cleanup()

# %% [markdown]
# With enough text, `train(load_config("tiny", data={...}), "runs/own")` trains, or the
# command line:
#
#     python -m t2t_jax.main --config=configs/tiny.py --workdir=runs/own \
#         --config.data.dir=FOLDER --config.data.train=own \
#         --config.data.dev=own_dev --config.data.test=own_test
#
# Translations are one sentence a line, too: `python -m t2t_jax translate
# --workdir=runs/own --input=FILE --output=FILE` writes exactly one line for each line
# that it reads, in the same order, whatever the lines contain.
#
# Next: notebook 3 trains a model and watches it.
