"""Experiments: rows of a table, each a training run or a measurement.

A file of `experiments/` is written with `experiment.py`; what can be measured of a
trained model is in `measures.py`. `running.py` trains and measures the rows,
`results.py` reads what they have written; `statistics.py`, `tables.py` and `plots.py`
show it.
"""

from t2t_jax.config import with_fields
from t2t_jax.tools.experiment.experiment import Experiment, Measure, Row

__all__ = ["Experiment", "Measure", "Row", "with_fields"]
