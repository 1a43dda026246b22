# %% [markdown]
# # 4. Inside
#
# Why does a model translate as it does? This notebook opens one: attention and its
# heads, the layers, the search. It asks one question and answers it in five ways,
# with a number beside each picture.

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

# %% [markdown]
# `WORKDIR` is any trained workdir; the sentences below are for English-German. If it
# does not exist, the small model is trained, in minutes on two CPU cores.

# %%
import collections
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

import t2t_jax
from experiments.measures.attention_patterns import kind_of, patterns, sentences_of
from experiments.measures.heads import heads_of, without_heads
from t2t_jax import Translator, load_config, train
from t2t_jax.extensions.grammar import corpus
from t2t_jax.tools.explain.explain import explain

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
# ## The question
#
# German verbs choose the case of their object. Most take the accusative, some the
# dative: *helfen*, *danken*, *folgen*. So *whom* is *den* or *dem*, and the verb that
# decides stands further to the right. When the decoder has to say the word, it has not
# yet said the verb.

# %%
TEMPLATE = "The man whom the teacher {} buys the book."
VERBS = ("helps", "thanks", "follows", "answers", "sees", "visits", "knows", "kisses")
for verb in VERBS:
    print(f"{verb:8}", translator.translate([TEMPLATE.format(verb)])[0])

# %% [markdown]
# **Why does the model say *dem* and not *den*, in the first sentence?**
#
# `explain` computes all that this notebook looks at, and shows it as a page: hover over
# a piece, or move with the arrow keys. The second target is the same sentence with the
# other word. `explanation.save("page.html")` writes the page to a file that opens
# anywhere and loads nothing. The stored outputs have one line in its place.

# %%
source = TEMPLATE.format("helps")
DEM = "Der Mann, dem der Lehrer hilft, kauft das Buch."
DEN = DEM.replace("dem", "den")
translation = str(translator.translate([source])[0])
other = DEM if translation == DEN else DEN
explanation = explain(translator, source, target=other, name=WORKDIR.name)
display(explanation)

# %% [markdown]
# The same as arrays: `explanation.readings` are the two targets of the sentence, the
# translation and then the given one. `AT` is the place where the two part. Arrays count
# from 0; the page counts layers, heads and pieces from 1.

# %%
said, rival = explanation.readings
AT = said.difference.position
SAID, RIVAL = said.pieces[AT], rival.pieces[AT]
maps = said.maps
print("source", *maps.source)
print("target", *maps.target)
print(f"the question is at place {AT}: {SAID} or {RIVAL}")

# %% [markdown]
# ## First answer: how sure is it?
#
# The decoder predicts one piece after another, and each prediction is a distribution
# over the vocabulary. Below, the probability of each piece given those before it, for
# both targets. Up to the question they are the same.

