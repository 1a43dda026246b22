"""Describes attention heads, and measures the loss of each (Michel et al. 2019)."""

import collections
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from experiments.measures.attention_patterns import (
    BROAD,
    NAMED,
    kind_of,
    patterns,
    sentences_of,
)
from t2t_jax.data.corpus import Pair
from t2t_jax.decoding import alignment
from t2t_jax.decoding.inputs import InputReader
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.tables import markdown_table
from t2t_jax.metrics.measures import compared
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.model.layers import Parameters
from t2t_jax.tools.experiment.measures import MEASURES
from t2t_jax.tools.experiment.results import Context, Results, RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Where the parameters of each attention are: stack, module of a layer.
ATTENTIONS = {
    "encoder": ("encoder", "attention"),
    "decoder": ("decoder", "attention"),
    "cross": ("decoder", "cross"),
}
SIGNIFICANT = 0.05  # p-values below it; two standard errors of a loss
PRUNED = np.arange(1, 8) / 8  # shares of all heads that are removed together
ALIGNER_LINES = 5_000  # of the training text, from which the word aligner learns


class Head(NamedTuple):
    """A head: its attention, a key of `ATTENTIONS`; layer and number, from 0."""

    attention: str
    layer: int
    head: int


def heads_of(parameters: Parameters) -> list[Head]:
    """All heads of a Transformer; none of other models."""
    return [
        Head(attention, layer, head)
        for attention, (stack, module) in ATTENTIONS.items()
        for layer, modules in sorted(parameters.get(stack, {}).items())
        if isinstance(modules, dict) and "out" in modules.get(module, {})
        for head in range(len(modules[module]["out"]))
    ]


def without_heads(parameters: Parameters, heads: Iterable[Head]) -> Parameters:
    """Returns parameters with which some heads add nothing to their layer's output.

    The rows of the output projection (W^O of section 3.2.2) that read them are 0. That
    is the same as masking the heads, and any program for the model computes it.

    Raises:
      UserError: there is no such head.
    """
    existing = {*heads_of(parameters)}
    parameters = jax.tree.map(lambda x: x, parameters)  # the dicts, not the arrays
    for head in map(Head._make, heads):
        if head not in existing:
            raise UserError(
                f"{tuple(head)} is not a head of this model; it has {len(existing)}: "
                "want (encoder, decoder or cross, layer, head), both numbers from 0"
            )
        stack, module = ATTENTIONS[head.attention]
        weights = parameters[stack][head.layer][module]
        weights["out"] = weights["out"].at[head.head].set(0.0)
    return parameters


class Ablation:
    """Evaluates a translator without some of its heads.

    The programs take parameters as arguments, so they are compiled once for all heads.

    Args:
      translator: the whole model.
      dev: (source, reference) pairs, of which the loss is computed.
      test: pairs that are translated by greedy search.

    Attributes:
      heads: all of the model.
      translations, loss_n, pieces_n: of the whole model; -log p of each dev line,
        summed over its tokens, and their numbers.
    """

    def __init__(
        self, translator: Translator, dev: Sequence[Pair], test: Sequence[Pair]
    ):
        self._translator, self._dev, self._test = translator, dev, test
        self._language = translator.config.data.target
        self.heads = heads_of(translator.parameters)
        if not self.heads:
            raise UserError(
                f"config.model.kind={translator.config.model.kind!r} has no attention "
                "heads to remove; want 'transformer'"
            )
        self.translations = self._translations(())
        self.loss_n, self.pieces_n = self._losses(())

    @property
    def bleu(self) -> float:
        """BLEU of the whole model."""
        references = [reference for _, reference in self._test]
        return corpus_scores(self.translations, references, self._language)["bleu"]

    def loss(self, heads: Sequence[Head]) -> float:
        """The dev loss without some heads, in nats per piece."""
        loss_n, pieces_n = self._losses(heads)
        return float(loss_n.sum() / pieces_n.sum())

    def lost(self, heads: Sequence[Head]) -> dict[str, Any]:
        """Measures the BLEU and loss without some heads.

        Returns:
          `bleu`, and what is lost against the whole model: `bleu_lost`, with the
          `p_value` of a paired bootstrap; `loss_lost`, the rise of the loss in nats per
          token, with its standard error `loss_error`. `distinguishable`: BLEU
          falls, with a p-value below `SIGNIFICANT`; `loss_distinguishable`: the loss
          rises by more than two standard errors.
        """
        measures = {"bleu": text_measures(self._language)["bleu"]}
        sides = self._translations(heads), self.translations
        bleu = compared(measures, *sides, self._test)["bleu"]
        loss_n, pieces_n = self._losses(heads)
        more_n = loss_n - self.loss_n
        lost = more_n.sum() / pieces_n.sum()
        # Of a ratio of sums over lines: the residuals of each line.
        error = np.sqrt(((more_n - lost * pieces_n) ** 2).sum()) / pieces_n.sum()
        fallen = bleu["difference"] < 0 and bleu["p_value"] < SIGNIFICANT
        return {
            "bleu": bleu["score"],
            "bleu_lost": -bleu["difference"],
            "p_value": bleu["p_value"],
            "loss_lost": float(lost),
            "loss_error": float(error),
            "distinguishable": bool(fallen),
            "loss_distinguishable": bool(lost > 2 * error),
        }

    def _translator_without(self, heads: Sequence[Head]) -> Translator:
        full = self._translator
        parameters = without_heads(full.parameters, heads)
        return Translator(
            full.config, full.vocabulary, full.model, parameters, full.steps
        )

    def _translations(self, heads: Sequence[Head]) -> list[str]:
        sources = [source for source, _ in self._test]
        answers = self._translator_without(heads).translate(sources, beam=1, warn=False)
        return [translation.text for translation in answers]

    def _losses(self, heads: Sequence[Head]) -> tuple[np.ndarray, np.ndarray]:
        scores = self._translator_without(heads).score(self._dev, warn=False)
        return (
            np.array([-score.log_prob for score in scores]),
            np.array([len(score.pieces) for score in scores]),
        )


