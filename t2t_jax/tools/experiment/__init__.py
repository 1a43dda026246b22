"""Experiments: rows of a table, each a training run or a measurement.

`experiment.py` is what a file of `experiments/` is written with, `measures.py` what can
be measured of a trained model. `plan.py`, `queue.py` and `running.py` run the rows;
`results.py`, `statistics.py`, `tables.py` and `plots.py` show them.
"""

from t2t_jax.tools.experiment.experiment import Experiment, Measure, Row, with_fields

__all__ = ["Experiment", "Measure", "Row", "with_fields"]
