"""What is each part of the Transformer worth?

Trains the tiny Transformer on the built-in corpus, and again with one part taken away:

    python -m t2t_jax experiment ablate --workdir=DIR

About 25 minutes on two CPU cores: 2 minutes a row, and two more seeds of the baseline,
whose spread says which differences are none. Every row has the data, the steps and the
seeds of the baseline; nothing is tuned again.

Rows are compared by the perplexity of the test set, which sees every token and needs no
search, so small differences show in it before they show in BLEU. It sees averaging too,
because the averaged parameters are scored. Label smoothing is the exception: it raises
perplexity by its definition (section 5.4), so judge that row by BLEU.
"""

from experiments import ladder
from t2t_jax import load_config
from t2t_jax.tools.experiment import Experiment, Row, with_fields
from t2t_jax.tools.experiment.plots import bars

# The part, and what takes it away.
PARTS = {
    "positions": {"model.positions": "none"},
    "residual connections": {"model.residual": False},
    "normalization": {"model.norm_kind": "none"},
    "1/sqrt(d_k)": {"model.attention": "unscaled"},
    "tied embeddings": {"model.tied": "none"},
    "label smoothing": {"train.label_smoothing": 0.0},
    "averaging": {"decode.average": 1},
}


def get_experiment(seeds=3, row_seeds=1, steps=600, base="tiny"):
    """Builds the experiment.

    Args:
      seeds: of the baseline.
      row_seeds: of each other row.
      steps: of every run.
      base: the config of the baseline.
    """
    config = with_fields(load_config(base), {"train.steps": steps})
    rows = [Row("base", config, seeds=seeds)]

    def add(name, changes, group):
        changed = with_fields(config, changes)
        rows.append(Row(name, changed, seeds=row_seeds, group=group))

    for part, changes in PARTS.items():
        add(f"no {part}", changes, "without a part")
    # The paper's schedule falls from the end of the warm-up on, so without a warm-up it
    # would train at a fraction of the rate. A constant rate separates the two.
    peak = config.train.peak_learning_rate
    peak = peak or (config.model.width * config.train.warmup) ** -0.5
    constant = {"train.schedule": "constant", "train.peak_learning_rate": peak}
    add("constant rate", constant, "warm-up")
    add("constant rate, no warm-up", constant | {"train.warmup": 1}, "warm-up")
    add("pre-norm", {"model.norm": "pre"}, "in another place")
    return Experiment(
        rows=rows,
        columns=[
            *("test.bleu", "unseen.bleu", "test.perplexity", "dev.perplexity"),
            *("parameters", "minutes"),
        ],
        compared="test.perplexity",
        baseline="base",
        note=(
            "Label smoothing raises perplexity by its definition (section 5.4): judge "
            "the row without it by BLEU."
        ),
        plot=lambda results: bars(
            results, "test.bleu", title="BLEU without a part", baseline="base"
        ),
        report=lambda results: ladder.report(results, "test.perplexity", "test.bleu"),
    )