def measure_heads(context: Context, lines: int = 200) -> dict[str, Any]:
    """Measures all heads of a trained Transformer.

    Args:
      lines: that many of the dev and of the test text, from the first; the test text is
        the first of `config.data.test`.

    Returns:
      `bleu` and `loss` of the whole model; `count`, its heads; `needless`, those
      without which BLEU does not fall distinguishably, one at a time, and
      `loss_needless` likewise; `prunable`, the most that were removed together before
      BLEU fell distinguishably. `heads`, `layers` and `pruned` hold the values of
      `Ablation.lost` for each head, for each layer of which only the best head is
      kept, and for growing numbers of heads that are removed together.
    """
    context.check_translates("heads")
    translator = Translator.load(context.workdir)
    dev = _first_lines(context, "dev", lines)
    test = _first_lines(context, "test", lines)
    ablation = Ablation(translator, dev, test)
    described = _described(translator, dev, context)
    heads = [
        {**head._asdict(), **described[head], **ablation.lost([head])}
        for head in ablation.heads
    ]
    # Several heads are removed together: first those that cost the least alone.
    cheapest = np.argsort([head["loss_lost"] for head in heads], kind="stable")
    order = [ablation.heads[i] for i in cheapest]
    pruned = [
        {"removed": removed, **ablation.lost(order[:removed])}
        for removed in sorted({round(share * len(order)) for share in PRUNED} - {0})
    ]
    fine = itertools.takewhile(lambda entry: not entry["distinguishable"], pruned)
    return {
        "dev_lines": len(dev),
        "test_lines": len(test),
        "bleu": ablation.bleu,
        "loss": float(ablation.loss_n.sum() / ablation.pieces_n.sum()),
        "count": len(heads),
        "needless": sum(not head["distinguishable"] for head in heads),
        "loss_needless": sum(not head["loss_distinguishable"] for head in heads),
        "prunable": max((entry["removed"] for entry in fine), default=0),
        "heads": heads,
        "layers": list(_one_head_layers(ablation)),
        "pruned": pruned,
    }


def _first_lines(context: Context, split: str, lines: int) -> list[Pair]:
    """The first lines of the first dev or test set."""
    corpora = context.corpora(split)
    if not corpora:
        raise UserError(
            f"config.data.{split} is empty; heads are removed on a dev and a test "
            "set: name both"
        )
    return list(itertools.islice(corpora[0].pairs(), lines))


