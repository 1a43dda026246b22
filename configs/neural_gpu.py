"""The Extended Neural GPU (Kaiser and Bengio 2016), small, on two texts.

    python -m t2t_jax.main --config=configs/neural_gpu.py --workdir=DIR
    python -m t2t_jax.main --config=configs/neural_gpu.py:multi30k --workdir=DIR \\
        --config.data.dir=FOLDER

A token costs as much as its sentence is long, so it is smaller than the Transformers of
`tiny.py` and `multi30k.py`: 0.5 and 0.7 million parameters, 2 rows, 2 layers. A step
still takes three to five times as long.
"""

from configs import multi30k, tiny
from t2t_jax import config as fields

# The config of the text, and the model's sizes and dropout for it.
TEXTS = {
    "tiny": (tiny, {"layers": 2, "width": 48, "dropout": 0.0}),
    "multi30k": (multi30k, {"layers": 2, "width": 48, "dropout": 0.2}),
}


def get_config(text="tiny"):
    if text not in TEXTS:
        raise ValueError(f"unknown text {text!r}; want {' or '.join(map(repr, TEXTS))}")
    base, sizes = TEXTS[text]
    config = base.get_config()
    config.model = fields.defaults().model
    config.model.update(kind="neural_gpu", **sizes)
    config.data.update(batching="bucketed", buckets=4)
    config.train.update(peak_learning_rate=0.003, clip_norm=1.0)
    return config
