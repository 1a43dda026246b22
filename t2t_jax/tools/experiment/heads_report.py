"""Shows the results of `heads.measure_heads`: as Markdown, and as a plot."""

import collections
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_jax.tools.experiment.attention_patterns import BROAD, NAMED
from t2t_jax.tools.experiment.heads import ATTENTIONS, SIGNIFICANT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from t2t_jax.tools.experiment.results import Results, RunResult

MEASURE = "heads"
COLUMNS = [
    *("attention", "layer", "head", "kind", "largest share", "entropy, bits"),
    *("of uniform", "distance", "BLEU lost", "p", "rise of dev loss"),
]


def report(results: "Results") -> str:
    """Tables of the first run's heads, layers and pruning; the counts of all runs."""
    runs = measured(results)
    if not runs:
        return ""
    of_first = runs[0].measure(MEASURE)
    return "\n\n".join(
        [
            f"### Heads of {runs[0].run.folder}",
            _explanation(of_first),
            _table(COLUMNS, [_head(h) for h in _by_loss(of_first["heads"])]),
            "### Kinds",
            _kinds(of_first["heads"]),
            "### Layers with one head, the best by the dev loss",
            _table(
                ["attention", "layer", "head kept", *COLUMNS[-3:]],
                [
                    [each["attention"], each["layer"], each["kept"], *_lost(each)]
                    for each in of_first["layers"]
                ],
            ),
            "### Heads removed together, first those that cost the least dev loss",
            _table(
                ["heads removed", "BLEU", *COLUMNS[-3:]],
                [
                    [each["removed"], f"{each['bleu']:.2f}", *_lost(each)]
                    for each in of_first["pruned"]
                ],
            ),
            "### Needless heads",
            "\n".join(_conclusion(run) for run in runs),
        ]
    )


def measured(results: "Results") -> list["RunResult"]:
    """The runs whose heads are measured."""
    runs = [run for row in results for run in row.runs]
    return [run for run in runs if run.measure(MEASURE)]


def plot(results: "Results") -> "Figure | None":
    """The first run's heads: the BLEU lost without each, with its kind written on it.

    Heads whose loss is distinguishable are in bold.
    """
    runs = measured(results)
    if not runs:
        return None
    import matplotlib.pyplot as plt

    heads = runs[0].measure(MEASURE)["heads"]
    most = max(0.01, *(head["bleu_lost"] for head in heads))
    grids = {
        name: _grid([head for head in heads if head["attention"] == name])
        for name in ATTENTIONS
    }
    wide = sum(len(grid[0]) for grid in grids.values())
    high = max(map(len, grids.values()))
    figure, axes = plt.subplots(
        1,
        len(grids),
        figsize=(1.5 + 0.95 * wide, 2 + 0.7 * high),
        width_ratios=[len(grid[0]) for grid in grids.values()],
        layout="constrained",
    )
    for ax, (name, grid) in zip(axes, grids.items(), strict=True):
        image = _draw(ax, grid, most)
        ax.set_title(name)
    axes[0].set_ylabel("layer")
    figure.colorbar(image, ax=axes, label="BLEU lost without the head", shrink=0.8)
    return figure


