"""Measures of single experiments are known once the experiment's file is loaded."""

import sys

import pytest

from t2t_jax.tools.experiment import command
from t2t_jax.tools.experiment.measures import MEASURES

MINE = """
from experiments.measures import heads
from t2t_jax import load_config
from t2t_jax.tools.experiment import Experiment, Measure, Row

def get_experiment():
    row = Row("mine", load_config("tiny"), measures=[Measure("heads")])
    return Experiment([row], ["heads.count"], plot=heads.plot, report=heads.report)
"""


@pytest.fixture
def all_measures(monkeypatch):
    """MEASURES as in a process that has not loaded any experiment."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("heads", "layer_costs", "path_lengths", "predict_loss"):
        monkeypatch.delitem(MEASURES, name, raising=False)
    return MEASURES


@pytest.mark.parametrize("name", ["heads", "scale", "table1", "positions", "mine"])
def test_what_rows_measure_is_in_the_table(name, all_measures, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    module = command.load(str(file) if name == "mine" else name)
    rows = command.define_experiment(module, {}).rows
    named = {measure.function for row in rows for measure in row.measures}
    assert named
    assert named <= all_measures.keys()
