"""Ranks rows of an experiment, each at its best peak learning rate.

Every change of a model moves its best rate, so a comparison at one rate may rank rates
(Wen et al. 2025, arXiv 2509.02046). How much a row loses at the rates next to its best
tells how stable it is at a larger size (Wortsman et al. 2023, arXiv 2309.14322).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from statistics import fmean

from t2t_jax.config import with_fields
from t2t_jax.io.tables import markdown_table
from t2t_jax.tools.experiment.experiment import Row
from t2t_jax.tools.experiment.results import Results, RowResult
from t2t_jax.tools.experiment.statistics import (
    pooled_deviation,
    rank_correlation,
    seeds_test,
)

APART = 0.3  # BLEU: smaller differences in the paper's table have no direction


def at_rates(row: Row, rates: Sequence[float], base_width: int = 0) -> list[Row]:
    """The row at each of some peak learning rates: `NAME @ RATE`.

    Args:
      row: Its `values` get its name, `variant`, and the `rate`.
      rates: Those of a model of `base_width`.
      base_width: Of another width, a model has its rates times (width / base
        width)^-0.5, as in equation 3 of the paper; 0 for the row's own width.
    """
    factor = (row.config.model.width / (base_width or row.config.model.width)) ** -0.5
    return [
        dataclasses.replace(
            row,
            name=f"{row.name} @ {rate:g}",
            config=with_fields(row.config, {"train.peak_learning_rate": rate * factor}),
            values=row.values | {"variant": row.name, "rate": rate},
        )
        for rate in rates
    ]


def losses(result: RowResult, column: str) -> list[float]:
    """Returns the logarithms of a perplexity, one for each seed."""
    return [math.log(value) for value in result.values(column)]


def best_rates(
    results: Results, column: str
) -> dict[str, tuple[RowResult, float, bool]]:
    """The best rate of each variant, by the first seed; not of those with a rate left.

    Returns:
      By variant: the row; its `lr_sensitivity`, which is how much the mean loss at the
      neighbouring rates is above the best, in nats; and True if the best rate is the
      lowest or the highest.
    """
    variants = {}
    for result in sorted(results, key=lambda r: r.row.values.get("rate", 0.0)):
        name = result.row.values.get("variant", result.row.name)
        variants.setdefault(name, []).append(result)
    chosen = {}
    for name, rows in variants.items():
        first = [row.runs[0].value(column) for row in rows]
        if None in first:
            continue
        first = [math.log(value) if value == value else math.inf for value in first]
        at = first.index(min(first))
        neighbours = first[max(0, at - 1) : at] + first[at + 1 : at + 2]
        rise = fmean(neighbours) - first[at] if neighbours else math.nan
        chosen[name] = rows[at], rise, len(rows) > 1 and at in (0, len(rows) - 1)
    return chosen


def report(results: Results, perplexity: str, bleu: str) -> str:
    """Tables the variants by the loss at their best rates, in Markdown.

    p is of a difference from the variant `base`, over seeds, corrected for the number
    of rows as in `statistics.compare`. The seed that chose the rate is one of them,
    which flatters rows with more rates, or with a flat optimum. If rows have the
    paper's figures, it says how far the order is the paper's. At the end are the flags
    that repeat the best rates, for a `get_experiment` with the parameter `seeds`.
    """
    from scipy.stats import false_discovery_control  # slow to import

    chosen = best_rates(results, perplexity)
    samples = {name: losses(row, perplexity) for name, (row, *_) in chosen.items()}
    if not samples:
        return "No row has a loss at each of its rates yet."
    finite = {name: s for name, s in samples.items() if math.isfinite(sum(s))}
    pooled = pooled_deviation(list(finite.values()))
    base = finite.pop("base", [])
    p_values = {}
    if base and finite and pooled[0] > 0:
        tested = [seeds_test(sample, base, pooled) for sample in finite.values()]
        p_values = dict(zip(finite, false_discovery_control(tested), strict=True))
    head = ["row", "best rate", "seeds", "loss", "against base", "p", "BLEU"]
    head += ["lr_sensitivity", "paper's perplexity", "paper's BLEU"]
    cells = []
    for name in sorted(samples, key=lambda name: fmean(samples[name])):
        (row, rise, edge), sample = chosen[name], samples[name]
        rate = f"{row.row.values['rate']:g}" if "rate" in row.row.values else ""
        cell = [name, rate + " (the edge)" * edge, str(len(sample))]
        cell.append(f"{fmean(sample):.3f}")
        compared = base and name != "base"
        cell.append(f"{fmean(sample) - fmean(base):+.3f}" if compared else "")
        cell.append(f"{p_values[name]:.2g}" if name in p_values else "")
        cell += [f"{row.mean(bleu):.1f}", "" if math.isnan(rise) else f"{rise:.3f}"]
        paper = [row.row.paper.get(column) for column in (perplexity, bleu)]
        if None not in paper:
            cell += [f"{paper[0]:.2f}", f"{paper[1]:.1f}"]
        cells.append(cell)
    with_paper = [row.row for row, *_ in chosen.values() if perplexity in row.row.paper]
    if not with_paper:
        head = head[:-2]
    lines = [*markdown_table(head, cells, left=(0, 1)), ""]
    if len(with_paper) == len(chosen) > 3:
        ours = [fmean(sample) for sample in samples.values()]
        lines += agreement(ours, with_paper, perplexity, bleu)
    names = ",".join(row.row.name.replace(",", "?") for row, *_ in chosen.values())
    seeds = 1 + max(map(len, samples.values()))
    again = f"the same command with `--replan --seeds={seeds} --rows='{names}'`"
    return "\n".join([*lines, f"One more seed of each best rate: {again}."])


def agreement(
    ours: Sequence[float], rows: Sequence[Row], perplexity: str, bleu: str
) -> list[str]:
    """Rank correlations with the paper, and the pairs of rows in its order."""
    scores = [row.paper[bleu] for row in rows]
    apart = [
        (i, j)
        for i, j in itertools.combinations(range(len(rows)), 2)
        if abs(scores[i] - scores[j]) > APART - 1e-9
    ]
    lines = []
    for name, theirs in (
        ("perplexity", [row.paper[perplexity] for row in rows]),
        ("BLEU", [-score for score in scores]),
    ):
        correlation, low, high = rank_correlation(ours, theirs)
        right = sum((ours[i] - ours[j]) * (theirs[i] - theirs[j]) > 0 for i, j in apart)
        share = f"{right} of {len(apart)} pairs ({right / max(1, len(apart)):.0%})"
        lines.append(
            f"- By the paper's {name}: rank correlation {correlation:.2f} ({low:.2f} "
            f"to {high:.2f}) over {len(rows)} rows; {share} that differ by {APART} "
            "BLEU or more in the paper are in its order."
        )
    return [*lines, ""]


def plot(results: Results, perplexity: str):
    """Draws our difference from base, in nats, against the paper's.

    None if there is no base, or if a row has no figure of the paper.
    """
    from matplotlib.figure import Figure

    chosen = {name: row for name, (row, *_) in best_rates(results, perplexity).items()}
    papers = {name: row.row.paper.get(perplexity) for name, row in chosen.items()}
    if "base" not in chosen or None in papers.values():
        return None
    ours = {name: fmean(losses(row, perplexity)) for name, row in chosen.items()}
    ax = Figure(figsize=(8, 5.5)).subplots()
    ax.axhline(0, color="0.5", linewidth=1)
    ax.axvline(0, color="0.5", linewidth=1)
    for name, loss in ours.items():
        x, y = math.log(papers[name] / papers["base"]), loss - ours["base"]
        ax.plot(x, y, "o", color="C0")
        # The label is on the side that the nearest row above or below leaves free.
        others = ours.keys() - {name}
        nearest = min(others, key=lambda n: abs(ours[n] - loss), default=name)
        side = "left" if papers[name] >= papers[nearest] else "right"
        ax.text(x, y, f"  {name}  ", ha=side, va="center", fontsize="small")
    ax.margins(x=0.35)
    ax.set_xlabel("the paper's difference from base, in nats a subword")
    ax.set_ylabel("ours")
    return ax.figure
