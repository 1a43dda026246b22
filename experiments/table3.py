"""Table 3: variations on the Transformer, one change of the base model at a time.

    python -m t2t_jax experiment table3 --workdir=DIR
    python -m t2t_jax experiment table3 --workdir=DIR --scale=full
    python -m t2t_jax experiment table3 --workdir=DIR --scale=hard --name=table3_hard

`--scale=hard` ranks rows A to E as the paper does, if anything so small can: on the
harder built-in text (`configs/hard.py`), by the dev loss of averaged checkpoints, each
row at three peak learning rates. 51 runs of 4 minutes on one core; then the best rate
of each row once more, with the flag `--chosen` that the report prints. Rates are
multiplied by (width / base width)^-0.5, as the paper's formula does.

`--scale=small` is a base model of half the layers and a quarter of the widths on the
built-in corpus (`--text=multi30k --config.data.dir=FOLDER`: on captions), and each row
has the ratio of the paper's row to the paper's base. 22 runs of 400 steps: an hour on
two CPU cores. The paper trains the big model for three times the steps; here all rows
have the same. `--scale=full` is the paper's models, on WMT 2014 English-German.

As in the paper, no checkpoints are averaged. Its scores are of newstest2013, the dev
set; so are those of `--scale=full`.
"""

import math

from experiments import _ranking as ranking
from experiments import _texts
from t2t_jax import load_config
from t2t_jax.config import ModelConfig, from_config_dict
from t2t_jax.tools.experiment import Experiment, Row, with_fields

PERPLEXITY = "dev.perplexity"
HARD_PERPLEXITY, HARD_BLEU = "hard-dev.perplexity", "hard-dev.bleu"
BLEU_2013 = "wmt14_translate-de-en-validation.bleu_paper"  # newstest2013

SMALL_NOTE = (
    "The paper's figures are of larger models and another text: only the sign and the "
    "order of the differences from base may be compared. Perplexity is of targets "
    "without smoothing; training with more smoothing makes it worse by itself, so "
    "compare the rows of label_smoothing by BLEU."
)
FULL_NOTE = (
    "Perplexity is per token of a vocabulary that is not the paper's: compare "
    "differences from base, and rows of label_smoothing by BLEU. bleu_paper is "
    "computed as the paper computes BLEU."
)


def get_experiment(
    seeds=3,
    row_seeds=1,
    scale="small",
    text="tiny",
    steps=0,
    rates="0.0025,0.005,0.01",
    groups="",
    chosen="",
):
    """Builds the experiment.

    Args:
      seeds: of the base model; not at the hard scale.
      row_seeds: of each other row.
      scale: small, hard or full.
      text: tiny or multi30k; of the small scale.
      steps: of training; 0 for 400, or at full scale for the paper's.
      rates: peak learning rates of each row, of the hard scale, separated by commas.
      groups: letters of the rows to train at the hard scale, such as AB; empty is all.
      chosen: rows at the hard scale that get one more seed, separated by commas.
    """
    if scale == "hard":
        rows = hard_rows(rates, groups, chosen.split(","), row_seeds)
        return Experiment(
            rows,
            columns=(HARD_PERPLEXITY, HARD_BLEU, "parameters", "minutes"),
            compared=HARD_PERPLEXITY,
            note=SMALL_NOTE,
            report=lambda results: ranking.report(results, HARD_PERPLEXITY, HARD_BLEU),
        )
    base, bleu = _base(scale, text, steps)
    base_paper = _paper(bleu, 4.92, 25.8, 65)
    rows = [Row("base", base, seeds, paper=base_paper, group="base")]
    for group, changes, figures in variations(base.model):
        if group == "big" and scale == "full":
            changes |= {"train.steps": 3 * base.train.steps}
        rows.append(
            Row(
                "big" if group == "big" else _name(changes),
                with_fields(base, changes),
                row_seeds,
                paper=_paper(bleu, *figures),
                group=group,
            )
        )
    return Experiment(
        rows,
        columns=(PERPLEXITY, bleu, "parameters", "flops", "tokens", "minutes"),
        compared=PERPLEXITY,
        baseline="base",
        note=FULL_NOTE if scale == "full" else SMALL_NOTE,
        plot=lambda results: plot(results, bleu),
        report=lambda results: report(results, bleu),
    )


def hard_rows(rates, groups, chosen, seeds):
    """Returns rows A to E at each rate; those that are chosen have a seed more."""
    config = load_config("hard", data={"test": "grammar:hard-dev"})
    base = from_config_dict(config)
    variants = [("base", {}, (4.92, 25.8, 65)), *variations(base.model)]
    rows = []
    for group, changes, figures in variants:
        bigger = figures[2] > 65 and "model.hidden" not in changes
        if group == "big" or bigger:  # too slow for this bench
            continue
        if groups and group[0] not in "b" + groups:
            continue
        name = _name(changes) if changes else "base"
        width = changes.get("model.width", base.model.width)
        for rate in map(float, rates.split(",")):
            peak = rate * (width / base.model.width) ** -0.5
            row = f"{name} @ {rate:g}"
            rows.append(
                Row(
                    row,
                    with_fields(base, changes | {"train.peak_learning_rate": peak}),
                    seeds + (row in chosen),
                    values={"variant": name, "rate": rate},
                    paper=dict(
                        zip((HARD_PERPLEXITY, HARD_BLEU), figures, strict=False)
                    ),
                    group=group,
                )
            )
    return rows


