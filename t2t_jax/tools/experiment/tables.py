"""Writes the table of an experiment, whatever part of it is finished."""

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_jax.evaluation.scores import comparisons
from t2t_jax.io.atomic import write_atomically
from t2t_jax.io.messages import say
from t2t_jax.io.tables import markdown_cell, markdown_table
from t2t_jax.metrics.measures import TESTS
from t2t_jax.tasks.table import known_measures
from t2t_jax.tools.experiment import plots
from t2t_jax.tools.experiment.experiment import Experiment
from t2t_jax.tools.experiment.results import Results, RowResult, RunResult, better
from t2t_jax.tools.experiment.statistics import (
    BETTER,
    LEVEL,
    Comparison,
    compare,
    has_lines,
)

FINISHED, LEFT = "done", "left"


def write_report(
    experiment: Experiment,
    results: Results,
    folder: Path,
    states: Mapping[str, str] | None = None,
) -> str:
    """Writes `table.md`, `table.csv`, `runs.csv` and the plots of an experiment.

    Args:
      folder: of the experiment. Earlier files of these names are replaced.
      states: of runs, by the names of their folders, where the runner knows more than
        their files say.

    Returns:
      The content of `table.md`.
    """
    states = {_hash(name): state for name, state in (states or {}).items()}
    run_states = {
        (row.row.name, run.run.seed): states.get(run.run.hash) or state_of(row, run)
        for row in results
        for run in row.runs
    }
    row_states = {row.row.name: _row_state(row, run_states) for row in results}
    column = _compared_column(experiment)
    verdicts = {}
    if experiment.baseline and better(column):
        verdicts = compare(results, column, experiment.baseline, folder)
    parts = [
        f"# {folder.name}",
        _picture(experiment, results, folder),
        _table(experiment, results, verdicts, row_states),
        _explanation(experiment, results, verdicts),
        experiment.note,
        "\n\n".join(_comparable(results)),
        _attempt("report", lambda: experiment.report(results) or "")
        if experiment.report
        else "",
        _places(results, folder),
    ]
    markdown = "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
    table = _table_csv(experiment, results, verdicts, row_states, folder)
    runs = _runs_csv(experiment, results, run_states, folder)
    for name, text in (
        ("table.md", markdown),
        ("table.csv", table),
        ("runs.csv", runs),
    ):
        write_atomically(folder / name, text.encode())
    return markdown


def _compared_column(experiment: Experiment) -> str:
    """The column that decides which rows differ from the baseline; may be empty."""
    judged = (column for column in experiment.columns if better(column))
    return experiment.compared or next(judged, "")


def state_of(row: RowResult, run: RunResult) -> str:
    """The state of a run by its files: finished, left, or its error."""
    measured = all(run.measure(measure.name) for measure in row.row.measures)
    trained = run.run.config is None or run.outcome
    if trained and measured:
        return FINISHED
    if run.failed(row.row):
        text = str(run.failure.get("error") or run.failure)
        return f"failed: {text.strip().splitlines()[0]}"
    return LEFT


def _row_state(row: RowResult, run_states: Mapping[tuple[str, int], str]) -> str:
    counts = Counter(run_states[row.row.name, run.run.seed] for run in row.runs)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _attempt(name: str, call) -> str:
    """Calls a function of the experiment's file; an error becomes one line.

    Such functions may assume rows that are not finished; the table must not be lost.
    """
    try:
        return call()
    except Exception as e:
        line = " ".join(str(e).split())
        return f"The {name} could not be made: {type(e).__name__}: {line}"


def _picture(experiment: Experiment, results: Results, folder: Path) -> str:
    if not experiment.plot:
        return ""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        say("no plot: matplotlib is missing; pip install matplotlib")
        return ""

    def picture() -> str:
        if not plots.draw(experiment.plot, results, folder):
            return ""
        return (
            '<picture><source media="(prefers-color-scheme: dark)" '
            f'srcset="plot-dark.png"><img alt="{folder.name}" src="plot.png"></picture>'
        )

    return _attempt("plot", picture)


