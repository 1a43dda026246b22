"""Table 2: the Transformer against earlier models, at equal size and at equal cost.

    python -m t2t_jax experiment table2 --workdir=DIR
    python -m t2t_jax experiment table2 --workdir=DIR --text=multi30k \\
        --config.data.dir=FOLDER

Each model has the number of parameters of the Transformer. In the first group all train
for the same steps; in the second, for the same FLOPs. On the built-in corpus, 15 runs
of 90 to 200 seconds on two CPU cores: three quarters of an hour.
`--models=transformer,lstm,conv,bytenet,neural_gpu` adds the others.
"""

import functools
import math

from experiments import _texts
from t2t_jax.config import from_config_dict
from t2t_jax.costs import step_costs
from t2t_jax.data.shapes import Shape
from t2t_jax.model.model import build
from t2t_jax.tools.experiment import Experiment, Measure, Row, with_fields
from t2t_jax.training.schedules import peak

# BLEU on newstest2014 English-German, and training FLOPs; ByteNet's are not given.
PAPER = {
    "transformer": {"bleu": 27.3, "flops": 3.3e18},
    "lstm": {"bleu": 24.6, "flops": 2.3e19},  # GNMT + RL
    "conv": {"bleu": 25.16, "flops": 9.6e18},  # ConvS2S
    "bytenet": {"bleu": 23.75},
}
NOTE = (
    "The paper's figures are of published systems of different sizes, trained on WMT "
    "2014 English-German: compare the order of the models, not the numbers. FLOPs are "
    "counted here, of matrix products; the paper's are training time times the speed "
    "of the chips."
)
# Tokens of a row of one sentence, as bucketed models have them: they are planned with
# this guess, and the table's FLOPs are those of the batches that there were.
BUCKETED_LENGTH = 32


def get_experiment(seeds=3, text="tiny", steps=0, models="transformer,lstm,conv"):
    """Builds the experiment.

    Args:
      text: tiny or multi30k.
      steps: of the first group; 0 for 600, or on multi30k for 4,000.
      models: comma-separated; the first is the one that the others are matched with.
    """
    bleu = f"{_texts.test_set(text)}.bleu"
    reference_kind, *matched_kinds = models.split(",")
    reference = config_of(reference_kind, text, steps)
    configs = {reference_kind: reference}
    configs |= {
        kind: matched(config_of(kind, text, steps), reference) for kind in matched_kinds
    }
    options = {"seeds": seeds, "measures": [Measure("speed")]}
    rows = []
    for kind, config in configs.items():
        paper = {
            {"bleu": bleu}.get(name, name): value
            for name, value in PAPER.get(kind, {}).items()
        }
        rows.append(Row(kind, config, paper=paper, group="equal steps", **options))
    for kind, config in configs.items():
        config = at_equal_flops(config, reference)
        rows.append(Row(f"{kind}.flops", config, group="equal FLOPs", **options))
    return Experiment(
        rows,
        columns=(
            *(bleu, "dev.loss", "parameters", "steps", "flops", "tokens", "minutes"),
            "speed.sentences_per_second",
        ),
        compared=bleu,
        baseline=reference_kind,
        note=NOTE,
        fixed=("model.*", "train.*", "data.*vocab*", "data.batch*", "data.row_length"),
        plot=lambda results: plot(results, bleu, reference_kind),
    )


def config_of(kind, text, steps):
    """Returns the preset of a model on a text."""
    name = text if kind == "transformer" else f"{kind}:{text}"
    return from_config_dict(_texts.preset(name, text, steps))


@functools.cache
def model_of(config):
    """Builds a config's model."""
    return build(config.model, *config.data.vocab_sizes)


def parameters(config):
    """Counts the parameters of a config's model."""
    return model_of(config).count()


def nearest_width(count, target, start, multiple=2):
    """Returns the width at which `count(width)` is nearest to `target`.

    Args:
      count: increases with the width.
      start: where the search begins.
      multiple: widths are multiples of it.
    """
    width = multiple * max(1, round(start / multiple))
    step = multiple if count(width) < target else -multiple
    error = abs(count(width) - target)
    while width + step > 0 and (new := abs(count(width + step) - target)) < error:
        width, error = width + step, new
    return width


def matched(config, reference):
    """Returns the config with the width that has the parameters of `reference`."""

    def count(width):
        return parameters(with_fields(config, {"model.width": width}))

    target, width = parameters(reference), config.model.width
    # Parameters grow with the width's square, apart from the embeddings.
    start = width * (target / count(width)) ** 0.5
    # A Neural GPU has few channels: a step of 2 is over 2% of its parameters.
    multiple = 1 if config.model.kind == "neural_gpu" else 2
    width = nearest_width(count, target, start, multiple)
    return with_fields(config, {"model.width": width})


@functools.cache
def step_flops(config):
    """Returns the FLOPs of a training step of `batch_tokens` on each side."""
    data = config.data
    length = data.row_length if data.batching == "packed" else BUCKETED_LENGTH
    shape = Shape(data.batch_tokens // length, length, length)
    flops = step_costs.model_flops(model_of(config), config, shape)
    if not math.isfinite(flops):
        raise ValueError(
            f"the FLOPs of a step of {config.model.kind!r} depend on values, so they "
            "cannot be matched; leave it out of --models"
        )
    return flops


def at_equal_flops(config, reference):
    """Returns the config, trained with the FLOPs of `reference`.

    The schedule is stretched: warm-up keeps its share of the steps, and the peak stays.
    """
    if config == reference:
        return config
    train = config.train
    ratio = step_flops(reference) / step_flops(config)
    steps, save_every = on_grid(ratio * reference.train.steps, train.save_every)
    changes = {
        "steps": steps,
        "save_every": save_every,
        "warmup": max(1, round(ratio * train.warmup)),
        "peak_learning_rate": peak(config),
    }
    return with_fields(config, {f"train.{k}": v for k, v in changes.items()})


def on_grid(steps, save_every):
    """Returns steps within 0.5% of a number, and their interval of checkpoints.

    The last checkpoint is averaged only if the interval divides the steps. It is the
    one nearest to `save_every` that does.
    """
    for interval in sorted(range(1, 2 * save_every), key=lambda i: abs(i - save_every)):
        rounded = interval * max(1, round(steps / interval))
        if abs(rounded - steps) <= 0.005 * steps:
            return rounded, interval
    return max(1, round(steps)), 1


def plot(results, bleu, base):
    """Draws BLEU of the models, in both groups."""
    from t2t_jax.tools.experiment import plots

    return plots.bars(results, bleu, title="BLEU at equal parameters", baseline=base)
