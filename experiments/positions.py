"""Do position schemes extrapolate to sentences longer than any in training?

Section 3.5 chooses sinusoids "because it may allow the model to extrapolate to sequence
lengths longer than the ones encountered during training". This trains every scheme on
short sentences and scores it by the length of the source, up to twice the longest:

    python -m t2t_jax experiment positions --workdir=DIR

About 15 minutes on two CPU cores, 2 minutes a scheme. On real text, trained on pairs of
at most 16 subwords a side, 12 minutes of one core a scheme:

    python -m t2t_jax experiment positions --workdir=DIR --name=positions_multi30k \\
        --base=multi30k:1000 --max_length=16 --steps=1000 --config.data.dir=FOLDER

What to know when reading the results:
- Positions restart in each sentence of a packed row, so training sees no position
  beyond its longest sentence, however long the rows are.
- `learned` has a table of `model.max_positions` rows. Those beyond the longest sentence
  of training stay as they were initialized: small random vectors.
- Long sentences are also harder, and those of the built-in corpus are built otherwise
  (chains of clauses). Compare schemes at one length, and their drops with each other.
  With --max_length, a row trained on all lengths shows what is possible.
- The search may write `decode.extra_length` tokens more than the source has; the
  measure checks that this suffices for the references.
"""

from math import isnan
from statistics import fmean

from t2t_jax import load_config
from t2t_jax.io.tables import markdown_table
from t2t_jax.model.positions import POSITIONS
from t2t_jax.tools.experiment import Experiment, Measure, Row, with_fields
from t2t_jax.tools.experiment.plots import lines

ALL_LENGTHS = "sinusoid, all lengths"
SETS = {"tiny": ("test", "long")}  # the other sets of tiny ask other questions


def get_experiment(seeds=1, base="tiny", max_length=0, steps=600):
    """Builds the experiment.

    Args:
      seeds: of each scheme.
      base: the config of everything but positions.
      max_length: train on pairs of at most this many tokens a side; 0: on those of the
        config. Without a test set of longer sentences, set it.
      steps: of every run.
    """
    config = load_config(base)
    config = with_fields(config, {"train.steps": steps, "train.minutes": 0.0})
    length = max_length or config.data.max_length
    short = with_fields(config, {"data.max_length": length})
    arguments = {"sets": SETS.get(base, ()), "longest": max_length}
    common = {"seeds": seeds, "measures": [Measure("by_length", arguments)]}
    rows = [
        Row(scheme, with_fields(short, {"model.positions": scheme}), **common)
        for scheme in POSITIONS
    ]
    if max_length:
        rows.append(Row(ALL_LENGTHS, config, group="control", **common))
    return Experiment(
        rows=rows,
        columns=[
            *("by_length.seen.bleu", "by_length.beyond.bleu"),
            *("by_length.seen.perplexity", "by_length.beyond.perplexity"),
            *("by_length.beyond.ratio", "parameters", "minutes"),
        ],
        compared="by_length.beyond.perplexity",
        baseline="sinusoid",
        plot=plot,
        report=report,
    )


def plot(results):
    """Draws BLEU and perplexity by length; the dashed line is the end of training."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 7))
    for axes, score, label, log_y in zip(
        figure.subplots(2, sharex=True),
        ("bleu", "perplexity"),
        ("BLEU", "perplexity a token"),
        (False, True),
        strict=True,
    ):
        series = {
            result.row.name: curve
            for result in results
            if (curve := curve_of(result, score))
        }
        if not series:
            return None
        x_label = "" if score == "bleu" else "source tokens / longest in training"
        lines(series, x_label, label, log_y=log_y, axes=axes)
        axes.axvline(1.0, color="0.5", linestyle="--", linewidth=1, zorder=0)
        if score != "bleu":
            axes.get_legend().remove()  # the same as above
    return figure


def curve_of(result, score):
    """Relative lengths, and the mean, least and most over seeds of a score."""
    groups = groups_of(result)
    lengths = (run.value("by_length.longest") for run in result.runs)
    longest = [length for length in lengths if length]
    if not groups:
        return None
    x = [group["pieces"] / longest[0] for group, *_ in groups.values()]
    y = [[group[score] for group in runs] for runs in groups.values()]
    low, high = ([f(values) for values in y] for f in (min, max))
    several = len(result.runs) > 1
    return x, [fmean(v) for v in y], low if several else None, high if several else None


def groups_of(result):
    """By (above, up to): the group's scores in each finished run."""
    groups = {}
    for run in result.runs:
        for group in run.measure("by_length").get("groups", ()):
            groups.setdefault((group["above"], group["up_to"]), []).append(group)
    return groups


def report(results):
    """Tables of schemes by length, and their order on long sentences."""
    measured = [result for result in results if groups_of(result)]
    if not measured:
        return "No row is measured yet."
    edges = [*groups_of(measured[0])]
    parts = []
    for score, title, digits in (
        ("bleu", "BLEU", 1),
        ("perplexity", "Perplexity a token", 2),
        ("ratio", "Length of outputs by that of references", 2),
    ):
        cells = []
        for result in measured:
            groups = groups_of(result)
            values = (fmean([g[score] for g in groups[edge]]) for edge in edges)
            cells.append([result.row.name, *(f"{v:.{digits}f}" for v in values)])
        if score == "bleu":
            counts = (groups_of(measured[0])[edge][0]["lines"] for edge in edges)
            cells.append(["*lines*", *map(str, counts)])
        head = [title, *map(named, edges)]
        parts.append("\n".join(markdown_table(head, cells, left=range(len(head)))))
    return "\n\n".join(
        [
            "Columns are lengths of the source, in parts of the longest in training.",
            *parts,
            answer(measured),
        ]
    )


def answer(measured):
    """Says what each scheme keeps beyond the lengths of training, the best first."""
    columns = "by_length.beyond.bleu", "by_length.seen.bleu"
    scores = [(*map(result.mean, columns), result.row.name) for result in measured]
    ranked = sorted((s for s in scores if not isnan(s[0] + s[1])), reverse=True)
    if not ranked:
        return "The test sets have no sentences beyond the lengths of training."
    listed = [f"{name} {seen:.1f} to {beyond:.1f}" for beyond, seen, name in ranked]
    return (
        "BLEU of sentences up to the longest source of training, and of longer ones, "
        f"the best of those first: {', '.join(listed)}."
    )


def named(edge):
    above, up_to = edge
    return f"{above:g}-{up_to:g}" if up_to else f"over {above:g}"
