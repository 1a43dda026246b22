"""Report and plot of a grid of runs, its scaling law and a predicted larger run.

Groups of rows: `grid`, and the rows `prediction` (measure `predict_loss`) and
`largest`. Both work with what is finished.
"""

import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_jax.tools.experiment.fits import power_law
from t2t_jax.tools.experiment.loss_prediction import COLUMNS, read_runs
from t2t_jax.tools.experiment.plots import lines
from t2t_jax.tools.experiment.results import Results
from t2t_jax.tools.experiment.scaling_laws import Interval, Law, Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def report(results: Results) -> str:
    """Writes constants, frontier, and the prediction beside what was observed."""
    predicted = _prediction(results)
    if not predicted:
        return "The law is fitted when all runs of the grid are finished."
    law, k = predicted["law"], predicted["flops_per_product"]
    of_size, of_data = (
        Interval(**predicted["frontier"][name]) for name in ("parameters", "tokens")
    )
    constants = [f"| {name} | {Interval(**law[name])} |" for name in law]
    return "\n".join(
        [
            "### Fitted law",
            "",
            f"L(N, D) = E + A N^-alpha + B D^-beta, fitted to {predicted['runs']} runs "
            "(Huber loss of log residuals; intervals of 95% by resampling runs). N "
            "counts all parameters: the one embedding table is the output layer too, "
            "so it takes part in the matrix products of every target token. D counts "
            "source and target tokens trained on, also repeated ones.",
            "",
            "| constant | value |",
            "| --- | --- |",
            *constants,
            "",
            *_simple_laws(_grid(results)),
            "",
            "### Compute-optimal frontier",
            "",
            f"C = k N D with k = {k['value']:.3g} (median of the grid; {k['low']:.3g} "
            f"to {k['high']:.3g}). The best N grows as C^a, the best D as C^b:",
            f"a = {of_size}, b = {of_data}. Hoffmann et al. 2022: 0.46 and 0.54.",
            "",
            "### Predicted and observed",
            "",
            *_comparison(results, predicted),
        ]
    )


