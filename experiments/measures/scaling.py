"""Scaling laws: the loss as a function of parameters and tokens, fitted to runs.

L(N, D) = E + A N^-alpha + B D^-beta (Hoffmann et al. 2022, equation 2), fitted as in
their approach 3: the Huber loss of log residuals, minimized from several starts. N
counts all parameters, D source and target tokens trained on.
"""

import datetime
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from experiments.measures.fits import power_law
from t2t_jax.io.errors import UserError
from t2t_jax.io.tables import markdown_table
from t2t_jax.tools.experiment.experiment import Run
from t2t_jax.tools.experiment.measures import MEASURES
from t2t_jax.tools.experiment.plots import lines
from t2t_jax.tools.experiment.results import Context, Results, RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# The residual of a log loss from which outliers count linearly (Hoffmann et al.).
HUBER = 1e-3
# A constant whose interval spans more than this factor is not identified.
IDENTIFIED = 3.0
# 8 runs leave 3 degrees of freedom to 5 constants; a curve with an asymptote needs 3
# different sizes.
FEWEST_RUNS, FEWEST_SIZES = 8, 3
_EXPONENTS = (0.01, 3.0)
# Below this the share of a term in the loss cannot be distinguished from 0.
_LEAST_NATS = 1e-4


class Runs(NamedTuple):
    """Runs of a grid, arrays of one length: parameters, tokens, loss in nats, FLOPs."""

    parameters: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    flops: np.ndarray

    def subset(self, index: np.ndarray) -> "Runs":
        """The runs that an index or a mask chooses."""
        return Runs(*(values[index] for values in self))

    @property
    def flops_per_product(self) -> np.ndarray:
        """k of C = k N D, of each run."""
        return self.flops / (self.parameters * self.tokens)


