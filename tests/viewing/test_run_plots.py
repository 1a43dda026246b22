"""Plots of runs: what is read of their logs, and what is drawn of it."""

import math
from pathlib import Path

import numpy as np
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.tools.pages import command, run_plots
from t2t_jax.tools.pages.run_log import find_runs, read_run
from tests.viewing.logs import eventful_run, train, write_run


@pytest.fixture
def eventful(tmp_path):
    return eventful_run(tmp_path / "eventful")


def lines(run, kind, undone=False):
    return [s for s in run.segments if (s.kind, s.undone) == (kind, undone)]


def test_discarded_steps_are_lines_of_their_own_and_count_as_spent(eventful):
    run = read_run(eventful)
    (line,), (discarded,) = lines(run, "train"), lines(run, "train", undone=True)
    assert line.x["steps"] == [10, 20, 30, 40, 50, 60, 70]
    assert line.values["loss"] == [6.0, 5.0, 4.5, 4.0, 3.7, 3.5, 3.4]
    # From the point where they part.
    assert discarded.x["steps"] == [40, 50, 60]
    assert discarded.values["gradient_norm"] == [1.0, 1.0, 80.0]
    assert math.isnan(discarded.values["loss"][-1])
    # Six intervals before the rollback, then three that count.
    assert line.x["tokens"] == [4000.0 * n for n in (1, 2, 3, 4, 7, 8, 9)]
    assert line.x["hours"] == pytest.approx([n / 100 for n in (1, 2, 3, 4, 7, 8, 9)])
    assert lines(run, "dev")[0].x["tokens"] == [8000, 16000, 32000]
    events = [(e.kind, e.x["steps"], e.x["tokens"]) for e in run.events]
    assert events == [
        ("alarm", 57, 22800),
        ("alarm", 58, 23200),
        ("rollback", 40, 24000),
        ("restart", 30, 12000),
    ]


def test_tokens_of_an_interval_that_a_restart_cut_count_once(tmp_path):
    # Ended at 15 and continued: the line of step 20 counts steps 11 to 20.
    cut = [train(10, 3.0), train(15, 2.9, tokens=2000.0, seconds=18.0)]
    cut += [train(20, 2.8, seconds=18.0), train(30, 2.7)]
    (line,) = lines(read_run(write_run(tmp_path / "a", cut, starts=[0, 15])), "train")
    assert line.x["tokens"] == [4000, 6000, 8000, 12000]
    assert line.x["hours"] == pytest.approx([0.01, 0.015, 0.02, 0.03])


def test_half_a_line_is_waited_for_and_a_damaged_one_reported(tmp_path, capsys):
    good = [train(10, 3.0), train(20, 2.0)]
    running = write_run(tmp_path / "running", good, tail='{"step": 30, "ki')
    assert read_run(running).last_step == 20
    assert not capsys.readouterr().err
    damaged = write_run(tmp_path / "damaged", good, tail="\0\0\n[]\n3\n")
    assert read_run(damaged).last_step == 20
    err = capsys.readouterr().err
    assert all(f"metrics.jsonl, line {n} is damaged" in err for n in (3, 4, 5))


def test_old_logs_have_no_tokens(tmp_path):
    lines = [train(10, 3.0)]
    new = write_run(tmp_path / "new", lines)
    del lines[0]["tokens"]
    old = write_run(tmp_path / "old", lines)
    assert read_run(old).axes == ["steps", "hours"]
    assert [*run_plots.plot_data([old, new])["axes"]] == ["steps", "hours"]
    with pytest.raises(UserError, match=r"the log of .*old has no tokens"):
        run_plots.plot_data([new, old], x="tokens")


def test_workdirs_that_cannot_be_plotted(tmp_path, capsys):
    finished = write_run(tmp_path / "runs/one", [train(10, 3.0)])
    begun = write_run(tmp_path / "runs/begun", [])
    (tmp_path / "runs/nothing").mkdir()
    for folder, message in {
        "nowhere": "does not exist",
        "runs/nothing": "is not a workdir: it has no metrics.jsonl",
        "runs": r"is a folder of 2 runs and not a run.*--workdir='.*runs/\*'",
        "runs/begun": "holds no metrics yet",
    }.items():
        with pytest.raises(UserError, match=message):
            run_plots.plot_data(str(tmp_path / folder))
    assert [*find_runs(f"{tmp_path}/runs/*")] == [begun, finished]
    # Beside others, a run that has just begun does not stand in the way.
    assert [
        r["path"] for r in run_plots.plot_data([begun, finished, finished])["runs"]
    ] == [finished]
    assert "left out: " in capsys.readouterr().err


def test_smoothing_is_a_centred_mean():
    values = [5.0, 1.0, 3.0, math.nan, 7.0, 9.0, 2.0]
    assert run_plots.smoothed(values, 1)[:3] == values[:3]
    np.testing.assert_allclose(
        run_plots.smoothed(values, 3), [5, 3, 2, math.nan, 8, 6, 2]
    )
    # As many values each side, so that a straight line stays one, ends included.
    np.testing.assert_allclose(run_plots.smoothed([*range(9)], 5), range(9))


def test_the_figure_draws_every_curve(eventful):
    figure = run_plots.figure(eventful, smooth=3)
    loss, bleu = figure.axes[:2]
    drawn = {tuple(line.get_ydata()) for line in loss.get_lines()}
    raw = (6.0, 5.0, 4.5, 4.0, 3.7, 3.5, 3.4)
    assert raw in drawn
    assert tuple(run_plots.smoothed(raw, 3)) in drawn
    assert (5.1, 4.2, 3.6) in drawn  # dev
    upright = {line.get_xdata()[0] for line in loss.get_lines()}
    assert {30, 40} <= upright  # continued, went back
    assert (1.0, 7.5, 12.0) in {tuple(line.get_ydata()) for line in bleu.get_lines()}
    assert figure._repr_png_().startswith(b"\x89PNG")  # as a notebook shows it


def test_an_earlier_file_is_kept(tmp_path, capsys):
    file = tmp_path / "plot.svg"
    for content in (b"1", b"2", b"2", b"3"):
        command.write_file(file, content)
    names = [f"{tmp_path}/plot{name}.svg" for name in ("", ".1", ".2")]
    assert sorted(map(str, tmp_path.iterdir())) == sorted(names)
    assert [Path(name).read_bytes() for name in names] == [b"3", b"1", b"2"]
    assert "plot.2.svg" in capsys.readouterr().err
