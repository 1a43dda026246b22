"""Writes the table of an experiment, whatever part of it is finished."""

import csv
import importlib.util
import io
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from t2t_jax.evaluation.scores import comparisons
from t2t_jax.io.atomic import write_atomically
from t2t_jax.io.messages import say
from t2t_jax.io.tables import markdown_cell, markdown_table
from t2t_jax.metrics.measures import TESTS
from t2t_jax.tools.experiment import plots
from t2t_jax.tools.experiment.experiment import Experiment
from t2t_jax.tools.experiment.results import (
    DONE,
    FAILED,
    RUNNING,
    Results,
    RowResult,
    RunResult,
    better,
    column_of,
    is_number,
    read_json,
)
from t2t_jax.tools.experiment.statistics import (
    BETTER,
    LEVEL,
    Comparison,
    compare,
    has_lines,
)
from t2t_jax.workdir import TEXT


def write_report(
    experiment: Experiment,
    results: Results,
    folder: Path,
    running: Collection[str] = (),
) -> str:
    """Writes `table.md`, `table.csv`, `runs.csv` and the plots of an experiment.

    Args:
      folder: of the experiment. Earlier files of these names are replaced.
      running: hashes of the runs that a process is at, which their files do not say.

    Returns:
      The content of `table.md`.
    """
    report = _Report(experiment, results, folder, running)
    files = {
        "table.md": report.markdown(),
        "table.csv": _csv(report.rows_csv()),
        "runs.csv": _csv(report.runs_csv()),
    }
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    return files["table.md"]