class Law(NamedTuple):
    """The constants of L(N, D) = E + A N^-alpha + B D^-beta."""

    E: float
    A: float
    alpha: float
    B: float
    beta: float

    def loss(self, parameters: ArrayLike, tokens: ArrayLike) -> np.ndarray:
        """The loss in nats a token."""
        size_term = self.A * np.asarray(parameters, float) ** -self.alpha
        return self.E + size_term + self.B * np.asarray(tokens, float) ** -self.beta

    @property
    def size_exponent(self) -> float:
        """The exponent of the best N as a power of the compute C."""
        return self.beta / (self.alpha + self.beta)

    def optimum(
        self, flops: ArrayLike, flops_per_product: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The N and D of least loss for a compute C = k N D (equation 4)."""
        product = np.asarray(flops, float) / flops_per_product
        ratio = self.alpha * self.A / (self.beta * self.B)
        balance = ratio ** (1 / (self.alpha + self.beta))
        parameters = balance * product**self.size_exponent
        return parameters, product / parameters


class Interval(NamedTuple):
    """A value with its 95% interval."""

    value: float
    low: float
    high: float
    # False if the interval is too wide for the value to mean anything, or if the value
    # is at the bound of the search.
    identified: bool

    def __str__(self):
        if not self.identified:
            return "not identified"
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


class Fit(NamedTuple):
    """A fitted law, and the laws of resampled runs, which give its intervals."""

    law: Law  # fitted to all runs
    resampled: list[Law]  # fitted to runs drawn with replacement
    residuals: np.ndarray  # log of observed over fitted loss, of each run
    at_bound: frozenset[str]  # constants that are at the bound of the search

    def constants(self) -> dict[str, Interval]:
        """E, A, alpha, B and beta; A and B are identified if their exponents are."""
        drawn = np.array(self.resampled).T
        intervals = {
            name: _interval(value, resampled, name not in self.at_bound)
            for name, value, resampled in zip(Law._fields, self.law, drawn, strict=True)
        }
        for name, exponent in (("A", "alpha"), ("B", "beta")):
            identified = intervals[exponent].identified
            intervals[name] = intervals[name]._replace(identified=identified)
        return intervals

    def exponents(self) -> dict[str, Interval]:
        """The exponents of the best N and D as powers of the compute."""
        constants = self.constants()
        identified = constants["alpha"].identified and constants["beta"].identified
        value = self.law.size_exponent
        drawn = np.array([law.size_exponent for law in self.resampled])
        return {
            "parameters": _interval(value, drawn, identified),
            "tokens": _interval(1 - value, 1 - drawn, identified),
        }

    def predict(self, parameters: float, tokens: float, seed: int = 0) -> Interval:
        """Predicts the loss of one new run.

        The interval holds the error of the law, by resampling, and the noise of a run,
        by adding the residual of a random one.
        """
        rng = np.random.default_rng(seed)
        n = len(self.residuals)
        # A fit of 5 constants to n runs leaves residuals smaller than the noise.
        noise = self.residuals * (n / (n - len(Law._fields))) ** 0.5
        drawn = np.exp(rng.choice(noise, len(self.resampled)))
        losses = [law.loss(parameters, tokens) for law in self.resampled]
        return _interval(self.law.loss(parameters, tokens), losses * drawn)


def fit(runs: Runs, resamples: int = 200, seed: int = 0) -> Fit:
    """Fits a law to runs, with intervals from sets of runs drawn with replacement."""
    if not _suffice(runs, FEWEST_RUNS):
        n, sizes, data = _counts(runs)
        raise UserError(
            f"cannot fit L(N, D) to {n} runs with {sizes} numbers of parameters and "
            f"{data} of tokens; want at least {FEWEST_RUNS} runs with {FEWEST_SIZES} "
            f"numbers of parameters and {FEWEST_SIZES} of tokens: add widths or steps "
            "to the grid"
        )
    search = _Search(runs)
    start = search.best(runs, search.starts)
    law = search.law(start)
    rng, resampled = np.random.default_rng(seed), []
    while len(resampled) < resamples:
        drawn = runs.subset(rng.integers(len(runs.loss), size=len(runs.loss)))
        # Draws that leave a constant free say nothing about the grid as it is.
        _, different = np.unique(np.stack(drawn), axis=1, return_index=True)
        if _suffice(drawn.subset(different), len(Law._fields)):
            resampled.append(search.law(search.best(drawn, [start])))
    residuals = np.log(runs.loss / law.loss(runs.parameters, runs.tokens))
    return Fit(law, resampled, residuals, search.at_bound(start))


class _Search:
    """The search for a law, in coordinates in which its constants hardly correlate.

    They are log E, the logs of the two other terms at the centre of the grid, and the
    two exponents: A alone changes by orders of magnitude with alpha.
    """

    def __init__(self, runs: Runs):
        self.centre_n = np.log(runs.parameters).mean()
        self.centre_d = np.log(runs.tokens).mean()
        lowest, highest = np.log(runs.loss.min()), np.log(runs.loss.max())
        floor, steepest = np.log(_LEAST_NATS), _EXPONENTS[1]
        self.low = np.array([floor, floor, _EXPONENTS[0], floor, _EXPONENTS[0]])
        self.high = np.array([lowest, highest, steepest, highest, steepest])
        grid = itertools.product((0.1, 0.8), (0.2, 1.0), (0.2, 1.0))
        self.starts = [
            np.array([lowest + np.log(e), lowest + np.log(0.3), alpha, lowest, beta])
            for e, alpha, beta in grid
        ]

    def best(self, runs: Runs, starts: list[np.ndarray]) -> np.ndarray:
        """The point of least Huber loss that the starts lead to."""
        from scipy import optimize

        x = np.log(runs.parameters) - self.centre_n
        y = np.log(runs.tokens) - self.centre_d
        observed = np.log(runs.loss)

        def objective(point):
            e, a, alpha, b, beta = point
            terms = np.exp([np.full_like(x, e), a - alpha * x, b - beta * y])
            fitted = terms.sum(0)
            residual = np.log(fitted) - observed
            slope = np.clip(residual / HUBER, -1, 1)
            slope_e, slope_a, slope_b = terms / fitted * slope
            gradient = [slope_e, slope_a, -x * slope_a, slope_b, -y * slope_b]
            cost = slope * (residual / HUBER - slope / 2)
            return cost.sum(), np.sum(gradient, axis=1) / HUBER

        minima = [
            optimize.minimize(
                objective,
                np.clip(start, self.low, self.high),
                jac=True,
                # L-BFGS-B finds the same, but waits for threads of BLAS at each step.
                method="SLSQP",
                bounds=list(zip(self.low, self.high, strict=True)),
                options={"maxiter": 500},
            )
            for start in starts
        ]
        return min(minima, key=lambda result: result.fun).x

    def law(self, point: np.ndarray) -> Law:
        """The law of a point of the search."""
        e, a, alpha, b, beta = point
        size_factor = np.exp(a + alpha * self.centre_n)
        data_factor = np.exp(b + beta * self.centre_d)
        return Law(*map(float, (np.exp(e), size_factor, alpha, data_factor, beta)))

    def at_bound(self, point: np.ndarray) -> frozenset[str]:
        """The constants that are within 1% of the search's width of its bounds."""
        share = (point - self.low) / (self.high - self.low)
        outside = (share < 0.01) | (share > 0.99)
        return frozenset(itertools.compress(Law._fields, outside))


def _interval(value: float, drawn: ArrayLike, identified: bool = True) -> Interval:
    low, high = map(float, np.percentile(drawn, [2.5, 97.5]))
    identified = identified and 0 < high <= IDENTIFIED * low
    return Interval(float(value), low, high, identified)


def _counts(runs: Runs) -> tuple[int, int, int]:
    """The numbers of runs, of their sizes and of their tokens."""
    sizes = np.unique(runs.parameters), np.unique(runs.tokens)
    return len(runs.loss), *map(len, sizes)


def _suffice(runs: Runs, fewest: int) -> bool:
    n, *sizes = _counts(runs)
    return n >= fewest and min(sizes) >= FEWEST_SIZES


COLUMNS = ("parameters", "tokens", "dev.loss", "flops")  # as `Runs` has them


def predict_loss(context: Context, parameters: int, steps: int) -> dict[str, Any]:
    """Predicts the loss of a larger run from the grid, the rows that the row needs.

    Args:
      parameters: of the larger run.
      steps: it will be trained for; its tokens a step are taken to be the grid's.

    Returns:
      `loss` with its interval; the `time` at which it was predicted; the constants of
      the law, the `frontier`'s exponents and `flops_per_product`, k of C = k N D.

    Raises:
      UserError: a run of the grid is not finished, or the grid is too small.
    """
    paths = itertools.chain.from_iterable(context.needs.values())
    results = [RunResult(Run("", 0, None, path.name), path) for path in paths]
    for result in results:
        if missing := [c for c in COLUMNS if result.value(c) is None]:
            raise UserError(
                f"{result.path} has no {missing[0]}; a scaling law needs finished runs "
                "that were evaluated on dev text: run the rows of the grid first"
            )
    runs = _finished(results)
    tokens_a_step = np.mean([r.outcome["tokens"] / r.outcome["steps"] for r in results])
    tokens = float(tokens_a_step * steps)
    fitted = fit(runs)
    predicted = fitted.predict(parameters, tokens)
    k = runs.flops_per_product
    return {
        **predicted._asdict(),
        "loss": predicted.value,
        "parameters": parameters,
        "tokens": tokens,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "runs": len(runs.loss),
        "law": {name: c._asdict() for name, c in fitted.constants().items()},
        "frontier": {name: e._asdict() for name, e in fitted.exponents().items()},
        "flops_per_product": {
            "value": float(np.median(k)),
            "low": float(k.min()),
            "high": float(k.max()),
        },
    }


MEASURES["predict_loss"] = predict_loss


def _finished(results: Iterable[RunResult]) -> Runs:
    """The runs that have all values: the dev loss is without label smoothing."""
    values = [[result.value(column) for column in COLUMNS] for result in results]
    finished = [run_values for run_values in values if None not in run_values]
    return Runs(*np.array(finished, float).reshape(-1, len(COLUMNS)).T)


def report(results: Results) -> str:
    """Writes constants, frontier, and the prediction next to what was observed."""
    predicted = _prediction(results)
    if not predicted:
        return "The law is fitted when all runs of the grid are finished."
    k, frontier = predicted["flops_per_product"], predicted["frontier"]
    a, b = (Interval(**frontier[name]) for name in ("parameters", "tokens"))
    law = predicted["law"].items()
    constants = [(name, str(Interval(**interval))) for name, interval in law]
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
            *markdown_table(("constant", "value"), constants, left=(0, 1)),
            "",
            _simple_laws(_grid(results)),
            "",
            "### Compute-optimal frontier",
            "",
            f"C = k N D with k = {k['value']:.3g} (median of the grid; {k['low']:.3g} "
            f"to {k['high']:.3g}). The best N grows as C^a, the best D as C^b:",
            f"a = {a}, b = {b}. Hoffmann et al. 2022: 0.46 and 0.54.",
            "",
            "### Predicted and observed",
            "",
            _comparison(results, predicted),
        ]
    )


