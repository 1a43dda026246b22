"""Compares what two runs have logged: the first number that differs, and curves."""

from collections.abc import Sequence

from t2t_jax.run.differences import CLOCKS, first_difference
from t2t_jax.tools.compare.runs.opened import OpenedRun, Section
from t2t_jax.training.metrics_log import Metrics

ROWS = 12  # of a table in the terminal; the JSON has all


def log_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Finds the first logged metric that differs; times do not count."""
    facts, lines = {}, []
    for kind, one, other in (("train", a.train, b.train), ("dev", a.dev, b.dev)):
        steps = sorted({*one} & {*other})
        first = first_difference(one, other, steps)
        facts[kind] = {"steps": len(steps), "first": first and first._asdict()}
        if not steps:
            lines.append(f"{kind}: no step is logged by both")
        elif first:
            lines.append(
                f"{kind}: {first.name} of step {first.step:,} differs first: "
                f"{first.then!r} | {first.now!r}"
            )
        else:
            lines.append(f"{kind}: the same numbers in {len(steps):,} logged steps")
    if not any(fact["steps"] for fact in facts.values()):
        return Section(None, facts, lines)
    return Section(any(fact["first"] for fact in facts.values()), facts, lines)


def metrics_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Shows logged metrics over steps side by side; both runs' in one cell."""
    facts, lines = {}, []
    for kind, one, other in (("train", a.train, b.train), ("dev", a.dev, b.dev)):
        steps = sorted({*one} | {*other})
        names = ["loss"] if kind == "train" else _names(one, other)
        facts[kind] = {
            name: {
                str(step): [_value(run, step, name) for run in (one, other)]
                for step in steps
            }
            for name in _names(one, other)
        }
        if steps:
            lines += _table(kind, names, thinned(steps), one, other)
    return Section(None, facts, lines or ["nothing is logged"])


def thinned(steps: Sequence[int], rows: int = ROWS) -> list[int]:
    """At most `rows` of some steps, evenly spaced, with the first and the last."""
    if len(steps) <= rows:
        return [*steps]
    last = len(steps) - 1
    return [steps[round(i * last / (rows - 1))] for i in range(rows)]


def _names(*runs: dict[int, Metrics]) -> list[str]:
    names = {name: None for run in runs for of_step in run.values() for name in of_step}
    return [name for name in names if name not in CLOCKS]


def _value(run: dict[int, Metrics], step: int, name: str) -> float | None:
    return run.get(step, {}).get(name)


def _table(
    kind: str,
    names: Sequence[str],
    steps: Sequence[int],
    one: dict[int, Metrics],
    other: dict[int, Metrics],
) -> list[str]:
    rows = [["step", *(f"{kind} {name}" for name in names)]]
    for step in steps:
        cells = (
            " | ".join(_shown(_value(run, step, name)) for run in (one, other))
            for name in names
        )
        rows.append([f"{step:,}", *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
