"""Ranks rows, each at its best learning rate, and compares the order with the paper's.

A row's `values` are its `variant` and its peak learning `rate`.
"""

import itertools
import math
from statistics import fmean

from t2t_jax.io.tables import markdown_table
from t2t_jax.tools.experiment.statistics import rank_correlation

APART = 0.3  # BLEU: smaller differences in the paper's table have no direction


def losses(result, column):
    """Returns the logarithms of a perplexity, one for each seed."""
    return [math.log(value) for value in result.values(column)]


def best_rates(results, column):
    """Returns by variant the row of the least loss, and its `lr_sensitivity`.

    That is how much the loss rises, in nats, from the best rate to its neighbours, by
    the mean of these: the first seeds decide. Variants with a rate left are left out.
    """
    variants = {}
    for result in results:
        variants.setdefault(result.row.values["variant"], []).append(result)
    chosen = {}
    for variant, rows in variants.items():
        if all(losses(row, column) for row in rows):
            rows.sort(key=lambda row: row.row.values["rate"])
            first = [losses(row, column)[0] for row in rows]
            at = first.index(min(first))
            neighbours = first[max(0, at - 1) : at] + first[at + 1 : at + 2]
            rise = fmean(neighbours) - first[at] if neighbours else math.nan
            edge = len(rows) > 1 and at in (0, len(rows) - 1)
            chosen[variant] = rows[at], rise, edge
    return chosen


def pairs_right(ours, theirs, apart):
    """Counts the pairs that two lists of losses order alike, and all pairs.

    Args:
      apart: two rows -> True if the pair counts.
    """
    pairs = [p for p in itertools.combinations(range(len(ours)), 2) if apart(*p)]
    right = sum((ours[i] - ours[j]) * (theirs[i] - theirs[j]) > 0 for i, j in pairs)
    return right, len(pairs)


def report(results, perplexity, bleu):
    """Tables the variants by loss, and says how far the order is the paper's."""
    chosen = best_rates(results, perplexity)
    ours = {name: fmean(losses(row, perplexity)) for name, (row, *_) in chosen.items()}
    cells = []
    for name in sorted(ours, key=ours.get):
        row, rise, edge = chosen[name]
        rate = f"{row.row.values['rate']:g}" + (" (the edge)" if edge else "")
        scores = (ours[name] - ours.get("base", math.nan), row.mean(bleu), rise)
        paper = row.row.paper[perplexity], row.row.paper[bleu]
        cells.append(
            [name, rate, str(len(row.runs)), f"{ours[name]:.3f}"]
            + [f"{scores[0]:+.3f}", f"{scores[1]:.1f}", f"{scores[2]:.3f}"]
            + [f"{paper[0]:.2f}", f"{paper[1]:.1f}"]
        )
    head = ["row", "best rate", "seeds", "loss", "against base", "BLEU"]
    head += ["lr_sensitivity", "paper's perplexity", "paper's BLEU"]
    lines = [*markdown_table(head, cells, left=(0, 1)), ""]
    if len(ours) > 3:
        lines += agreement(
            list(ours.values()), [r.row for r, *_ in chosen.values()], perplexity, bleu
        )
    again = ",".join(row.row.name for row, *_ in chosen.values())
    lines.append(f"One more seed of each best rate: `--replan --chosen='{again}'`")
    return "\n".join(lines)


def agreement(ours, rows, perplexity, bleu):
    """Lists rank correlations with the paper, and the pairs in its order."""
    scores = [row.paper[bleu] for row in rows]

    def apart(i, j):
        return abs(scores[i] - scores[j]) > APART - 1e-9

    lines = []
    for name, theirs in (
        ("perplexity", [row.paper[perplexity] for row in rows]),
        ("BLEU", [-score for score in scores]),
    ):
        correlation, low, high = rank_correlation(ours, theirs)
        right, pairs = pairs_right(ours, theirs, apart)
        lines.append(
            f"- By the paper's {name}: rank correlation {correlation:.2f} "
            f"({low:.2f} to {high:.2f}) over {len(rows)} rows; {right} of {pairs} "
            f"pairs ({right / max(1, pairs):.0%}) that differ by {APART} BLEU or more "
            "in the paper are in its order."
        )
    return [*lines, ""]


def plot(results, perplexity, bleu):
    """Draws our difference from base against the paper's: loss, and BLEU."""
    from matplotlib.figure import Figure

    chosen = best_rates(results, perplexity)
    if "base" not in chosen:
        return None
    base = chosen["base"][0]
    measures = {
        "loss": lambda row: fmean(losses(row, perplexity)),
        "BLEU": lambda row: row.mean(bleu),
    }
    papers = {
        "loss": lambda row: math.log(row.row.paper[perplexity]),
        "BLEU": lambda row: row.row.paper[bleu],
    }
    figure = Figure(figsize=(12, 5.2))
    for ax, name in zip(figure.subplots(1, 2), measures, strict=True):
        ours, theirs = measures[name], papers[name]
        ax.axhline(0, color="0.5", linewidth=1)
        ax.axvline(0, color="0.5", linewidth=1)
        rows = sorted(chosen.items(), key=lambda item: ours(item[1][0]))
        for i, (variant, (row, *_)) in enumerate(rows):
            x, y = theirs(row) - theirs(base), ours(row) - ours(base)
            ax.plot(x, y, "o", color="C0")
            # On either side in turn, so that labels of neighbours do not overlap.
            side = "left" if i % 2 else "right"
            ax.text(x, y, f"  {variant}  ", ha=side, va="center", fontsize="x-small")
        ax.margins(x=0.15)
        ax.set(title=name, xlabel="the paper's difference from base", ylabel="ours")
    return figure
