"""Warm-up, peak learning rate, label smoothing and dropout, one at a time.

    python -m t2t_jax experiment schedule --workdir=DIR

Around `configs/tiny.py`, whose regularization suits a corpus that a model cannot
memorize in 600 steps. 14 runs of 4 minutes on one CPU core. The paper's own figures
for smoothing and dropout are in `table3.py`.
"""

from statistics import fmean

from t2t_jax import load_config
from t2t_jax.config import from_config_dict
from t2t_jax.tools.experiment import Experiment, Row, with_fields
from t2t_jax.training.schedules import peak

COLUMN = "test.bleu"


def get_experiment(seeds=3, row_seeds=1):
    """Builds the experiment.

    Args:
      seeds: of the base config.
      row_seeds: of each other row.
    """
    base = from_config_dict(load_config("tiny"))
    usual = {
        "train.warmup": base.train.warmup,
        "train.peak_learning_rate": peak(base),
        "train.label_smoothing": base.train.label_smoothing,
        "model.dropout": base.model.dropout,
    }
    values = {
        "train.warmup": [base.train.warmup // 4, base.train.warmup // 2, 400],
        "train.peak_learning_rate": [peak(base) * f for f in (0.25, 0.5, 2.0, 4.0)],
        "train.label_smoothing": [0.0, 0.2],
        "model.dropout": [0.1, 0.2],
    }
    rows = [Row("base", base, seeds, values=usual, group="base")]
    for field, tried in values.items():
        for value in tried:
            # By default the peak follows from the warm-up: here it stays.
            peaks = (
                {"train.peak_learning_rate": peak(base)} if "warmup" in field else {}
            )
            factor = field.partition(".")[2]
            rows.append(
                Row(
                    f"{factor}={value:.3g}",
                    with_fields(base, peaks | {field: value}),
                    row_seeds,
                    values={field: value},
                    group=factor,
                )
            )
    return Experiment(
        rows,
        columns=(COLUMN, "unseen.bleu", "dev.loss", "train.loss", "minutes"),
        compared=COLUMN,
        baseline="base",
        note="dev.loss is of targets without smoothing, train.loss of smoothed ones.",
        plot=plot,
    )


def plot(results):
    """Draws BLEU against each factor, base included."""
    from matplotlib.figure import Figure

    from t2t_jax.tools.experiment import plots

    base = results["base"]
    factors = base.row.values
    figure = Figure(figsize=(14, 3.8))
    panels = figure.subplots(1, len(factors), sharey=True)
    for ax, field in zip(panels, factors, strict=True):
        points = sorted(
            (result.row.values[field], result.values(COLUMN))
            for result in results
            if field in result.row.values and result.values(COLUMN)
        )
        x = [value for value, _ in points]
        mean, low, high = (
            [reduce(scores) for _, scores in points] for reduce in (fmean, min, max)
        )
        # Warm-up and learning rate differ by factors of 2, and are never 0.
        log_x = field.startswith("train.") and "smoothing" not in field
        name = field.partition(".")[2]
        plots.lines({name: (x, mean, low, high)}, name, COLUMN, log_x=log_x, axes=ax)
        ax.label_outer()
    return figure
