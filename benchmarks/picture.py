"""Draws results of benchmarks: a bar for each system, and a line at the limit.

python -m benchmarks.picture --input=docs/results/train.json,docs/results/d.json
"""

import io
import json
from pathlib import Path

from absl import flags

from benchmarks import run
from benchmarks.measuring import Row
from t2t_jax.io import atomic
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say

OURS, THEIRS, LIMIT = "#1f5a99", "#b8bec6", "#c0392b"


def panels(rows: list[Row]) -> dict[str, dict]:
    """Collects the rates to draw: one panel for each work that has a peer.

    Returns:
      Rates by system, and `limit`, by title: the work and its unit in two lines. A work
      measured in several units is shown in tokens only.
    """
    collected: dict[str, dict] = {}
    for row in rows:
        if row.peer is None:
            continue
        panel = collected.setdefault(f"{row.work}\n{row.unit}", {"t2t_jax": row.ours})
        panel[row.peer_name] = row.peer
        if row.share_of_limit:
            panel["limit"] = row.ours / row.share_of_limit
    in_tokens = {name.split("\n")[0] for name in collected if "tokens" in name}
    return {
        name: panel
        for name, panel in collected.items()
        if "tokens" in name or name.split("\n")[0] not in in_tokens
    }


def read(path: str) -> list[Row]:
    """Reads the rows that a benchmark wrote with --output."""
    try:
        rows = json.loads(Path(path).read_text())["rows"]
        for row in rows:
            row.pop("ratio")  # computed from the others
        return [Row(**row) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise UserError(
            f"{path}: not the rows of a benchmark ({type(e).__name__}: {e}); want a "
            "file written by python -m benchmarks.NAME --output=PATH"
        ) from e


def drawn(works: dict[str, dict]):
    """Draws the figure: a panel for each work, the fastest system on top."""
    import matplotlib

    matplotlib.use("agg")  # draws without a display
    from matplotlib import pyplot

    height = sum(len(panel) + 1.2 for panel in works.values()) * 0.27
    ratios = [len(panel) + 1.2 for panel in works.values()]
    figure, axes = pyplot.subplots(
        len(works), figsize=(7.5, height), height_ratios=ratios, squeeze=False
    )
    for axis, (name, panel) in zip(axes[:, 0], works.items(), strict=True):
        rates = dict(panel)
        limit = rates.pop("limit", None)
        order = sorted(rates, key=rates.get)
        colours = [OURS if system == "t2t_jax" else THEIRS for system in order]
        axis.barh(order, [rates[system] for system in order], color=colours)
        for place, system in enumerate(order):
            rate = rates[system]
            label = f" {rate:,.0f}" if rate >= 100 else f" {rate:.3g}"
            axis.text(rate, place, label, va="center", size=8)
        end = max(rates.values()) * 1.18  # room for the longest bar's number
        if limit and limit <= 3 * end:  # a farther limit would squeeze the bars
            end = max(end, limit * 1.05)
            axis.axvline(limit, color=LIMIT, lw=1)
            axis.text(
                limit, len(order) - 0.4, "limit", color=LIMIT, size=8, ha="center"
            )
        axis.set_xlim(0, end)
        axis.set_title(name.replace("\n", ", "), loc="left", size=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def define_flags():
    flags.DEFINE_list(
        "input", None, "Files that benchmarks wrote with --output.", required=True
    )
    flags.DEFINE_string("output", "docs/performance.png", "PNG file to write.")


def main(_):
    args = flags.FLAGS
    works = panels([row for path in args.input for row in read(path)])
    if not works:
        raise UserError("no row has a peer; run the benchmarks with their --peers")
    picture = io.BytesIO()
    drawn(works).savefig(picture, format="png", dpi=130)
    atomic.write_atomically(Path(args.output), picture.getvalue())
    say(f"drew {args.output}")


if __name__ == "__main__":
    run(main, define_flags)