def _draw(ax: "Axes", grid: Sequence[Sequence[Mapping]], most: float):
    """Draws the heads of one attention, a row for each layer."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    ground, full = np.array(to_rgb(ax.get_facecolor())), np.array(to_rgb("C0"))
    # Not the full colour, on which the style's text could not be read.
    shades = LinearSegmentedColormap.from_list("lost", [ground, (ground + full) / 2])
    lost = [[head["bleu_lost"] for head in layer] for layer in grid]
    # Less than 0 is noise: an advantage of removing the head is drawn as no loss.
    image = ax.imshow(lost, cmap=shades, vmin=0, vmax=most, aspect="auto")
    for i, layer in enumerate(grid):
        for j, head in enumerate(layer):
            ax.text(
                j,
                i,
                head["kind"].replace(" ", "\n") + f"\n{_signed(head['bleu_lost'], 1)}",
                ha="center",
                va="center",
                fontsize=7,
                weight="bold" if head["distinguishable"] else "normal",
            )
    ax.set_xticks(range(len(grid[0])))
    ax.set_yticks(range(len(grid)))
    ax.set_xlabel("head")
    ax.grid(False)
    return image


def _grid(heads: Sequence[Mapping]) -> list[list[Mapping]]:
    """Heads by layer, in order."""
    layers = collections.defaultdict(list)
    for head in sorted(heads, key=lambda head: (head["layer"], head["head"])):
        layers[head["layer"]].append(head)
    return [*layers.values()]


def _explanation(of_run: Mapping[str, Any]) -> str:
    return (
        f"Attention weights and loss are of the first {of_run['dev_lines']} lines of "
        f"the dev set, BLEU of greedy translations of {of_run['test_lines']} lines of "
        "the test set. Layers and heads count from 0. The whole model has "
        f"{of_run['bleu']:.2f} BLEU and a loss of {of_run['loss']:.3f} nats per piece. "
        "A head is named by what has its largest share of attention, if that is at "
        f"least {NAMED}; otherwise it is broad, with at least {BROAD} of the entropy "
        "of uniform attention, or mixed. *Aligned* is the source word that the aligner "
        "links to the word being predicted, *aligned to read* that of the piece just "
        "read; the aligner (IBM Model 1, in both directions) does not know the model. "
        "Of self-attention, distance is the mean absolute distance in pieces; of "
        "cross-attention, the mean place of the largest weight, from 0 (first) to 1 "
        "(last). p is of a paired bootstrap, ± one standard error over lines. Bold is "
        f"distinguishable: p < {SIGNIFICANT}, or two standard errors; by chance alone "
        "up to one head in twenty is."
    )


def _by_loss(heads: Sequence[Mapping]) -> list[Mapping]:
    """Sorts heads: the greatest loss comes first."""
    return sorted(heads, key=lambda head: (-head["bleu_lost"], -head["loss_lost"]))


def _head(head: Mapping[str, Any]) -> list[str]:
    far = head.get("absolute_distance", head.get("peak"))
    most = max(head["share"], key=head["share"].__getitem__)
    return [
        *(head["attention"], str(head["layer"]), str(head["head"]), head["kind"]),
        f"{head['share'][most]:.2f} {most}",
        f"{head['entropy']:.2f}",
        f"{head['relative_entropy']:.2f}",
        f"{far:.2f}",
        *_lost(head),
    ]


def _lost(each: Mapping[str, Any]) -> list[str]:
    """BLEU, its p-value, and the loss with its error; bold if distinguishable."""
    bleu = _signed(each["bleu_lost"], 2)
    loss = f"{_signed(each['loss_lost'], 3)} ± {each['loss_error']:.3f}"
    return [
        f"**{bleu}**" if each["distinguishable"] else bleu,
        f"{each['p_value']:.3f}",
        f"**{loss}**" if each["loss_distinguishable"] else loss,
    ]


def _kinds(heads: Sequence[Mapping]) -> str:
    kinds = collections.Counter(head["kind"] for head in heads)
    counts = collections.Counter((head["kind"], head["attention"]) for head in heads)
    return _table(
        ["kind", *ATTENTIONS, "all"],
        [
            [kind, *(counts[kind, name] for name in ATTENTIONS), count]
            for kind, count in kinds.most_common()
        ],
    )


def _conclusion(run: "RunResult") -> str:
    """Says how many heads of a run can be removed."""
    of_run = run.measure(MEASURE)
    return (
        f"- {run.run.folder}: of {of_run['count']} heads, {of_run['needless']} can be "
        "removed one at a time without a distinguishable loss of BLEU "
        f"(p < {SIGNIFICANT}), {of_run['loss_needless']} without a distinguishable "
        "rise of the dev loss (two standard errors); "
        f"{of_run['prunable']} were removed together before BLEU fell distinguishably."
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _signed(value: float, digits: int) -> str:
    """A number, without the sign of a rounded zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"
