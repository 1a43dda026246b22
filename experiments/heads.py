"""What does each attention head do, and is it needed? (Michel et al. 2019)

    python -m t2t_jax experiment heads --workdir=DIR

Trains a model, describes what each head of its three attentions attends to, and
measures the BLEU and the dev loss without it. On two CPU cores about two minutes of
training and one of measuring. For real text (an hour of training, two minutes of
measuring):

    python -m t2t_jax experiment heads --workdir=DIR --text=multi30k \\
        --config.data.dir=FOLDER

with the files of Multi30k in FOLDER, as configs/multi30k.py says.
"""

from experiments import _texts
from experiments.measures.heads import plot, report
from t2t_jax import load_config
from t2t_jax.tools.experiment import Experiment, Measure, Row


def get_experiment(seeds=1, text="tiny", lines=200) -> Experiment:
    """`text` is a preset, `tiny` or `multi30k`; `lines` of dev and test are used."""
    return Experiment(
        rows=[
            Row(
                text,
                load_config(text),
                seeds=seeds,
                measures=[Measure("heads", {"lines": lines})],
            )
        ],
        columns=[
            *(f"{_texts.test_set(text)}.bleu", "dev.loss"),
            *("heads.bleu", "heads.count", "heads.needless", "heads.loss_needless"),
            "heads.prunable",
        ],
        plot=plot,
        report=report,
    )