def _described(
    translator: Translator, pairs: Sequence[Pair], context: Context
) -> dict[Head, dict[str, Any]]:
    """The `patterns` of each head, those of a kind in dicts, and its own `kind`."""
    corpora = context.corpora("train")
    training = itertools.chain.from_iterable(corpus.pairs() for corpus in corpora)
    vocabulary, members = translator.vocabulary, translator.members
    ids = InputReader(vocabulary, members, warn=False).pairs(pairs)
    maps = list(alignment.attention(vocabulary, members[0], ids))
    text = itertools.islice(training, ALIGNER_LINES)
    described = {}
    for attention, sentences in sentences_of(maps, text).items():
        means = patterns(sentences)
        for layer, head in np.ndindex(means["entropy"].shape):
            values: dict[str, Any] = {}
            for name, head_means in means.items():
                key, _, kind = name.partition(".")
                into = values.setdefault(key, {}) if kind else values
                into[kind or key] = float(head_means[layer, head])
            values["kind"] = kind_of(values["share"], values["relative_entropy"])
            described[Head(attention, layer, head)] = values
    return described


def _one_head_layers(ablation: Ablation) -> Iterator[dict[str, Any]]:
    """Measures each layer with only its best head, by the dev loss."""
    layers = itertools.groupby(ablation.heads, lambda head: head[:2])
    for (attention, layer), group in layers:
        heads = list(group)
        removed = {best: [head for head in heads if head != best] for best in heads}
        best = min(heads, key=lambda head: ablation.loss(removed[head]))
        names = {"attention": attention, "layer": layer, "kept": best.head}
        yield {**names, **ablation.lost(removed[best])}


MEASURE = "heads"
MEASURES[MEASURE] = measure_heads
LOST = ["BLEU lost", "p", "rise of dev loss"]  # the cells of `_lost`


def report(results: Results) -> str:
    """Tables of the first run's heads, layers and pruning; the counts of all runs."""
    runs = results.measured(MEASURE)
    if not runs:
        return ""
    first_run = runs[0].measure(MEASURE)
    heads = sorted(first_run["heads"], key=lambda h: (-h["bleu_lost"], -h["loss_lost"]))
    shape = ["kind", "largest share", "entropy, bits", "of uniform", "distance"]
    layers = (
        [entry["attention"], entry["layer"], entry["kept"], *_lost(entry)]
        for entry in first_run["layers"]
    )
    pruned = (
        [entry["removed"], f"{entry['bleu']:.2f}", *_lost(entry)]
        for entry in first_run["pruned"]
    )
    return "\n\n".join(
        [
            f"### Heads of {runs[0].run.folder}",
            _explanation(first_run),
            _table(["attention", "layer", "head", *shape, *LOST], map(_head, heads)),
            "### Kinds",
            _kinds(first_run["heads"]),
            "### Layers with one head, the best by the dev loss",
            _table(["attention", "layer", "head kept", *LOST], layers),
            "### Heads removed together, first those that cost the least dev loss",
            _table(["heads removed", "BLEU", *LOST], pruned),
            "### Needless heads",
            "\n".join(map(_conclusion, runs)),
        ]
    )


def plot(results: Results) -> "Figure | None":
    """The first run's heads: the BLEU lost without each, with its kind written on it.

    Heads whose loss is distinguishable are in bold.
    """
    runs = results.measured(MEASURE)
    if not runs:
        return None
    import matplotlib.pyplot as plt

    heads = runs[0].measure(MEASURE)["heads"]
    largest = max(0.01, *(head["bleu_lost"] for head in heads))
    grids = collections.defaultdict(list)  # by attention, the heads of each layer
    key = operator.itemgetter("attention", "layer")
    for (name, _), layer in itertools.groupby(heads, key):
        grids[name].append([*layer])
    widths = [len(grid[0]) for grid in grids.values()]
    high = max(map(len, grids.values()))
    figure, axes = plt.subplots(
        1,
        len(grids),
        figsize=(1.5 + 0.95 * sum(widths), 2 + 0.7 * high),
        width_ratios=widths,
        layout="constrained",
    )
    for ax, (name, grid) in zip(axes, grids.items(), strict=True):
        image = _draw(ax, grid, largest)
        ax.set_title(name)
    axes[0].set_ylabel("layer")
    figure.colorbar(image, ax=axes, label="BLEU lost without the head", shrink=0.8)
    return figure


