"""Scaling laws: how the loss falls with parameters, data and compute.

    python -m t2t_jax experiment scale --workdir=DIR

A grid of widths and steps is trained; L(N, D) = E + A N^-alpha + B D^-beta is fitted
to the dev loss; the loss of a larger run is predicted, stored, and only then that run
is trained. 13 runs: 12 minutes on two CPU cores.

Held: 2 layers with pre-norm, hidden = 4 x width, batches, dropout. The learning rate
peaks at (width * 200)^-0.5, whatever the steps, after a fifth of them, and falls
linearly to 0 at the end of each run. The grid tunes none of it.
"""

from experiments import _texts
from experiments.measures.scaling import plot, report
from t2t_jax.model.model import build
from t2t_jax.tools.experiment import Experiment, Measure, Row

# Heads of 16 or 32 by width.
HEADS = {32: 2, 48: 3, 64: 2, 96: 3, 128: 4, 160: 5, 192: 6}
# text -> widths and steps of the grid, width and steps of the larger run.
GRIDS = {
    "tiny": ((32, 48, 64, 96), (400, 800, 1_600), (128, 2_400)),
    "multi30k": ((32, 48, 64, 96), (1_000, 2_000, 4_000), (128, 6_000)),
}


def get_experiment(seeds=1, text="tiny"):
    """Builds the experiment.

    Args:
      seeds: of each run of the grid.
      text: tiny, the built-in corpus; or multi30k, of --config.data.dir=FOLDER.
    """
    widths, steps, (width, most_steps) = _texts.entry("text", text, GRIDS)
    grid = [
        trained(f"d{d}-{s}", config_of(text, d, s), seeds, "grid")
        for d in widths
        for s in steps
    ]
    larger = config_of(text, width, most_steps)
    arguments = {"parameters": count(larger), "steps": most_steps}
    prediction = Row(
        "prediction",
        measures=[Measure("predict_loss", arguments)],
        needs=[row.name for row in grid],
        group="larger",
    )
    # Trained only when the prediction is stored.
    largest = trained("largest", larger, 1, "larger", needs=["prediction"])
    return Experiment(
        [*grid, prediction, largest],
        columns=(
            *("parameters", "without_embeddings", "tokens", "flops", "dev.loss"),
            *("predict_loss.loss", "minutes"),
        ),
        fixed=("model.*", "train.steps", "data.*vocab*"),
        note="dev.loss is in nats a subword, without label smoothing.",
        plot=plot,
        report=report,
    )


def config_of(text, width, steps):
    """The config of one run: its schedule ends with its steps."""
    changes = {
        "model.layers": 2,
        # Post-norm, the paper's, needs more steps the wider the model is.
        "model.norm": "pre",
        "model.width": width,
        "model.heads": HEADS[width],
        "model.hidden": 4 * width,
        "data.batch_tokens": 1_024,
        "data.test": "",
        "train.schedule": "linear",
        "train.warmup": steps // 5,
        "train.peak_learning_rate": (width * 200) ** -0.5,
        "train.save_every": steps,
    }
    return _texts.short(text, steps, changes)


def trained(name, config, seeds, group, needs=()):
    """A row that is trained."""
    table = config.data.vocab_size * config.model.width
    values = {"width": config.model.width, "without_embeddings": count(config) - table}
    return Row(name, config, seeds, needs=needs, values=values, group=group)


def count(config):
    """Returns the number of parameters, with those of the one embedding table."""
    return build(config.model, config.data.vocab_size).count()
