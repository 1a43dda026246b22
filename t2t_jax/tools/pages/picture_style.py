"""The look of pictures drawn by matplotlib: colors and lines, light and dark."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axis import Axis

# The colours of Okabe & Ito (2008), which colour-blind readers can tell apart; lighter
# shades of the same hues on dark pages.
LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
DARK = ["#56B4E9", "#FF8C42", "#2FC49A", "#E8A0CC", "#F5C04A", "#A9D8F5", "#E6EDF3"]


def light_style() -> dict[str, Any]:
    """Settings of matplotlib for pictures on light pages."""
    return _style("#FFFFFF", "#1F2328", "#D9DEE3", LIGHT)


def dark_style() -> dict[str, Any]:
    """Settings of matplotlib for pictures on dark pages."""
    return _style("#0D1117", "#E6EDF3", "#30363D", DARK)


def _style(page: str, ink: str, grid: str, colours: Sequence[str]) -> dict[str, Any]:
    from cycler import cycler

    inks = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    pages = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    return {
        **dict.fromkeys(inks, ink),
        **dict.fromkeys(pages, page),
        "axes.edgecolor": ink,
        "axes.prop_cycle": cycler(color=colours),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": grid,
        "grid.linewidth": 0.7,
        "font.size": 11,
        "axes.titlesize": 12,
        "axes.titlelocation": "left",
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "lines.markersize": 5.5,
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.h_pad": 0.1,
        "figure.constrained_layout.w_pad": 0.1,
    }


def scale_by_logarithm(axis: "Axis", low: float, high: float) -> None:
    """Scales an axis by the logarithm, with plain numbers such as 4 and 20k.

    `low` and `high`, above 0, are the smallest and the largest number that it shows.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    axes, large = axis.axes, EngFormatter(sep="")
    (axes.set_xscale if axis.axis_name == "x" else axes.set_yscale)("log")
    decades = math.log10(high / low)
    subs = (1, 1.5, 2, 3, 4, 5, 7) if decades < 1 else (1, 2, 5)
    axis.set_major_locator(LogLocator(subs=subs if decades < 3 else (1,)))
    axis.set_major_formatter(lambda x, _: large(x) if x >= 1e4 else f"{x:g}")
    axis.set_minor_formatter(NullFormatter())