def _table(
    experiment: Experiment,
    results: Results,
    verdicts: Mapping[str, Comparison],
    row_states: Mapping[str, str],
) -> str:
    """The rows by group, in Markdown."""
    grouped = any(row.row.group for row in results)
    unfinished = any(state != FINISHED for state in row_states.values())
    columns = _with_paper(experiment, results)
    compared = _compared_column(experiment)
    head = ["group"] * grouped + ["row"]
    head += [f"paper: {c}" if paper else header(c) for c, paper in columns]
    head += ["seeds"]
    head += [f"{compared} vs {experiment.baseline}"] * bool(verdicts)
    head += ["state"] * unfinished
    lines = []
    for group, rows in results.groups().items():
        for row in rows:
            name, seeds = row.row.name, _seeds(row)
            one = verdicts.get(name)
            bold = "**" if one and one.verdict == BETTER else ""
            cells = [group if row is rows[0] else ""] * grouped
            cells += [f"{bold}{_escaped(name)}{bold}"]
            for column, paper in columns:
                if paper:
                    figure = row.row.paper.get(column)
                    cells += ["" if figure is None else number_text(column, figure)]
                    continue
                text = _cell(row, column, seeds)
                marked = bold and column == compared
                cells += [f"**{text}**" if marked else text]
            cells += [str(seeds)]
            cells += [_verdict(one)] * bool(verdicts)
            state = row_states[name]
            cells += ["" if state == FINISHED else _escaped(state)] * unfinished
            lines.append(cells)
    # Names are aligned to the left, and numbers to the right.
    texts = ("group", "row", "state", f"{compared} vs {experiment.baseline}")
    left = [number for number, name in enumerate(head) if name in texts]
    return "\n".join(markdown_table(head, lines, left))


def _seeds(row: RowResult) -> int:
    """The number of the row's runs that are finished."""
    return sum(state_of(row, run) == FINISHED for run in row.runs)


def _cell(row: RowResult, column: str, seeds: int) -> str:
    if column in row.row.values:
        value = row.row.values[column]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number_text(column, value) if number else _escaped(str(value))
    values = row.values(column)
    if not values:
        return ""
    text = mean_text(column, row.mean(column), row.deviation(column))
    return text if len(values) == seeds else f"{text} ({len(values)})"


def _escaped(text: str) -> str:
    return markdown_cell(text.replace("*", r"\*"))


def _verdict(one: Comparison | None) -> str:
    if one is None:
        return ""
    details = [one.reason] if one.reason else []
    if not math.isnan(one.p_adjusted):
        details.append(f"p = {one.p_adjusted:.2g}")
    return _escaped(one.verdict + (f" ({', '.join(details)})" if details else ""))


def _explanation(
    experiment: Experiment, results: Results, verdicts: Mapping[str, Comparison]
) -> str:
    """Explains the numbers and the verdicts."""
    column = _compared_column(experiment)
    text = (
        "Means over seeds ± the sample standard deviation. `seeds` counts the finished "
        "runs; a number in brackets is that of the seeds of one figure, if another."
    )
    if experiment.baseline and not better(column):
        return f"{text} No rows are compared: no column says which value is better."
    if not verdicts:
        return text
    count = sum(not math.isnan(one.p_adjusted) for one in verdicts.values())
    tests = (
        "a two-sided t-test over seeds (Welch's; for a row of one seed, with the "
        "standard deviation pooled over all rows that have more)"
    )
    lines = (
        ", and over test lines both paired bootstrap and approximate randomisation "
        "between runs of the same seed (1,000 samples; the largest p of all pairs)"
    )
    over_lines = any(has_lines(row, column) for row in results)
    return (
        f"{text}\n\n`{column}` is compared with the row `{experiment.baseline}` by "
        f"{tests}{lines if over_lines else ''}. p is the largest of a row's tests, "
        f"corrected by Benjamini-Hochberg for {count} comparisons; a row is *better* "
        f"or *worse* only if it is at most {LEVEL:.0%}. Better rows are bold."
    )


def _comparable(results: Results) -> list[str]:
    """Lists what the scores are comparable with, each line once."""
    lines = {}
    for row in results:
        for run in row.runs:
            files = sorted((run.path / "scores").glob("*.json"))
            # A number before the ending is that of earlier scores of the set.
            sets = [f.stem for f in files if not f.stem.rpartition(".")[2].isdigit()]
            scores = {name: run.scores(name) for name in sets}
            known = {n: s for n, s in scores.items() if "compare_with" in s}
            lines |= dict.fromkeys(comparisons(known))
    return list(lines)


def _places(results: Results, folder: Path) -> str:
    """The workdirs of every row, relative to the experiment's folder."""
    lines = [
        f"- {_escaped(row.row.name)}: "
        + ", ".join(f"[{p}]({p})" for p in _workdirs(row, folder))
        for row in results
    ]
    return "\n".join(["Workdirs of the rows:", "", *lines])


def _hash(folder_name: str) -> str:
    return os.path.basename(folder_name).rpartition("-")[2]


def _with_paper(experiment: Experiment, results: Results) -> list[tuple[str, bool]]:
    """The columns, each followed by the paper's: (name, is the paper's)."""
    paper = dict.fromkeys(name for row in results for name in row.row.paper)
    columns = []
    for column in experiment.columns:
        columns.append((column, False))
        if column in paper:
            columns.append((column, True))
    only_paper = [name for name in paper if name not in experiment.columns]
    return columns + [(name, True) for name in only_paper]


def _workdirs(row: RowResult, folder: Path) -> list[str]:
    """The row's workdirs, relative to the experiment's folder."""
    return [os.path.relpath(run.path, folder) for run in row.runs]


