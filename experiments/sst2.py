"""What is a trained encoder worth for sentiment (SST-2, 6,920 sentences)?

    python -m t2t_jax experiment sst2 --workdir=DIR --config.data.dir=FOLDER \\
        --translator=START --masked=START

FOLDER holds train.tsv and test.tsv: lines of a sentence, a tab and its label. test.tsv
is the 872 sentences that GLUE calls dev, since its test labels are not public; nothing
was chosen on them.

`translator` is the workdir of a translator from English, such as that of
`configs/multi30k.py`, and `masked` that of an English `configs/mlm.py`. Their encoders
and tokens are taken over, and trained further ("tuned") or kept ("frozen": only the
output layer learns). Rows without a workdir are left out. Each of the 3 seeds of a row
takes 1 to 2 minutes on two CPU cores.

Not ours, on the same sentences and words: the majority of the training labels is right
in 50.9%; scikit-learn's logistic regression over tf-idf in 79.1% (words) and 79.5%
(words and pairs of words), its regularization chosen on a tenth of train.tsv.
"""

from t2t_jax import load_config
from t2t_jax.tools.experiment import Experiment, Row, with_fields

FROZEN = {"train.freeze": "embedding,encoder", "train.peak_learning_rate": 0.005}


def get_experiment(seeds=3, steps=500, translator="", masked=""):
    """Builds the experiment.

    Args:
      seeds: of each row.
      steps: of every run.
      translator: the workdir of a translator; empty: none.
      masked: the workdir of a masked language model; empty: none.
    """
    rows = []

    def add(name, preset, changes):
        text = {"data.train": "train", "data.dev": "", "data.test": "test"}
        config = with_fields(load_config(preset), text | {"train.steps": steps})
        rows.append(Row(name, with_fields(config, changes), seeds=seeds))

    add("scratch", "classify", {})
    for name, start in (("translator", translator), ("masked", masked)):
        if start:
            add(f"{name}, tuned", f"classify:{start}", {})
            add(f"{name}, frozen", f"classify:{start}", FROZEN)
    return Experiment(
        rows=rows,
        columns=[
            *("test.accuracy", "test.macro_f1", "test.ece", "test.nll"),
            *("parameters", "minutes"),
        ],
        compared="test.accuracy",
        baseline="scratch",
        note=(
            "Logistic regression over tf-idf of words has accuracy 79.1, of words and "
            "pairs of words 79.5; the majority label 50.9."
        ),
    )