def plot(results: Results) -> "Figure | None":
    """Draws the loss against parameters, tokens and FLOPs."""
    runs = _grid(results)
    if not len(runs.loss):
        return None
    from matplotlib.figure import Figure

    predicted = _prediction(results)
    figure = Figure(figsize=(15, 4.6), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    by_size = _curves(runs, runs.parameters, runs.tokens)
    by_data = _curves(runs, runs.tokens, runs.parameters)
    by_compute = _curves(runs, runs.flops, runs.parameters)
    for axes, series, label in (
        (panels[0], by_size, "parameters"),
        (panels[1], by_data, "tokens"),
        (panels[2], by_compute, "FLOPs"),
    ):
        y_label = "dev loss (nats a subword)" if axes is panels[0] else ""
        lines(series, label, y_label, log_x=True, log_y=True, axes=axes)
    if predicted:
        _draw_law(panels, runs, predicted)
        observed = _finished(results, "largest")
        n, d = predicted["parameters"], predicted["tokens"]
        c = predicted["flops_per_product"]["value"] * n * d
        for axes, x, column in zip(panels, (n, d, c), (0, 1, 3), strict=True):
            _draw_prediction(axes, x, predicted)
            star = {"color": "C6", "mfc": "none", "ms": 14, "label": "observed"}
            axes.plot(observed[:, column], observed[:, 2], "*", **star)
    held = ("M tokens", "M parameters", "M parameters")
    for axes, title in zip(panels, held, strict=True):
        axes.legend(title=title, fontsize="small")
    return figure


def _prediction(results: Results) -> dict[str, Any]:
    return results["prediction"].runs[0].measure("predict_loss")


def _finished(results: Results, row: str) -> np.ndarray:
    """N, D, loss and FLOPs of the row's finished runs, [runs, 4]."""
    found = [[run.value(c) for c in COLUMNS] for run in results[row].runs]
    return np.array([v for v in found if None not in v], float).reshape(-1, 4)


def _grid(results: Results) -> Runs:
    """The finished runs of the grid."""
    rows = results.groups().get("grid", [])
    finished = [r for row in rows for r in row.runs if r.outcome]
    return read_runs(finished)


def _simple_laws(runs: Runs) -> list[str]:
    """L(N) of the longest runs and L(D) of the widest, without asymptotes."""
    most_d = np.isclose(runs.tokens, runs.tokens.max(), rtol=0.05)
    most_n = runs.parameters == runs.parameters.max()
    texts = []
    for text, sizes, chosen in (
        ("L(N) = c N^-a of the longest runs", runs.parameters, most_d),
        ("L(D) = c D^-a of the largest models", runs.tokens, most_n),
    ):
        try:
            found = power_law(sizes[chosen], runs.loss[chosen])
        except ValueError as e:  # too few runs
            texts.append(f"{text}: {e}.")
            continue
        texts.append(
            f"{text}: a = {-found.exponent:.3g} ({-found.high:.3g} to "
            f"{-found.low:.3g}), c = {found.coefficient:.3g}."
        )
    return ["  \n".join(texts)]


def _comparison(results: Results, predicted: dict[str, Any]) -> list[str]:
    at = (
        f"{predicted['parameters'] / 1e6:.2f}M parameters and "
        f"{predicted['tokens'] / 1e6:.2f}M tokens"
    )
    text = f"At {at} the law says {_loss(predicted)}, stored {predicted['time']}"
    observed = _finished(results, "largest")[:, 2]
    if not len(observed):
        return [f"{text}; the run is not finished."]
    loss = observed.mean()
    inside = predicted["low"] <= loss <= predicted["high"]
    # Not if the grid was changed after the larger run, and the law fitted again.
    stored = datetime.datetime.fromisoformat(predicted["time"]).timestamp()
    started = min(run.started for run in results["largest"].runs)
    order = "before" if stored <= started else "AFTER"
    return [
        f"{text}, {order} that run began. Observed: {loss:.3f}, "
        f"{'inside' if inside else 'outside'} the interval, "
        f"{100 * (loss / predicted['loss'] - 1):+.1f}% from the prediction."
    ]


def _loss(predicted: dict[str, Any]) -> str:
    """The predicted loss and its interval, which is shown even if it is wide."""
    interval = f"{predicted['low']:.3f} to {predicted['high']:.3f}"
    wide = "" if predicted["identified"] else ": too wide to identify the loss"
    return f"{predicted['loss']:.3f} ({interval}{wide})"


def _groups(values: np.ndarray) -> np.ndarray:
    """Rounds values: runs of as many steps differ a little in their tokens."""
    return np.array([float(f"{value:.2g}") for value in values])


def _curves(runs: Runs, x: np.ndarray, held: np.ndarray) -> dict[str, tuple]:
    """Observed losses by `x`, one curve for each value of `held`, in millions."""
    curves = {}
    for value in np.unique(_groups(held)):
        chosen = np.flatnonzero(_groups(held) == value)
        chosen = chosen[np.argsort(x[chosen])]
        curves[f"{value / 1e6:.2g}"] = (x[chosen], runs.loss[chosen])
    return curves


def _draw_law(panels, runs: Runs, predicted: dict[str, Any]) -> None:
    """Draws the fitted curves, dashed in the colours of the observed ones."""
    law = Law(**{name: c["value"] for name, c in predicted["law"].items()})
    k, most = predicted["flops_per_product"]["value"], 2.0
    n, d = (
        np.geomspace(values.min(), values.max() * most, 50)
        for values in (runs.parameters, runs.tokens)
    )
    for i, tokens in enumerate(np.unique(_groups(runs.tokens))):
        panels[0].plot(n, law.loss(n, tokens), "--", color=f"C{i}", alpha=0.7)
    for i, parameters in enumerate(np.unique(_groups(runs.parameters))):
        panels[1].plot(d, law.loss(parameters, d), "--", color=f"C{i}", alpha=0.7)
    # The envelope: the least loss of each compute.
    c = np.geomspace(runs.flops.min(), runs.flops.max() * most**2, 50)
    best = law.loss(*law.optimum(c, k))
    panels[2].plot(c, best, "--", color="C5", label="optimum")


def _draw_prediction(axes, x: float, predicted: dict[str, Any]) -> None:
    """Draws the predicted loss with its error bar."""
    loss = predicted["loss"]
    error = [[max(0, loss - predicted["low"])], [max(0, predicted["high"] - loss)]]
    axes.errorbar([x], [loss], error, fmt="s", color="C5", capsize=4, label="predicted")