def plot(results: Results) -> "Figure | None":
    """Draws the loss against parameters, tokens and FLOPs."""
    runs = _grid(results)
    if not len(runs.loss):
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.6), layout="constrained")
    # Against each of these, curves of runs of as many of those.
    fixed = {"parameters": "tokens", "tokens": "parameters", "flops": "parameters"}
    panels = dict(zip(fixed, figure.subplots(1, 3, sharey=True), strict=True))
    for x, axes in panels.items():
        curves = _curves(runs, getattr(runs, x), getattr(runs, fixed[x]))
        y_label = "dev loss (nats a subword)" if x == "parameters" else ""
        label = "FLOPs" if x == "flops" else x
        lines(curves, label, y_label, log_x=True, log_y=True, axes=axes)
    if predicted := _prediction(results):
        _draw_law(*panels.values(), runs, predicted)
        observed = _finished(results["largest"].runs)
        n, d = predicted["parameters"], predicted["tokens"]
        c = predicted["flops_per_product"]["value"] * n * d
        loss, low, high = (predicted[name] for name in ("loss", "low", "high"))
        error = [[max(0, loss - low)], [max(0, high - loss)]]
        bar = {"fmt": "s", "color": "C5", "capsize": 4, "label": "predicted"}
        star = {"color": "C6", "mfc": "none", "ms": 14, "label": "observed"}
        for (x, axes), position in zip(panels.items(), (n, d, c), strict=True):
            axes.errorbar([position], [loss], error, **bar)
            axes.plot(getattr(observed, x), observed.loss, "*", **star)
    for x, axes in panels.items():
        axes.legend(title=f"M {fixed[x]}", fontsize="small")
    return figure


