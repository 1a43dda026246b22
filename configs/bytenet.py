"""ByteNet on the built-in grammar, or on Multi30k.

    python -m t2t_jax.main --config=configs/bytenet.py --workdir=DIR
    python -m t2t_jax.main --config=configs/bytenet.py:multi30k --workdir=DIR \\
        --config.data.dir=FOLDER

With about as many parameters as the Transformers of `tiny.py` and `multi30k.py`.
"""

from configs import multi30k, tiny
from t2t_jax import config as fields

# The config of the text, and the sizes and dropout with it.
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
    config.data.batching = "bucketed"
    return config