class _Report:
    """The parts of an experiment's tables."""

    def __init__(self, experiment: Experiment, results: Results, folder: Path, running):
        self.experiment, self.results, self.folder = experiment, results, folder
        # The column that decides which rows differ from the baseline; may be empty.
        judged = (column for column in experiment.columns if better(column))
        self.compared = experiment.compared or next(judged, "")
        self.verdicts: dict[str, Comparison] = {}
        if experiment.baseline and better(self.compared):
            baseline = experiment.baseline
            self.verdicts = compare(results, self.compared, baseline, folder)

        def state_of(run: RunResult, state: str) -> str:
            state = RUNNING if run.run.hash in running else state
            return f"{FAILED}: {run.error}" if state == FAILED else state

        # By row, the states of its runs, an error included.
        self.states = {
            row.row.name: [*map(state_of, row.runs, row.states)] for row in results
        }
        # Every column, followed by the paper's: (name, is the paper's).
        paper = dict.fromkeys(name for row in results for name in row.row.paper)
        self.columns = [
            (name, is_paper)
            for name in dict.fromkeys([*experiment.columns, *paper])
            for is_paper in (False, True)
            if name in (paper if is_paper else experiment.columns)
        ]

    def markdown(self) -> str:
        """The content of `table.md`."""
        experiment, results = self.experiment, self.results
        parts = [
            f"# {self.folder.name}",
            _attempt("plot", self._picture),
            self._table(),
            self._explanation(),
            experiment.note,
            "\n\n".join(_comparable(results)),
            _attempt("report", lambda: experiment.report(results) or "")
            if experiment.report
            else "",
            self._places(),
        ]
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"

    def _picture(self) -> str:
        if not self.experiment.plot:
            return ""
        if not importlib.util.find_spec("matplotlib"):
            say("no plot: matplotlib is missing; pip install matplotlib")
            return ""
        if not plots.draw(self.experiment.plot, self.results, self.folder):
            return ""
        return (
            '<picture><source media="(prefers-color-scheme: dark)" '
            f'srcset="plot-dark.png"><img alt="{self.folder.name}" src="plot.png">'
            "</picture>"
        )

    def _table(self) -> str:
        """The rows by group, in Markdown."""
        rows = [row for group in self.results.groups().values() for row in group]
        groups = [row.row.group for row in rows]
        columns: list[tuple[str, list[str]]] = []
        if any(groups):  # each group is named once
            pairs = zip(groups, ["", *groups], strict=False)
            named = ["" if group == previous else group for group, previous in pairs]
            columns.append(("group", named))
        names = [self._bold(row, _escaped(row.row.name)) for row in rows]
        columns.append(("row", names))
        # Names are aligned to the left, and numbers to the right.
        text_columns = [*range(len(columns))]
        for name, is_paper in self.columns:
            head = f"paper: {name}" if is_paper else header(name)
            columns.append((head, [self._cell(row, name, is_paper) for row in rows]))
        columns.append(("seeds", [str(row.states.count(DONE)) for row in rows]))
        if self.verdicts:
            text_columns.append(len(columns))
            verdicts = [_verdict(self.verdicts.get(row.row.name)) for row in rows]
            head = f"{self.compared} vs {self.experiment.baseline}"
            columns.append((head, verdicts))
        states = ["" if s == DONE else _escaped(s) for s in map(self._state, rows)]
        if any(states):
            text_columns.append(len(columns))
            columns.append(("state", states))
        heads, cells = zip(*columns, strict=True)
        return "\n".join(markdown_table(heads, zip(*cells, strict=True), text_columns))

    def _state(self, row: RowResult) -> str:
        counts = Counter(self.states[row.row.name])
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{count} {state}" for state, count in counts.items())

    def _bold(self, row: RowResult, text: str) -> str:
        """Bold for rows that are better than the baseline."""
        verdict = self.verdicts.get(row.row.name)
        return f"**{text}**" if verdict and verdict.verdict == BETTER else text

    def _cell(self, row: RowResult, column: str, is_paper: bool) -> str:
        if is_paper:
            figure = row.row.paper.get(column)
            return "" if figure is None else number_text(column, figure)
        if column in row.row.values:
            value = row.row.values[column]
            text = number_text(column, value) if is_number(value) else str(value)
            return _escaped(text)
        values = row.values(column)
        if not values:
            return ""
        text = mean_text(column, row.mean(column), row.deviation(column))
        if len(values) != row.states.count(DONE):
            text += f" ({len(values)})"
        return self._bold(row, text) if column == self.compared else text

    def _explanation(self) -> str:
        """Explains the numbers and the verdicts."""
        baseline, column = self.experiment.baseline, self.compared
        text = (
            "Means over seeds ± the sample standard deviation. `seeds` counts the "
            "finished runs; a number in brackets is that of the seeds of one figure, "
            "if another."
        )
        if baseline and not better(column):
            return f"{text} No rows are compared: no column says which value is better."
        if not self.verdicts:
            return text
        count = sum(
            not math.isnan(result.p_adjusted) for result in self.verdicts.values()
        )
        tests = (
            "a two-sided t-test over seeds (Welch's; for a row of one seed, with the "
            "standard deviation pooled over all rows that have more)"
        )
        if any(has_lines(row, column) for row in self.results):
            tests += (
                ", and over test lines both paired bootstrap and approximate "
                "randomisation between runs of the same seed (1,000 samples; the "
                "largest p of all pairs)"
            )
        return (
            f"{text}\n\n`{column}` is compared with the row `{baseline}` by {tests}. "
            "p is the largest of a row's tests, corrected by Benjamini-Hochberg for "
            f"{count} comparisons; a row is *better* or *worse* only if it is at most "
            f"{LEVEL:.0%}. Better rows are bold."
        )

    def _places(self) -> str:
        """The workdirs of every row, relative to the experiment's folder."""
        lines = [
            f"- {_escaped(row.row.name)}: "
            + ", ".join(f"[{p}]({p})" for p in map(self._place, row.runs))
            for row in self.results
        ]
        return "\n".join(["Workdirs of the rows:", "", *lines])

    def _place(self, run: RunResult) -> str:
        return os.path.relpath(run.path, self.folder)

    def rows_csv(self) -> Iterator[dict[str, Any]]:
        """A line for each row: of each column mean, std and n, and what was tested."""
        tested = ("verdict", "reason", "difference", "p_seeds", "p_adjusted")
        for row in self.results:
            name = row.row.name
            line = {"row": name, "group": row.row.group, "state": self._state(row)}
            for column, paper in self.columns:
                if paper:
                    line[f"{column} paper"] = row.row.paper.get(column)
                elif any(column in listed.row.values for listed in self.results):
                    line[column] = row.row.values.get(column)
                else:
                    line[f"{column} mean"] = row.mean(column)
                    line[f"{column} std"] = row.deviation(column)
                    line[f"{column} n"] = len(row.values(column))
            result = self.verdicts.get(name)
            line |= {key: getattr(result, key, None) for key in tested}
            line |= {f"p_{test}": result and result.p_lines.get(test) for test in TESTS}
            yield line | {"workdirs": " ".join(map(self._place, row.runs))}

    def runs_csv(self) -> Iterator[dict[str, Any]]:
        """A line for each run, with all columns."""
        for row in self.results:
            for run, state in zip(row.runs, self.states[row.row.name], strict=True):
                line = {"row": row.row.name, "seed": run.run.seed}
                line |= {"workdir": self._place(run), "state": state}
                for column in self.experiment.columns:
                    line[column] = row.row.values.get(column, run.value(column))
                yield line | {"machine": _machine(run)}