def _base(scale, text, steps):
    """Returns the base model's config, and the column of its BLEU."""
    if scale == "full":
        if text != "tiny":
            raise ValueError(f"--text={text} is of --scale=small; full reads WMT 2014")
        config = load_config("base", decode={"average": 1})
        config.data.test = config.data.dev
        config.train.steps = steps or config.train.steps
        return from_config_dict(config), BLEU_2013
    if scale != "small":
        raise ValueError(f"unknown scale {scale!r}; want 'small', 'hard' or 'full'")
    test_set = _texts.test_set(text)
    steps = steps or 400
    config = load_config(
        "tiny",
        model={"layers": 3, "heads": 8, "dropout": 0.1},
        # Nothing reads evaluations during training, nor checkpoints but the last.
        train={"steps": steps, "eval_every": steps, "save_every": steps},
        decode={"average": 1},
    )
    config.train.dev_lines = 0
    config.data = load_config(text).data
    config.data.test = config.data.test.split(",")[0]
    return from_config_dict(config), f"{test_set}.bleu"


def variations(base: ModelConfig):
    """Yields (group, changed fields, the paper's PPL, BLEU and million parameters).

    The sizes keep the paper's ratios to its base model.
    """
    n, d, ff, h = base.layers, base.width, base.hidden, base.heads
    k = base.width_of_head
    heads = "A: heads"
    # The widths of heads follow: width / heads.
    yield heads, {"model.heads": h // 8}, (5.29, 24.9, 65)
    yield heads, {"model.heads": h // 2}, (5.00, 25.5, 65)
    yield heads, {"model.heads": h * 2}, (4.91, 25.8, 65)
    yield heads, {"model.heads": h * 4}, (5.01, 25.4, 65)
    # Of queries and keys only, as the paper's numbers of parameters show.
    keys = {"model.value_width": k}
    yield "B: keys", {"model.head_width": k // 4, **keys}, (5.16, 25.1, 58)
    yield "B: keys", {"model.head_width": k // 2, **keys}, (5.01, 25.4, 60)
    yield "C: size", {"model.layers": n // 3}, (6.11, 23.7, 36)
    yield "C: size", {"model.layers": n * 2 // 3}, (5.19, 25.3, 50)
    yield "C: size", {"model.layers": n * 4 // 3}, (4.88, 25.5, 80)
    yield "C: size", {"model.width": d // 2}, (5.75, 24.5, 28)
    yield "C: size", {"model.width": d * 2}, (4.66, 26.0, 168)
    yield "C: size", {"model.hidden": ff // 2}, (5.12, 25.4, 53)
    yield "C: size", {"model.hidden": ff * 2}, (4.75, 26.2, 90)
    noise = "D: regularization"
    yield noise, {"model.dropout": 0.0}, (5.77, 24.6, 65)
    yield noise, {"model.dropout": 0.2}, (4.95, 25.5, 65)
    yield noise, {"train.label_smoothing": 0.0}, (4.67, 25.3, 65)
    yield noise, {"train.label_smoothing": 0.2}, (5.47, 25.7, 65)
    yield "E: positions", {"model.positions": "learned"}, (4.92, 25.7, 65)
    big = {"width": d * 2, "hidden": ff * 2, "heads": h * 2, "dropout": 0.3}
    changes = {f"model.{field}": value for field, value in big.items()}
    yield "big", changes, (4.33, 26.4, 213)


def _name(changes):
    """The first change: `heads=1`."""
    field, value = next(iter(changes.items()))
    return f"{field.partition('.')[2]}={value}"


def _paper(bleu, perplexity, score, millions):
    return {PERPLEXITY: perplexity, bleu: score, "parameters": millions * 1e6}


def differences(results, column):
    """Returns (name, the paper's difference from base, ours) of finished rows."""
    base = results["base"]
    rows = []
    for result in results:
        our_difference = result.mean(column) - base.mean(column)
        if result is not base and not math.isnan(our_difference):
            paper = result.row.paper[column] - base.row.paper[column]
            rows.append((result.row.name, paper, our_difference))
    return rows


def report(results, bleu):
    """Says how far our differences from base agree with the paper's."""
    from scipy.stats import spearmanr

    lines = []
    for column in (PERPLEXITY, bleu):
        rows = differences(results, column)
        if len(rows) < 4:  # too few to rank
            continue
        _, paper, ours = zip(*rows, strict=True)
        rank = spearmanr(paper, ours)
        # Rows that the paper prints as equal to base have no direction.
        directed = [(a, b) for a, b in zip(paper, ours, strict=True) if abs(a) > 1e-6]
        same_sign = sum(a * b > 0 for a, b in directed)
        lines.append(
            f"- {column}: Spearman's rank correlation of our differences from base "
            f"with the paper's is {rank.statistic:.2f} (p = {rank.pvalue:.2g}, "
            f"{len(rows)} rows); {same_sign} of {len(directed)} have the same sign."
        )
    return "\n".join(lines)


def plot(results, bleu):
    """Draws our difference from base against the paper's: perplexity, and BLEU."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.2))
    panels = zip(figure.subplots(1, 2), (PERPLEXITY, bleu), (0.5, 10), strict=True)
    for ax, column, linear in panels:
        # A row that did not train would flatten the others on a linear scale.
        ax.set_yscale("symlog", linthresh=linear)
        ax.axhline(0, color="0.5", linewidth=1)
        ax.axvline(0, color="0.5", linewidth=1)
        rows = sorted(differences(results, column), key=lambda row: row[2])
        for i, (name, paper, ours) in enumerate(rows):
            ax.plot(paper, ours, "o", color="C0")
            # On either side in turn, so that labels of neighbours do not overlap.
            label = f"  {name}  "
            side = "left" if i % 2 else "right"
            ax.text(paper, ours, label, ha=side, va="center", fontsize="x-small")
        ax.margins(x=0.15)
        ax.set(title=column, xlabel="the paper's difference from base", ylabel="ours")
    return figure
