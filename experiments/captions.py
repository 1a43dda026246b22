"""What helps a small model on little text? One change at a time, judged on the dev set.

    python -m t2t_jax experiment captions --workdir=DIR --config.data.dir=FOLDER

with the files of Multi30k in FOLDER, as configs/multi30k.py says. The base is the
recipe `multi30k:half_hour`; each row changes one choice of it. 23 runs of 1,500 steps
take 17 minutes each on one CPU core, R-Drop twice that; start two processes.

What regularizes pays in longer runs only: `--changes=regularization --steps=3500`
trains the base and those rows for longer.

The scores are of all of `val`, so that nothing is chosen on a test set.
"""

from experiments import _texts
from t2t_jax.tools.experiment import Experiment, Row, with_fields

DEV = "val"
# By row: the fields that differ from those of the base.
RECIPE = {
    "sinusoid": {"model.positions": "sinusoid"},
    "relative": {"model.positions": "relative"},
    "post-norm": {"model.norm": "post", "model.positions": "sinusoid"},
    "RMS norm": {"model.norm_kind": "rms"},
    "SwiGLU": {"model.feed_forward": "swiglu", "model.hidden": 168},
    "6+2 layers": {"model.encoder_layers": 6, "model.decoder_layers": 2},
    "tied target": {"model.tied": "target"},
    "paper's schedule": {"train.schedule": "paper"},
    "half the batch": {"data.batch_tokens": 1_024},
    "twice the batch": {"data.batch_tokens": 4_096},
    "peak 0.002": {"train.peak_learning_rate": 0.002},
    "peak 0.006": {"train.peak_learning_rate": 0.006},
    "4,000 pieces": {"data.vocab_size": 4_000},
    "10,000 pieces": {"data.vocab_size": 10_000},
    "EMA": {"train.ema_decay": 0.998},
}
REGULARIZATION = {
    "no smoothing": {"train.label_smoothing": 0.0},
    "smoothing 0.2": {"train.label_smoothing": 0.2},
    "dropout 0.2": {"model.dropout": 0.2},
    "attention dropout": {"model.attention_dropout": 0.1},
    "activation dropout": {"model.activation_dropout": 0.1},
    "BPE-dropout": {"data.subword_dropout": 0.05},
    "R-Drop": {"train.loss": "r_drop"},
}
CHANGES = {
    "all": RECIPE | REGULARIZATION,
    "recipe": RECIPE,
    "regularization": REGULARIZATION,
}


def get_experiment(seeds=1, steps=1_500, changes="all"):
    """Builds the experiment.

    Args:
      seeds: of each row.
      steps: of every run.
      changes: the rows: recipe, regularization, or all.
    """
    rows = {"base": {}} | _texts.entry("changes", changes, CHANGES)
    changed = {
        "data.test": DEV,
        "train.warmup": max(1, steps // 9),
        "train.save_every": max(1, steps // 28),
    }
    base = _texts.short("multi30k:half_hour", steps, changed)
    return Experiment(
        [Row(name, with_fields(base, fields), seeds) for name, fields in rows.items()],
        columns=(f"{DEV}.bleu", f"{DEV}.chrf", f"{DEV}.perplexity", "minutes"),
        compared=f"{DEV}.bleu",
        baseline="base",
    )