def _attempt(name: str, call: Callable[[], str]) -> str:
    """Calls a function of the experiment's file; an error becomes one line.

    Such functions may assume rows that are not finished; the table must not be lost.
    """
    try:
        return call()
    except Exception as e:
        line = " ".join(str(e).split())
        return f"The {name} could not be made: {type(e).__name__}: {line}"


def _escaped(text: str) -> str:
    return markdown_cell(text.replace("*", r"\*"))


def _verdict(result: Comparison | None) -> str:
    if result is None:
        return ""
    details = [result.reason] if result.reason else []
    if not math.isnan(result.p_adjusted):
        details.append(f"p = {result.p_adjusted:.2g}")
    return _escaped(result.verdict + (f" ({', '.join(details)})" if details else ""))


def _comparable(results: Results) -> list[str]:
    """Lists what the scores are comparable with, and runs that are not."""
    lines, texts = {}, {}
    for run in (run for row in results for run in row.runs):
        # Fields tell runs apart; the text that they name may have been edited.
        if text := read_json(run.path / TEXT):
            config, read = run.run.config, (text.get("prepared"), text.get("dev"))
            # `prepared` is of the subwords, too, which may be those of `init_from`.
            names = "init_from", "init_parts", "remap_vocabulary"
            start = [getattr(config.train, name) for name in names]
            fields = repr((config.data, config.task, start))
            first = texts.setdefault(fields, (read, run.path.name))
            if read != first[0]:
                lines[
                    f"**{run.path.name} was trained on other text than {first[1]}**, "
                    "though their `config.data` is the same: it was edited, or another "
                    "version prepared it. Train the old runs again, in a new --workdir."
                ] = None
        files = sorted((run.path / "scores").glob("*.json"))
        # A number before the ending is that of earlier scores of the set.
        sets = [f.stem for f in files if not f.stem.rpartition(".")[2].isdigit()]
        scores = {name: run.scores(name) for name in sets}
        comparable = {n: s for n, s in scores.items() if "compare_with" in s}
        lines |= dict.fromkeys(comparisons(comparable))
    return list(lines)


def _machine(run: RunResult) -> str:
    """Names the machine of a finished run: minutes differ between machines."""
    machine = run.outcome.get("machine", {})
    devices = f"{machine.get('devices')} {machine.get('device')}"
    cores = f"{machine.get('processor')}, {machine.get('cores')} cores"
    return f"{devices} ({cores})" if machine else ""


def _csv(rows: Iterator[dict[str, Any]]) -> str:
    """Encodes rows of the same keys; what is unknown stays empty."""
    lines = [
        # Only nan differs from itself.
        {key: None if value != value else value for key, value in row.items()}
        for row in rows
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


MILLIONS = {"parameters", "tokens"}  # columns, by the last part of their names
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
    digits = len(f"{value:.6g}".partition(".")[2])
    return f"{value:.{max(digits, _PRINTED.get(_key(column), 0))}f}"


def mean_text(column: str, mean: float, deviation: float) -> str:
    """A mean, with its standard deviation unless that is 0 or unknown."""
    if _key(column) == "flops":
        return number_text(column, mean)
    digits = _digits(column, mean)
    scale = 1e6 if _key(column) in MILLIONS else 1
    text = f"{mean / scale:,.{digits}f}"
    # Seeds hardly change how many tokens are trained on: ± 0.00 says nothing.
    smallest = 0.5 * 10**-digits if scale > 1 else 0
    spread = deviation / scale
    return f"{text} ± {spread:,.{digits}f}" if spread > smallest else text


def _digits(column: str, mean: float) -> int:
    _, digits = column_of(column)
    if digits is not None:
        return digits - (_key(column) == "perplexity" and abs(mean) >= 10)
    if not mean or not math.isfinite(mean):
        return 0
    if mean == int(mean) and abs(mean) >= 1e3:
        return 0
    # Four significant digits.
    return min(max(0, 3 - math.floor(math.log10(abs(mean)))), 6)


def _key(column: str) -> str:
    return column.rpartition(".")[2]