# %%
fig, axes = plt.subplots(2, 1, figsize=(8, 4.4), sharey=True, layout="constrained")
for ax, reading in zip(axes, (said, rival), strict=True):
    places = range(len(reading.pieces))
    colours = ["C3" if t == AT else "C0" for t in places]
    ax.bar(places, np.exp(reading.distribution.log_probs), color=colours)
    ax.set_xticks(places, reading.pieces, parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("probability")
for reading in (said, rival):
    of = reading.distribution
    print(
        f"{reading.pieces[AT]:8} probability {np.exp(of.log_probs[AT]):.3f}, "
        f"rank {of.rank[AT]}; the whole sentence {of.log_probs.sum():.2f}"
    )
print(f"entropy at this place: {said.distribution.entropy[AT]:.2f} bits")

# %% [markdown]
# So it is a matter of these two pieces. Their difference in log-probability is the
# number that the other answers explain.


# %%
def preference(translator, source):
    """The difference in log-probability, at the place where the model has to choose."""
    pairs = [(source, reading.hypothesis) for reading in (said, rival)]
    one, other = translator.score(pairs)
    return one.log_probs[AT] - other.log_probs[AT]


print(f"log p({SAID}) - log p({RIVAL}) = {preference(translator, source):.2f}")

# %% [markdown]
# ## Second answer: change the source
#
# The surest way to find a cause is to change it. With another verb, all other words
# being equal:

# %%
changed = [preference(translator, TEMPLATE.format(verb)) for verb in VERBS]
ax = plt.subplots(figsize=(6, 2.8), layout="constrained")[1]
ax.barh(VERBS, changed, color=["C0" if value > 0 else "C1" for value in changed])
ax.axvline(0, color="black", linewidth=0.8)
ax.set(xlabel=f"{RIVAL}  <-  difference in log p  ->  {SAID}")
ax.invert_yaxis()
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# The verb decides, as it should. How does it come to the place of *dem*?
#
# ## Third answer: attention
#
# An attention function maps "a query and a set of key-value pairs to an output"
# (section 3.2): a weighted sum of the values. The model has three kinds of attention
# (section 3.2.3):
#
# - **encoder**: each position of the source looks at all positions of the source;
# - **decoder**: each position of the target looks at itself and at the positions
#   before it;
# - **cross**: each position of the target looks at the encoder's output for the
#   source.

# %%
for which in ("encoder", "decoder", "cross"):
    weights = getattr(maps, which)
    print(f"{which:8}", weights.shape, "layers, heads, queries, keys;", end=" ")
    print("every row sums to 1:", np.allclose(weights.sum(axis=-1), 1, atol=1e-5))
above = np.triu(np.ones(maps.decoder.shape[2:], bool), k=1)
print("largest weight on the future:", maps.decoder[..., above].max())

# %% [markdown]
# A row of a map belongs to one query. In cross attention: to predict the piece at the
# left, how much does the decoder look at each piece of the source? A dark diagonal
# means that the two sentences run in parallel; a jump means that word order differs.

# %%
LAYER = LAYERS - 1
ax = maps.plot("cross", layer=LAYER)

# %% [markdown]
# A mean hides that heads do different things. Section 3.2.2: "Multi-head attention
# allows the model to jointly attend to information from different representation
# subspaces at different positions." So here is each head, all with one colour scale
# from 0 to 1.


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
# The row of *dem*, in numbers: where does each head of the last layer look?

# %%
for head, weights in enumerate(maps.cross[LAYER, :, AT]):
    order = np.argsort(weights)[::-1][:3]
    print(f"head {head}", *(f"{maps.source[s]} {weights[s]:.2f}  " for s in order))

# %% [markdown]
# Looking is not the same as using. So each head of the model is taken away in turn: the
# part of the output projection that reads it is set to 0. How much of the preference
# remains?

# %%
heads = heads_of(translator.parameters)
whole = preference(translator, source)
remains = {}
for head in heads:
    without = Translator(
        translator.config,
        translator.vocabulary,
        translator.model,
        without_heads(translator.parameters, [head]),
        translator.steps,
    )
    remains[head] = preference(without, source)

rows = list(dict.fromkeys((head.attention, head.layer) for head in heads))
grid = [[remains[(*row, number)] for number in range(HEADS)] for row in rows]
ax = plt.subplots(figsize=(3 + 0.9 * HEADS, 3.6), layout="constrained")[1]
limit = max(abs(value - whole) for value in remains.values())
ax.imshow(grid, cmap="RdBu", vmin=whole - limit, vmax=whole + limit, aspect="auto")
for (y, x), value in np.ndenumerate(grid):
    colour = "white" if abs(value - whole) > 0.7 * limit else "black"
    ax.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour)
ax.set_yticks(range(len(rows)), [f"{name}, layer {layer}" for name, layer in rows])
ax.set_xticks(range(HEADS), [f"head {head}" for head in range(HEADS)])
ax.set_title(f"{SAID} against {RIVAL}: {whole:.2f}; without one head:")
ax.tick_params(length=0)

# %% [markdown]
# Red heads speak for *dem*, blue ones for *den*. In our run many heads matter, and head
# 0 of the decoder's last cross attention most of all. It looks at *whom* and not at the
# verb: the encoder has already moved what is needed to other positions.
#
# ## Fourth answer: attribution, and the layers
#
# How much would the preference change if the embedding of a source piece were a little
# larger? Gradient times input answers for all pieces at once, to first order. Blue
# speaks for what was said, red for its rival. Does the verb stand out, as in the second
# answer?

