"""Tables and plots of experiments, whatever part of them is finished."""

import csv
import dataclasses
import json
import re

import matplotlib as mpl
import pytest
from matplotlib import pyplot

from t2t_jax.tools.experiment import Experiment, plots, tables, with_fields
from tests.experiment.made_up import row, write_rows

COLUMNS = ["layers", "parameters", "test.perplexity", "test.bleu", "dev.loss"]
SCORES = {"base": [50.0, 50.1, 49.9], "good": [55.0, 55.1, 55.2], "half": [54.95]}


@pytest.fixture
def results(tmp_path):
    rows = [
        row("base", paper={"test.perplexity": 4.92, "flops": 3.3e18}),
        row("good", group="(A)", values={"layers": 2}),
        row("half", group="(A)", values={"layers": 3}),
        row("a|b", group="(B)"),
        row("new", seeds=1, group="(B)"),
    ]
    results_read = write_rows(rows, tmp_path, SCORES)
    failed = results_read["a|b"].runs[1].path
    failed.mkdir()
    error = {"error": "ValueError: no | such\nfield"}
    (failed / "failure.json").write_text(json.dumps(error))
    return write_rows(rows, tmp_path, {})  # read again: results keep what they read


def experiment(results, **options):
    rows = [result.row for result in results]
    return Experiment(rows, COLUMNS, **{"baseline": "base"} | options)


def rows_of(markdown):
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    cells = [line.replace("\\|", "¦")[2:-2].split(" | ") for line in lines]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


def test_a_table_of_what_is_finished(results, tmp_path):
    running = {results["new"].runs[0].run.hash}
    folder = tmp_path / "shapes"
    noted = experiment(results, note="A note.", report=lambda r: "A report.")
    text = tables.write_report(noted, results, folder, running)
    assert (folder / "table.md").read_text() == text
    base, good, half, failed, new = rows_of(text)
    assert base["test.perplexity"] == "2.000 ± 0.004"
    assert base["paper: test.perplexity"] == "4.92"
    assert (base["layers"], good["layers"]) == ("", "2")
    assert [r["group"] for r in (base, good, half, failed)] == ["", "(A)", "", "(B)"]
    assert good["test.perplexity vs base"].startswith("better (p = ")
    assert (good["seeds"], half["seeds"], new["seeds"]) == ("3", "1", "0")
    assert half["state"] == "1 done, 2 left"
    assert failed["state"] == "2 left, 1 failed: ValueError: no ¦ such"
    assert (new["state"], new["test.bleu"]) == ("running", "")
    for line in ("A note.", "A report.", "test: compare with scores of the same lines"):
        assert f"\n\n{line}\n\n" in text
    for result in results:
        for run in result.runs:
            assert f"[../runs/{run.path.name}](../runs/{run.path.name})" in text


def test_runs_of_text_that_was_edited_are_told(tmp_path):
    def of(name, **fields):
        made = row(name)
        return dataclasses.replace(made, config=with_fields(made.config, fields))

    parent = {"train.init_from": "parent"}
    rows = [
        of("base"),
        of("of other data", **{"data.max_length": 9}),
        of("with the parent's subwords", **parent),
        of("with its encoder", **parent, **{"train.init_parts": "encoder"}),
    ]
    texts = [("a", "d"), ("a", "e"), ("b", "d")], *([(x, "d")] * 3 for x in "cfg")
    results = write_rows(rows, tmp_path, dict.fromkeys([r.name for r in rows], [1] * 3))
    for result, hashes in zip(results, texts, strict=True):
        for run, (prepared, dev) in zip(result.runs, hashes, strict=True):
            text = json.dumps({"prepared": prepared, "dev": dev})
            (run.path / "training_text.json").write_text(text)
    table = tables.write_report(experiment(results), results, tmp_path / "shapes")
    first, *others = (run.path.name for run in results["base"].runs)
    told = re.findall(r"\*\*(.*) was trained on other text than (.*)\*\*", table)
    assert told == [(other, first) for other in others]


def test_tables_for_programs(results, tmp_path):
    folder = tmp_path / "shapes"
    tables.write_report(experiment(results), results, folder)
    with open(folder / "table.csv") as f:
        lines = {line["row"]: line for line in csv.DictReader(f)}
    assert float(lines["good"]["test.bleu mean"]) == results["good"].mean("test.bleu")
    assert (lines["good"]["test.bleu n"], lines["half"]["test.bleu std"]) == ("3", "")
    assert lines["good"]["verdict"] == "better"
    assert 0 < float(lines["good"]["p_seeds"]) < float(lines["good"]["p_adjusted"])
    with open(folder / "runs.csv") as f:
        runs = list(csv.DictReader(f))
    assert len(runs) == 13
    (run,) = [r for r in runs if (r["row"], r["seed"]) == ("good", "1")]
    assert float(run["test.perplexity"]) == 100 / 55.1
    assert (run["layers"], run["dev.loss"]) == ("2", "2.5")


def test_functions_that_fail_lose_no_table(results, tmp_path):
    def plot(results):
        raise ValueError("no\nvalues")

    failing = experiment(results, report=lambda results: results["nobody"], plot=plot)
    text = tables.write_report(failing, results, tmp_path / "shapes")
    assert "\n\nThe report could not be made: KeyError: 'nobody'\n\n" in text
    assert "\n\nThe plot could not be made: ValueError: no values\n\n" in text
    assert len(rows_of(text)) == 5


def test_plots_in_two_styles_leave_no_trace(results, tmp_path):
    pyplot.switch_backend("agg")
    settings, figures = dict(mpl.rcParams), pyplot.get_fignums()

    def plot(results):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(4, 2))
        assert plots.bars(results, "test.bleu", baseline="base", axes=left) is figure
        series = {"a": ([1, 4, 16], [3, 2, 1], [2, 1, 0], [4, 3, 2]), "b": ([1], [1])}
        plots.lines(series, "heads", "loss", log_x=True, axes=right)
        names = [label.get_text() for label in left.get_yticklabels()]
        assert names == ["base", "good", "half"]  # the others have no values
        assert list(right.get_xticks()) == [1, 4, 16]
        return figure

    assert plots.draw(plot, results, tmp_path)
    assert dict(mpl.rcParams) == settings
    assert pyplot.get_fignums() == figures
    assert pyplot.imread(tmp_path / "plot.png")[0, 0, :3].min() == 1
    assert pyplot.imread(tmp_path / "plot-dark.png")[0, 0, :3].max() < 0.1
