"""ByteNet (Kalchbrenner et al. 2016) on the built-in corpus, or on Multi30k.

    python -m t2t_jax.main --config=configs/bytenet.py --workdir=DIR
    python -m t2t_jax.main --config=configs/bytenet.py:multi30k --workdir=DIR \\
        --config.data.dir=FOLDER

It has about as many parameters as the Transformers of `tiny.py` and `multi30k.py`, and
their optimizer and schedule. Every shape of a batch is compiled, so there are few.
"""

from configs import _older

SIZES = {
    "tiny": {"layers": 5, "width": 192, "dropout": 0.0},
    "multi30k": {"layers": 5, "width": 192, "dropout": 0.2},
}


def get_config(text="tiny"):
    config = _older.on_text(text, "bytenet", SIZES)
    config.data.update(batching="bucketed", buckets=4)
    return config