# %%
contrast = said.attribution.contrast
row = contrast.positions.tolist().index(AT)
read = maps.read[: AT + 1]
values = [*contrast.source[row], contrast.start[row], *contrast.target[row, :AT]]
labels = [*maps.source, *read]
ax = plt.subplots(figsize=(9, 2.8), layout="constrained")[1]
ax.bar(range(len(values)), values, color=["C0" if v > 0 else "C3" for v in values])
ax.axvline(len(maps.source) - 0.5, color="grey", linewidth=1)
ax.set_xticks(range(len(values)), labels, rotation=60, parse_math=False)
ax.set(ylabel="attribution", title="the source | what the decoder has read")
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# In our run it does not: *whom* and the comma have the largest bars. Gradient times
# input is a first-order estimate; the second answer measured what the change does.
#
# When is it decided? The *lens* reads each decoder layer through the output layer, as
# if it were the last one.

# %%
piece_of = explanation.models[0].piece_of
for layer in range(len(said.lens.probs)):
    print(f"after layer {layer}", end="  ")
    for reading in (said, rival):
        probability, rank = reading.lens.probs[layer, AT], reading.lens.rank[layer, AT]
        print(f"{reading.pieces[AT]} {probability:.4f} (rank {rank})", end="   ")
    print("most probable:", *(piece_of[i] for i in said.lens.top_ids[layer, AT, :3]))

# %% [markdown]
# ## Fifth answer: the search
#
# A probable piece is not yet a translation. Beam search keeps a few hypotheses and
# drops the others. What became of those that began with *den*?

# %%
tree = explanation.sentences[0].tree
print(len(tree.nodes), "hypotheses;", tree.stop.why)
for fate, count in collections.Counter(n.fate for n in tree.nodes.values()).items():
    print(f"{count:4} {fate}")

# %%
reference = tree.reference
print(f"{reference.verdict}: {reference.why}")
beginnings = [reference.tokens[:length] for length in range(1, len(reference.tokens))]
way = [tree.nodes[tokens] for tokens in beginnings if tokens in tree.nodes]
for node in way:
    print(f"{piece_of[node.tokens[-1]]:10} log p {node.log_prob:7.3f}", end="  ")
    print("" if node.row is None else f"place {node.row}", node.fate)
print(way[-1].why)

# %% [markdown]
# ## Beyond one sentence: which head aligns?
#
# One sentence is an anecdote. Over many sentences, each head has habits: how sharply it
# looks (entropy, in bits), and on what. *Aligned* is the source word that the target
# word translates, found without attention, by a word aligner.

# %%
pairs = corpus.pairs("dev", count=40)
all_maps = [translator.attention(*pair) for pair in pairs]
text = corpus.pairs("dev")
shares = {}
for attention, sentences in sentences_of(all_maps, text).items():
    found = patterns(sentences)
    for layer, head in np.ndindex(found["entropy"].shape):
        share = {
            name.removeprefix("share."): values[layer, head]
            for name, values in found.items()
            if name.startswith("share.")
        }
        kind = kind_of(share, found["relative_entropy"][layer, head])
        shares[attention, layer, head] = share
        print(
            f"{attention:8} layer {layer} head {head}",
            f"{found['entropy'][layer, head]:.2f} bits  {kind:12}",
            *(f"{name} {value:.0%}" for name, value in share.items() if value >= 0.15),
        )

# %%
aligned = {key: share["aligned"] for key, share in shares.items() if key[0] == "cross"}
best = max(aligned, key=aligned.get)
print("the head that aligns best:", *best, f"{aligned[best]:.0%} of its weight")

# %% [markdown]
# A head that has nothing to do at a word cannot look nowhere, because its weights sum
# to 1. It then looks at a position that carries little: the full stop, the start, or
# the end.
#
# ## From attention to an alignment
#
# `align` sums the pieces to words, takes the mean of the heads of one layer, and
# links each target word to the source word with the largest weight. The notation `6-8`
# means word 6 of the source and word 8 of the target, counted from 0.


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


long_source = "She knows that the farmer who helps the child has bought a red car."
translation = translator.translate([long_source])[0]
alignment = translator.align([(long_source, translation)])[0]
print(alignment)
draw_alignment(long_source, str(translation), alignment.links)

# %% [markdown]
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
# - Taking a head away is an experiment, and so is changing the source. Attention,
#   attribution and the lens are readings, which may mislead: attribution is exact only
#   for small changes, and only the last layer was trained to be read.
# - The model was not trained to align. The default layer is the one that works best
#   overall; `layer=` selects another, which may disagree.

# %%
for layer in range(LAYERS):
    print(layer, translator.align([(long_source, translation)], layer=layer)[0])

# %% [markdown]
# Next: `5_your_own_idea` changes the model.
