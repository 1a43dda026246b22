"""Draws the results of experiments; every plot once for light pages, once for dark."""

import io
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_jax.io.atomic import write_atomically
from t2t_jax.tools.experiment.results import Results, RowResult
from t2t_jax.tools.pages.picture_style import (
    LIGHT,
    dark_style,
    light_style,
    scale_by_logarithm,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


def draw(
    plot: Callable[[Results], "Figure | None"], results: Results, folder: Path
) -> bool:
    """Writes `plot.png` and `plot-dark.png`; returns False if there is nothing to draw.

    Args:
      plot: makes a figure in the current style, of colours `C0`, `C1`, ...
    """
    import matplotlib.style
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    styles = {"plot.png": light_style(), "plot-dark.png": dark_style()}
    for name, style in styles.items():
        # From the defaults: a user's own matplotlibrc must not change the plot.
        with matplotlib.style.context(["default", style], after_reset=True):
            figure = plot(results)
            if figure is None:
                return False
            content = io.BytesIO()
            FigureCanvasAgg(figure)  # needs no screen, whatever the caller has set
            figure.savefig(content, format="png", dpi=150)
        if pyplot := sys.modules.get("matplotlib.pyplot"):
            pyplot.close(figure)  # one of `plt.subplots` would be kept for ever
        write_atomically(folder / name, content.getvalue())
    return True


def new_axes(height: float = 4.2) -> "Axes":
    """The axes of a new figure, which pyplot does not know of."""
    from matplotlib.figure import Figure

    return Figure(figsize=(7.5, height)).subplots()


def bars(
    results: Results,
    column: str,
    title: str = "",
    baseline: str = "",
    axes: "Axes | None" = None,
) -> "Figure":
    """Draws a column: each row's mean, its seeds, and an error bar of one deviation.

    The mean is a point rather than a bar, since the axis does not start at 0, where
    small differences could not be seen. Rows without a value are left out.

    Args:
      baseline: the row whose mean is drawn as a line through all others.
      axes: where to draw; by default a figure of its own.
    """
    groups = {
        group: valued
        for group, rows in results.groups().items()
        if (valued := [row for row in rows if row.values(column)])
    }
    count = sum(map(len, groups.values())) + len(groups)
    axes = axes or new_axes(height=1.2 + 0.34 * max(count, 3))
    places, labels, place = [], [], 0
    for number, (group, rows) in enumerate(groups.items()):
        if group:
            edge = axes.get_yaxis_transform()
            axes.text(
                0.0, place, f" {group}", transform=edge, va="center", style="italic"
            )
            place += 1
        for row in rows:
            _row(axes, row, column, place, f"C{number % len(LIGHT)}")
            places.append(place)
            labels.append(row.row.name)
            place += 1
    if baseline in results and results[baseline].values(column):
        mean = results[baseline].mean(column)
        axes.axvline(mean, color="0.5", linestyle="--", linewidth=1, zorder=0)
    axes.set_yticks(places, labels)
    axes.set_ylim(max(place, 1) - 0.4, -0.6)  # the first row on top
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    spread = any(row.deviation(column) > 0 for rows in groups.values() for row in rows)
    axes.set_xlabel(f"{column} (mean ± standard deviation)" if spread else column)
    if title:
        axes.set_title(title)
    return axes.figure


def _row(axes, row: RowResult, column: str, place: float, colour: str) -> None:
    values, deviation = row.values(column), row.deviation(column)
    error = None if math.isnan(deviation) else deviation
    axes.errorbar(row.mean(column), place, xerr=error, fmt="D", color=colour, ms=6)
    if len(values) > 1:  # below the mean, which would hide them
        below = [place + 0.27] * len(values)
        axes.plot(values, below, "o", color=colour, alpha=0.6, ms=3.5, mew=0)


def lines(
    series: Mapping[str, Sequence],
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    title: str = "",
    axes: "Axes | None" = None,
) -> "Figure":
    """Draws curves, each with an optional band, and a legend next to them.

    Args:
      series: by label, `(x, y)` or `(x, y, low, high)`, whose band may be None.
      log_x, log_y: scale the axis by the logarithm.
      axes: where to draw; by default a figure of its own.
    """
    axes = axes or new_axes()
    for number, (label, (x, y, *band)) in enumerate(series.items()):
        colour = f"C{number % len(LIGHT)}"
        # Past the last colour, dashes tell curves apart.
        style = ("-", "--", ":")[number // len(LIGHT) % 3]
        marker = "o" if len(x) <= 30 else ""
        axes.plot(x, y, color=colour, linestyle=style, marker=marker, label=label)
        if len(band) == 2 and band[0] is not None and band[1] is not None:
            axes.fill_between(x, *band, color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if log_x:
        _scale_by_logarithm(axes.xaxis, [v for x, *_ in series.values() for v in x])
    if log_y:
        _scale_by_logarithm(axes.yaxis, [v for _, y, *_ in series.values() for v in y])
    if title:
        axes.set_title(title)
    if len(series) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    return axes.figure


def _scale_by_logarithm(axis: "Axis", values: Sequence[float]) -> None:
    """Scales an axis by the logarithm; few whole numbers are its only ticks."""
    distinct = sorted({v for v in values if math.isfinite(v) and v > 0})
    scale_by_logarithm(axis, *(distinct[0], distinct[-1]) if distinct else (1, 1))
    if distinct and len(distinct) <= 8 and all(v == int(v) < 1e4 for v in distinct):
        axis.set_ticks(distinct)  # numbers of heads, of layers, ...
        axis.set_ticks([], minor=True)