def _prediction(results: Results) -> dict[str, Any]:
    return results["prediction"].runs[0].measure("predict_loss")


def _grid(results: Results) -> Runs:
    rows = results.groups().get("grid", [])
    return _finished(run for row in rows for run in row.runs)


def _simple_laws(runs: Runs) -> str:
    """L(N) of the longest runs and L(D) of the widest, without asymptotes."""
    most_d = np.isclose(runs.tokens, runs.tokens.max(), rtol=0.05)
    most_n = runs.parameters == runs.parameters.max()
    texts = []
    for text, sizes, mask in (
        ("L(N) = c N^-a of the longest runs", runs.parameters, most_d),
        ("L(D) = c D^-a of the largest models", runs.tokens, most_n),
    ):
        try:
            law = power_law(sizes[mask], runs.loss[mask])
        except ValueError as e:  # too few runs
            texts.append(f"{text}: {e}.")
            continue
        texts.append(
            f"{text}: a = {-law.exponent:.3g} ({-law.high:.3g} to "
            f"{-law.low:.3g}), c = {law.coefficient:.3g}."
        )
    return "  \n".join(texts)


def _comparison(results: Results, predicted: dict[str, Any]) -> str:
    """The predicted loss, whose interval is shown even if it is wide, and ours."""
    caution = "" if predicted["identified"] else ": too wide to identify the loss"
    text = (
        f"At {predicted['parameters'] / 1e6:.2f}M parameters and "
        f"{predicted['tokens'] / 1e6:.2f}M tokens the law says {predicted['loss']:.3f} "
        f"({predicted['low']:.3f} to {predicted['high']:.3f}{caution}), stored "
        f"{predicted['time']}"
    )
    observed = _finished(results["largest"].runs).loss
    if not len(observed):
        return f"{text}; the run is not finished."
    loss = observed.mean()
    inside = predicted["low"] <= loss <= predicted["high"]
    # Not if the grid was changed after the larger run, and the law fitted again.
    stored = datetime.datetime.fromisoformat(predicted["time"]).timestamp()
    started = min(run.started for run in results["largest"].runs)
    order = "before" if stored <= started else "AFTER"
    return (
        f"{text}, {order} that run began. Observed: {loss:.3f}, "
        f"{'inside' if inside else 'outside'} the interval, "
        f"{100 * (loss / predicted['loss'] - 1):+.1f}% from the prediction."
    )


def _groups(values: np.ndarray) -> np.ndarray:
    """Rounds values: runs of as many steps differ a little in their tokens."""
    return np.array([float(f"{value:.2g}") for value in values])


def _curves(runs: Runs, x: np.ndarray, fixed: np.ndarray) -> dict[str, tuple]:
    """Observed losses by `x`, one curve for each value of `fixed`, in millions."""
    curves = {}
    for value in np.unique(_groups(fixed)):
        index = np.flatnonzero(_groups(fixed) == value)
        index = index[np.argsort(x[index])]
        curves[f"{value / 1e6:.2g}"] = (x[index], runs.loss[index])
    return curves


def _draw_law(by_size, by_data, by_compute, runs: Runs, predicted) -> None:
    """Draws the fitted curves, dashed in the colours of the observed ones."""
    law = Law(**{name: c["value"] for name, c in predicted["law"].items()})
    k, extension = predicted["flops_per_product"]["value"], 2.0
    n, d = (
        np.geomspace(values.min(), values.max() * extension, 50)
        for values in (runs.parameters, runs.tokens)
    )
    for i, tokens in enumerate(np.unique(_groups(runs.tokens))):
        by_size.plot(n, law.loss(n, tokens), "--", color=f"C{i}", alpha=0.7)
    for i, parameters in enumerate(np.unique(_groups(runs.parameters))):
        by_data.plot(d, law.loss(parameters, d), "--", color=f"C{i}", alpha=0.7)
    # The envelope: the least loss of each compute.
    c = np.geomspace(runs.flops.min(), runs.flops.max() * extension**2, 50)
    best = law.loss(*law.optimum(c, k))
    by_compute.plot(c, best, "--", color="C5", label="optimum")