def _draw(ax: "Axes", grid: Sequence[Sequence[Mapping]], largest: float):
    """Draws the heads of one attention, a row for each layer."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    ground, full = np.array(to_rgb(ax.get_facecolor())), np.array(to_rgb("C0"))
    # Not the full colour, on which the style's text could not be read.
    shades = LinearSegmentedColormap.from_list("lost", [ground, (ground + full) / 2])
    lost = [[head["bleu_lost"] for head in layer] for layer in grid]
    # Less than 0 is noise: an advantage of removing the head is drawn as no loss.
    image = ax.imshow(lost, cmap=shades, vmin=0, vmax=largest, aspect="auto")
    for i, layer in enumerate(grid):
        for j, head in enumerate(layer):
            text = (
                head["kind"].replace(" ", "\n") + f"\n{_signed(head['bleu_lost'], 1)}"
            )
            weight = "bold" if head["distinguishable"] else "normal"
            ax.text(j, i, text, ha="center", va="center", fontsize=7, weight=weight)
    ax.set_xticks(range(len(grid[0])))
    ax.set_yticks(range(len(grid)))
    ax.set_xlabel("head")
    ax.grid(False)
    return image


def _explanation(result: Mapping[str, Any]) -> str:
    return (
        f"Attention weights and loss are of the first {result['dev_lines']} lines of "
        f"the dev set, BLEU of greedy translations of {result['test_lines']} lines of "
        "the test set. Layers and heads count from 0. The whole model has "
        f"{result['bleu']:.2f} BLEU and a loss of {result['loss']:.3f} nats per token. "
        "A head is named by what has its largest share of attention, if that is at "
        f"least {NAMED}; otherwise it is broad, with at least {BROAD} of the entropy "
        "of uniform attention, or mixed. *Aligned* is the source word that the aligner "
        "links to the word being predicted, *aligned to read* that of the token just "
        "read; the aligner (IBM Model 1, in both directions) does not know the model. "
        "Of self-attention, distance is the mean absolute distance in tokens; of "
        "cross-attention, the mean place of the largest weight, from 0 (first) to 1 "
        "(last). p is of a paired bootstrap, ± one standard error over lines. Bold is "
        f"distinguishable: p < {SIGNIFICANT}, or two standard errors; by chance alone "
        "up to one head in twenty is."
    )


def _head(head: Mapping[str, Any]) -> list[Any]:
    distance = head.get("absolute_distance", head.get("peak"))
    kind = max(head["share"], key=head["share"].__getitem__)
    names = [head[key] for key in ("attention", "layer", "head", "kind")]
    figures = [head["entropy"], head["relative_entropy"], distance]
    share = f"{head['share'][kind]:.2f} {kind}"
    return [*names, share, *map("{:.2f}".format, figures), *_lost(head)]


def _lost(entry: Mapping[str, Any]) -> list[str]:
    """BLEU, its p-value, and the loss with its error; bold if distinguishable."""
    bleu = _signed(entry["bleu_lost"], 2)
    loss = f"{_signed(entry['loss_lost'], 3)} ± {entry['loss_error']:.3f}"
    return [
        f"**{bleu}**" if entry["distinguishable"] else bleu,
        f"{entry['p_value']:.3f}",
        f"**{loss}**" if entry["loss_distinguishable"] else loss,
    ]


def _kinds(heads: Sequence[Mapping]) -> str:
    kinds = collections.Counter(head["kind"] for head in heads)
    counts = collections.Counter((head["kind"], head["attention"]) for head in heads)
    rows = (
        [kind, *(counts[kind, name] for name in ATTENTIONS), count]
        for kind, count in kinds.most_common()
    )
    return _table(["kind", *ATTENTIONS, "all"], rows)


def _conclusion(run: RunResult) -> str:
    """Says how many heads of a run can be removed."""
    result = run.measure(MEASURE)
    return (
        f"- {run.run.folder}: of {result['count']} heads, {result['needless']} can be "
        "removed one at a time without a distinguishable loss of BLEU "
        f"(p < {SIGNIFICANT}), {result['loss_needless']} without a distinguishable "
        "rise of the dev loss (two standard errors); "
        f"{result['prunable']} were removed together before BLEU fell distinguishably."
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    texts = (map(str, row) for row in rows)
    return "\n".join(markdown_table(columns, texts, left=range(len(columns))))


def _signed(value: float, digits: int) -> str:
    """A number, without the sign of a rounded zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"
