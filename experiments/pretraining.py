"""What is pre-training on one-sided text worth to a translator with little text?

    python -m t2t_jax experiment pretraining --workdir=DIR --config.data.dir=FOLDER \\
        --masked=START --spans=START

FOLDER holds train.en and train.de, such as 5,000 pairs of Multi30k, val.* and
test_2016_flickr.*. `masked` is the workdir of a `configs/mlm.py` of both languages:
its embeddings, or its encoder too, begin a translator. `spans` is that of a Transformer
that restored spans of the same text, whose decoder is taken over as well:

    python -m t2t_jax.main --config=configs/mlm.py --workdir=START \\
        --config.data.train=FILE --config.data.dev=FILE
    python -m t2t_jax.main --config=configs/small.py --workdir=START \\
        --config.task.kind=text_to_text --config.data.train=spans:FILE

Rows without a workdir are left out. The row "scratch" has a tokenizer of its own, of
the 5,000 pairs; "scratch, their pieces" that of `masked`: so that the worth of the
pieces is seen apart from that of the weights. Each of the 3 seeds of a row takes about
4 minutes on two CPU cores.
"""

from experiments import _texts
from t2t_jax.tools.experiment import Experiment, Row, with_fields

# In the order of what is taken over.
PARTS = {
    "embedding of masked": ("masked", "embedding"),
    "encoder of masked": ("masked", "encoder,embedding"),
    "encoder of spans": ("spans", "encoder,embedding"),
    "all of spans": ("spans", "encoder,decoder,embedding"),
}


def get_experiment(seeds=3, steps=800, masked="", spans=""):
    """Builds the experiment.

    Args:
      seeds: of each row.
      steps: of every run.
      masked: the workdir of a masked language model; empty: none.
      spans: the workdir of a model trained to restore spans; empty: none.
    """
    base = _texts.short("multi30k", steps, {})
    starts = {"masked": masked, "spans": spans}
    rows = []

    def add(name, changes):
        rows.append(Row(name, with_fields(base, changes), seeds=seeds))

    add("scratch", {})
    if masked:
        add("scratch, their pieces", {"data.tokenizer": f"{masked}/tokenizer.model"})
    for name, (start, parts) in PARTS.items():
        if starts[start]:
            init_fields = {"train.init_from": starts[start], "train.init_parts": parts}
            add(name, init_fields)
    return Experiment(
        rows=rows,
        columns=[
            *("test_2016_flickr.bleu", "test_2016_flickr.chrf"),
            *("test_2016_flickr.perplexity", "minutes"),
        ],
        compared="test_2016_flickr.bleu",
        baseline="scratch",
        note=(
            "Perplexities per piece compare only rows of the same pieces: not the row "
            "`scratch` with the others."
        ),
    )
