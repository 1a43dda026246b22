"""`python -m t2t_jax experiment`: rows of two steps, and what is refused."""

import csv

import pytest

from t2t_jax import load_config
from t2t_jax.config import from_config_dict
from t2t_jax.costs import chips
from t2t_jax.model.model import build
from t2t_jax.tools.experiment import Measure, Row, estimates
from tests.experiment.made_up import write_experiment


@pytest.fixture
def experiment(commands, text, tmp_path):
    """Runs the command on a file of the user's own."""
    file = write_experiment(
        tmp_path,
        text,
        data={"dev": "", "test": ""},
        train={"log_every": 1, "save_every": 2, "dev_lines": 0},
        decode={"beam": 1, "average": 1, "extra_length": 1},
    )

    def run(*arguments, name=file):
        flag = f"--workdir={tmp_path}/work"
        return commands("experiment", *([name] if name else []), flag, *arguments)

    return run


def test_rows_are_trained_shown_and_not_trained_again(experiment, tmp_path):
    folder = tmp_path / "work" / "mine"
    process = experiment("--count=1", "--broken")
    assert process.returncode == 2
    assert "2 left; the first run will tell" in process.stderr
    assert "run 1 of 2: " in process.stderr
    assert "1 done, 1 failed\nfailed: " in process.stderr
    assert "nowhere" in process.stderr.partition("\nfailed: ")[2]
    assert process.stderr.endswith("error: some rows failed; --retry runs them again\n")
    assert process.stdout == (folder / "table.md").read_text() + "\n"
    for name in ("plan.json", "plot.png", "plot-dark.png", "runs.csv"):
        assert (folder / name).stat().st_size > 0
    with (folder / "table.csv").open() as file:
        states = {row["row"]: row["state"] for row in csv.DictReader(file)}
    assert states["seed=3"] == "done"
    assert states["broken"].startswith("failed: nowhere is not a workdir")
    times_before = {
        path: path.stat().st_mtime_ns for path in folder.parent.glob("runs/*/*")
    }
    assert len(times_before) > 5
    (folder / "table.md").unlink()
    second = experiment("--steps=2")
    assert "1 done, 1 failed\n" in second.stderr
    assert "run 1 of 2" not in second.stderr
    assert (folder / "table.md").exists()
    times_after = {
        path: path.stat().st_mtime_ns for path in folder.parent.glob("runs/*/*")
    }
    assert times_after == times_before


def test_a_dry_run_forecasts_and_measures_only_if_asked(monkeypatch):
    base = load_config("tiny", train={"steps": 6_000})
    rows = [Row("a", base, seeds=2), Row("b", needs=["a"], measures=[Measure("speed")])]
    monkeypatch.setattr(chips, "chip_here", lambda _: ("h100", chips.CHIPS["h100"]))
    monkeypatch.setattr(estimates.forecast, "measure_step", None)
    lines = estimates.dry_run(rows).splitlines()
    trained, measured, total = map(str.split, lines[1:4])
    count = build(from_config_dict(base).model, 3_000).count()
    assert trained[:4] == ["a", "2", f"{count:,}", "6,000"]
    assert measured == ["b", "1", "measures", "speed"]
    # Two seeds: 5 checkpoints to average, the best one, and two states.
    disk = 2 * 4 * count * (5 + 1 + 2 * 3) / 2**30
    assert float(total[3]) == pytest.approx(disk, rel=0.01)
    monkeypatch.setattr(estimates.forecast, "measure_step", lambda *_: 0.6)
    lines = estimates.dry_run(rows, measure=True).splitlines()
    assert lines[1].split()[4:6] == ["600.0", "2"]  # milliseconds, hours
