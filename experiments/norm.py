"""At which depth does post-norm stop training, and does warm-up help?

    python -m t2t_jax experiment norm --workdir=DIR

Narrow models of 6, 12 and 24 layers a side on the built-in corpus: normalization after
each residual sum as in the paper ("post"), before each sub-layer ("pre"), and after
each sum and once more at the end ("post_final"); with a warm-up of 100 steps and with
none. 18 runs of 200 steps, of 1 to 3 minutes on two CPU cores: 40 minutes.

Xiong et al. 2020 ("On Layer Normalization in the Transformer Architecture") explain why
post-norm needs the warm-up: its gradients are large near the output at the start.
"""

import numpy as np

from t2t_jax import load_config
from t2t_jax.io.tables import markdown_table
from t2t_jax.tools.experiment import Experiment, Row, with_fields

NORMS = ("post", "pre", "post_final")


def get_experiment(seeds=1, depths="6,12,24", warmups="100,1", steps=200):
    """Builds the experiment.

    Args:
      depths: layers of each side, comma-separated.
      warmups: steps of warm-up, comma-separated; 1 is none.
    """
    base = load_config(
        "tiny",
        model={"width": 64, "hidden": 256},
        train={"steps": steps, "log_every": 10, "eval_every": steps, "dev_lines": 0},
    )
    # The same peak with and without warm-up.
    base.train.update(save_every=steps, peak_learning_rate=0.003)
    base.data.update(batch_tokens=1_024, test="")
    rows = []
    for layers in map(int, depths.split(",")):
        for norm in NORMS:
            for warmup in map(int, warmups.split(",")):
                fields = {"layers": layers, "norm": norm}
                changes = {f"model.{name}": value for name, value in fields.items()}
                rows.append(
                    Row(
                        f"{norm}.layers={layers}.warmup={warmup}",
                        with_fields(base, changes | {"train.warmup": warmup}),
                        seeds,
                        values=fields | {"warmup": warmup},
                        group=f"{layers} layers",
                    )
                )
    return Experiment(
        rows,
        columns=("dev.loss", "train.loss", "train.gradient_norm", "minutes"),
        plot=plot,
        report=report,
    )


def curve(result, metric):
    """Returns the logged steps, and a metric there: its mean, least and greatest."""
    by_step = {}
    for run in result.runs:
        for entry in run.metrics:
            # None: not finite, as after divergence.
            if entry["kind"] == "train" and entry.get(metric) is not None:
                by_step.setdefault(entry["step"], []).append(entry[metric])
    steps = sorted(by_step)
    values = [by_step[step] for step in steps]
    reduced = [[reduce(v) for v in values] for reduce in (np.mean, min, max)]
    return steps, *reduced


def report(results):
    """Lists the gradient norms at the start and the losses, as a table."""
    head = ("row", "gradient norm, first steps", "loss, first", "lowest", "last")
    cells = []
    for result in results:
        norms, losses = (curve(result, m)[1] for m in ("gradient_norm", "loss"))
        if norms and losses:
            numbers = norms[0], losses[0], min(losses), losses[-1]
            cells.append([result.row.name, *map("{:.2f}".format, numbers)])
    return "\n".join(markdown_table(head, cells))


def plot(results):
    """Draws the training loss against steps, one panel for each depth."""
    from matplotlib.figure import Figure

    from t2t_jax.tools.experiment import plots

    groups = results.groups()
    figure = Figure(figsize=(3 + 3.6 * len(groups), 4.2))
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for ax, (group, rows) in zip(panels, groups.items(), strict=True):
        series = {}
        for result in rows:
            values = result.row.values
            label = f"{values['norm']}, warm-up {values['warmup']}"
            series[label] = curve(result, "loss")
        plots.lines(series, "step", "training loss", title=group, axes=ax)
        ax.label_outer()
        if ax is not panels[-1] and ax.get_legend():
            ax.get_legend().remove()  # all panels have the same curves
    return figure
