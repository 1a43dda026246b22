"""ByteNet (Kalchbrenner et al. 2016) on the built-in corpus, or on Multi30k.

    python -m t2t_jax.main --config=configs/bytenet.py --workdir=DIR
    python -m t2t_jax.main --config=configs/bytenet.py:multi30k --workdir=DIR \\
        --config.data.dir=FOLDER

It has about as many parameters as the Transformers of `tiny.py` and `multi30k.py`, and
their optimizer and schedule. Every shape of a batch is compiled, so there are few.
"""

from configs import multi30k, tiny
from t2t_jax import config as fields

# The config of the text, and the model's sizes and dropout for it.
TEXTS = {
    "tiny": (tiny, {"layers": 5, "width": 192, "dropout": 0.0}),
    "multi30k": (multi30k, {"layers": 5, "width": 192, "dropout": 0.2}),
}


def get_config(text="tiny"):
    if text not in TEXTS:
        raise ValueError(f"unknown text {text!r}; want {' or '.join(map(repr, TEXTS))}")
    base, sizes = TEXTS[text]
    config = base.get_config()
    config.model = fields.defaults().model
    config.model.update(kind="bytenet", **sizes)
    config.data.update(batching="bucketed", buckets=4)
    return config