def _table_csv(
    experiment: Experiment,
    results: Results,
    verdicts: Mapping[str, Comparison],
    states: Mapping[str, str],
    folder: Path,
) -> str:
    """A line for each row: of each column mean, std and n, and what was tested."""
    return _csv(
        {"row": row.row.name, "group": row.row.group, "state": states[row.row.name]}
        | dict(_figures(experiment, results, row))
        | _tested(verdicts.get(row.row.name))
        | {"workdirs": " ".join(_workdirs(row, folder))}
        for row in results
    )


def _figures(experiment: Experiment, results: Results, row: RowResult):
    for column, paper in _with_paper(experiment, results):
        if paper:
            yield f"{column} paper", row.row.paper.get(column)
        elif any(column in other.row.values for other in results):
            yield column, row.row.values.get(column)
        else:
            yield f"{column} mean", row.mean(column)
            yield f"{column} std", row.deviation(column)
            yield f"{column} n", len(row.values(column))


def _tested(one: Comparison | None) -> dict[str, Any]:
    names = ("verdict", "reason", "difference", "p_seeds", "p_adjusted")
    lines = one.p_lines if one else {}
    return {name: getattr(one, name, None) for name in names} | {
        f"p_{test}": lines.get(test) for test in TESTS
    }


def _runs_csv(
    experiment: Experiment,
    results: Results,
    states: Mapping[tuple[str, int], str],
    folder: Path,
) -> str:
    """A line for each run, with all columns; `states` is by row and seed."""
    return _csv(
        {
            "row": row.row.name,
            "seed": run.run.seed,
            "workdir": os.path.relpath(run.path, folder),
            "state": states[row.row.name, run.run.seed],
        }
        | {
            column: row.row.values.get(column, run.value(column))
            for column in experiment.columns
        }
        | {"machine": _machine(run)}
        for row in results
        for run in row.runs
    )


def _machine(run: RunResult) -> str:
    """Names the machine of a finished run: minutes differ between machines."""
    machine = run.outcome.get("machine", {})
    devices = f"{machine.get('devices')} {machine.get('device')}"
    cores = f"{machine.get('processor')}, {machine.get('cores')} cores"
    return f"{devices} ({cores})" if machine else ""


def _csv(rows) -> str:
    """Encodes rows of the same keys; what is unknown stays empty."""
    rows = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "" if _unknown(v) else v for key, v in row.items()})
    return text.getvalue()


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


# Columns in millions, by the last part of their names.
MILLIONS = {"parameters": 3, "tokens": 2}
# Digits after the point; those of `Task.measures` are added.
DIGITS = {
    **dict.fromkeys(("bleu", "bleu_lc", "bleu_paper", "chrf", "ter", "minutes"), 1),
    **dict.fromkeys(("loss", "perplexity"), 3),
    "steps": 0,
}
# Digits after the point of which papers drop none.
_PRINTED = {"bleu": 1, "bleu_paper": 1, "perplexity": 2}


def header(column: str) -> str:
    """The column's name and its unit."""
    return f"{column} (M)" if _key(column) in MILLIONS else column


def number_text(column: str, value: float) -> str:
    """A single number, such as the paper's."""
    if _key(column) in MILLIONS:
        # The paper gives millions: 65 is 65 million parameters.
        return f"{value / 1e6 if value >= 1e4 else value:,.6g}"
    if _key(column) == "flops":
        return f"{value:.2e}".replace("e+", "e")
    if isinstance(value, int):
        return f"{value:,}"
    # With the digits that were given, and those that JSON drops: 5.00 is stored as 5.0.
    given = len(f"{value:.6g}".partition(".")[2])
    return f"{value:.{max(given, _PRINTED.get(_key(column), 0))}f}"


def mean_text(column: str, mean: float, deviation: float) -> str:
    """A mean, with its standard deviation unless that is 0 or unknown."""
    if _key(column) == "flops":
        return number_text(column, mean)
    digits = _digits(column, mean)
    scale = 1e6 if _key(column) in MILLIONS else 1
    text = f"{mean / scale:,.{digits}f}"
    # Seeds hardly change how many tokens are trained on: ± 0.00 says nothing.
    least = 0.5 * 10**-digits if scale > 1 else 0
    spread = deviation / scale
    return f"{text} ± {spread:,.{digits}f}" if spread > least else text


def _digits(column: str, mean: float) -> int:
    key = _key(column)
    if key in MILLIONS:
        return MILLIONS[key]
    if key in DIGITS:
        return DIGITS[key] - (key == "perplexity" and abs(mean) >= 10)
    if measure := known_measures().get(key):
        return measure.digits
    if not mean or not math.isfinite(mean):
        return 0
    if mean == int(mean) and abs(mean) >= 1e3:
        return 0
    # Four significant digits.
    return min(max(0, 3 - math.floor(math.log10(abs(mean)))), 6)


def _key(column: str) -> str:
    return column.rpartition(".")[2]
