"""Plots the logs of runs, one panel a metric.

from t2t_jax import figure
figure(["runs/tiny", "runs/lstm"])
"""

import dataclasses
import functools
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from etils import epath

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.tools.pages.picture_style import (
    LIGHT,
    light_style,
    scale_by_logarithm,
)
from t2t_jax.tools.pages.run_log import (
    NothingLoggedError,
    RunLog,
    read_run,
    short_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Workdirs = epath.PathLike | Sequence[epath.PathLike]  # one or several
AXES = {"steps": "Steps", "tokens": "Tokens, of both languages", "hours": "Hours"}
# Past the last colour, dashes tell runs apart; in units of the line's width.
DASHES = [[], [4, 1.5], [1, 1.5]]
# Panels in this order, before those of metrics that are not listed here; other scores
# of the dev set, which depend on the task, follow the loss.
TITLES = {
    "loss": "Loss per token",
    "bleu": "BLEU, dev set",
    "chrf": "chrF, dev set",
    "perplexity": "Perplexity",
    "learning_rate": "Learning rate",
    "gradient_norm": "Gradient norm, maximum",
    "tokens_per_second": "Tokens per second",
    "mfu": "MFU: share of the peak FLOP/s",
    "skipped": "Skipped gradients, total",
}
# Logged for other purposes: the axes, and parts of what is shown.
NOT_SHOWN = {"skipped_in_a_row", "tokens", "flops", "seconds", "seconds_per_step"}
NOT_SMOOTHED = {"learning_rate", "skipped"}
# The look of an event's mark, and what it says.
MARKS = {
    "rollback": ("dashed line", "went back here (faint: discarded)"),
    "restart": ("dotted line", "continued here"),
    "alarm": ("cross", "alarm: a step's large gradient"),
}
# Matplotlib's settings for the looks of lines and marks.
LOOKS = {
    "line": {},
    "line with points": {"marker": "o", "ms": 4, "lw": 1},
    "dashed line": {"ls": "--", "lw": 1},
    "dotted line": {"ls": ":", "lw": 1},
    "cross": {"ls": "", "marker": "x", "ms": 6},
}


def figure(workdirs: Workdirs, x: str = "steps", smooth: int | None = None) -> "Figure":
    """Draws the logs of runs with matplotlib.

    Args:
      workdirs: one or several.
      x: "steps", "tokens" or "hours".
      smooth: the number of logged training values that a point is the mean of; 1 for
        none, None for a number that suits the length of the runs.

    Raises:
      UserError: a workdir has no log, a log lacks this axis, or matplotlib is missing.
    """
    try:
        import matplotlib.style
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            "a picture needs matplotlib: pip install 't2t_jax[notebooks]'"
        ) from None
    content = plot_data(workdirs, x, smooth)
    columns = min(3, len(content["panels"]))
    rows = -(-len(content["panels"]) // columns)
    legend_rows = -(-(len(content["runs"]) + 2) // columns)
    # From the defaults: a user's own matplotlibrc must not change the plot.
    with matplotlib.style.context(["default", light_style()], after_reset=True):
        size = (1 + 4.2 * columns, 0.4 + 2.9 * rows + 0.25 * legend_rows)
        drawn = Figure(figsize=size)
        grid = drawn.subplots(rows, columns, squeeze=False, sharex=True).flatten()
        for axes, panel in zip(grid, content["panels"], strict=False):
            _draw_panel(axes, content, panel)
        for axes in grid[len(content["panels"]) :]:
            axes.remove()
        drawn.legend(handles=_legend(content), loc="outside upper left", ncols=columns)
    # Notebooks show figures of pyplot by themselves, and others only once it was used.
    drawn._repr_png_ = functools.partial(_png, drawn)
    return drawn


def _png(drawn: "Figure") -> bytes:
    content = io.BytesIO()
    drawn.savefig(content, format="png")
    return content.getvalue()


def plot_data(
    workdirs: Workdirs, x: str = "steps", smooth: int | None = None
) -> dict[str, Any]:
    """Returns what `figure` draws; it has the same arguments."""
    runs = _read([workdirs] if isinstance(workdirs, epath.PathLike) else workdirs)
    axes = [axis for axis in AXES if all(axis in run.axes for run in runs)]
    _check(runs, axes, x, smooth)
    names = short_names([run.path for run in runs])
    count = f"{len(names)} runs"
    longest = max(len(s.x["steps"]) for run in runs for s in run.segments)
    happened = {event.kind for run in runs for event in run.events}
    return {
        "title": f"Training of {', '.join(names) if len(names) < 5 else count}",
        "x": x,
        "axes": {axis: AXES[axis] for axis in axes},
        "smooth": smooth or max(1, longest // 100) | 1,
        "panels": _panels(runs),
        "legend": [
            ("line with points", "dev set"),
            *(mark for kind, mark in MARKS.items() if kind in happened),
        ],
        "runs": [
            {
                **dataclasses.asdict(run),
                "name": name,
                "last_step": run.last_step,
                "colour": LIGHT[i % len(LIGHT)],
                "dashes": DASHES[i // len(LIGHT)],
            }
            for i, (name, run) in enumerate(zip(names, runs, strict=True))
        ],
    }


def _read(workdirs: Sequence[epath.PathLike]) -> list[RunLog]:
    """Reads the logs; runs that have just begun are left out if there are others."""
    runs, empty = [], None
    for workdir in dict.fromkeys(str(workdir).rstrip("/") for workdir in workdirs):
        try:
            runs.append(read_run(workdir))
        except NothingLoggedError as e:
            empty = e
            if len(workdirs) > 1:
                say(f"warning: left out: {e}")
    if empty and not runs:
        raise empty
    return runs


def _check(runs: list[RunLog], axes: list[str], x: str, smooth: int | None) -> None:
    if not runs:
        raise UserError("no workdir is given; want one, or several")
    most = len(LIGHT) * len(DASHES)
    if len(runs) > most:
        raise UserError(
            f"{len(runs)} runs cannot be told apart in one picture; give at most {most}"
        )
    if x not in AXES:
        raise UserError(f"x={x!r}{did_you_mean(x, AXES)}")
    if x not in axes:
        run = next(run for run in runs if x not in run.axes)
        raise UserError(
            f"the log of {run.path} has no {x}: an earlier version wrote it; choose "
            f"x among {', '.join(axes)}"
        )
    if smooth is not None and smooth < 1:
        raise UserError(f"smooth={smooth}; want a number of values, or 1 for none")


def _panels(runs: list[RunLog]) -> list[dict[str, Any]]:
    """The metrics to show, those of TITLES and of the dev set first."""
    by_kind: dict[str, list[str]] = {"train": [], "dev": []}
    for run in runs:
        for segment in run.segments:
            by_kind[segment.kind] += segment.values
    scores = [name for name in by_kind["dev"] if name not in by_kind["train"]]
    scores = [name for name in scores if name not in TITLES]
    titles = {"loss": TITLES["loss"]}
    titles |= {name: f"{_words(name)}, dev set" for name in scores} | TITLES
    curves: dict[str, list[dict]] = {name: [] for name in titles}
    values: dict[str, list[float]] = {name: [] for name in titles}
    for i, run in enumerate(runs):
        for j, segment in enumerate(run.segments):
            training = segment.kind == "train"
            for name, logged in segment.values.items():
                smooth = training and not segment.undone and name not in NOT_SMOOTHED
                curve = {"run": i, "segment": j, "smooth": smooth}
                curve |= {"points": not training, "faint": segment.undone}
                curves.setdefault(name, []).append(curve)
                finite = [v for v in logged if math.isfinite(v)]
                values.setdefault(name, []).extend(finite)
    if not any(values["skipped"]):
        del values["skipped"]
    return [
        {
            "metric": name,
            "title": titles.get(name, _words(name)),
            "log": _suits_logarithm(name, logged),
            "curves": curves[name],
        }
        for name, logged in values.items()
        if logged and name not in NOT_SHOWN
    ]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _suits_logarithm(name: str, values: list[float]) -> bool:
    is_wide = min(values, default=0) > 0 and max(values) / min(values) > 20
    return is_wide and (name in ("loss", "perplexity") or name.endswith("_norm"))


def smoothed(values: Sequence[float], count: int) -> list[float]:
    """The mean of `count` values around each one; fewer at the ends, as many each side.

    Values that are nan stay nan, and do not count in the means of others.
    """
    array = np.asarray(values, np.float64)
    places = np.arange(len(array))
    reach = np.minimum(np.minimum(places, places[::-1]), count // 2)
    finite = np.isfinite(array)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, array, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    begin, end = places - reach, places + reach + 1
    with np.errstate(invalid="ignore"):  # 0 / 0 where nothing is finite
        means = (sums[end] - sums[begin]) / (counts[end] - counts[begin])
    return np.where(finite & (reach > 0), means, array).tolist()


def _draw_panel(axes: "Axes", content: dict, panel: dict) -> None:
    from matplotlib.ticker import EngFormatter

    x, metric = content["x"], panel["metric"]
    for curve in panel["curves"]:
        run = content["runs"][curve["run"]]
        segment = run["segments"][curve["segment"]]
        across, up = segment["x"][x], segment["values"][metric]
        look = _look(run)
        if curve["points"]:
            look |= LOOKS["line with points"]
        elif len(across) == 1:
            look["marker"] = "."  # a line of one point is not seen
        if curve["faint"]:
            look |= {"lw": 1, "alpha": 0.35}
        if curve["smooth"] and content["smooth"] > 1:
            axes.plot(across, up, color=look["color"], lw=0.8, alpha=0.3)
            up = smoothed(up, content["smooth"])
        axes.plot(across, up, **look)
    for run in content["runs"]:
        for event in run["events"]:
            if event["metric"] == metric:
                _mark(axes, event, event["x"][x], run["colour"])
    if panel["log"]:
        axes.set_yscale("log")  # which changes the limits
        scale_by_logarithm(axes.yaxis, *axes.get_ylim())
    elif metric == "tokens_per_second":
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    if x != "hours":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.tick_params(labelbottom=True)  # also of the upper of panels that share it
    axes.set_title(panel["title"])
    axes.set_xlabel(content["axes"][x])


def _look(run: dict) -> dict[str, Any]:
    return {"color": run["colour"], "ls": (0, run["dashes"] or None)}


def _mark(axes: "Axes", event: dict, place: float, colour: str) -> None:
    look = LOOKS[MARKS[event["kind"]][0]]
    if event["kind"] != "alarm":
        axes.axvline(place, color=colour, **look)
    elif math.isfinite(event["value"]) and event["value"] > 0:
        axes.plot(place, event["value"], color=colour, **look)


def _legend(content: dict) -> list:
    """Lists the lines of the picture: the runs, then the kinds of line."""
    from matplotlib.lines import Line2D

    smooth = content["smooth"]
    line = f"training, mean of {smooth} logged values (faint: each)"
    kinds = [("line", line if smooth > 1 else "training, as logged")]
    runs = [
        Line2D([], [], **_look(r), label=f"{r['name']}, to step {r['last_step']:,}")
        for r in content["runs"]
    ]
    return runs + [
        Line2D([], [], color="0.4", label=label, **LOOKS[look])
        for look, label in kinds + content["legend"]
    ]
