"""The Extended Neural GPU (Kaiser and Bengio 2016), small, on two texts.

    python -m t2t_jax.main --config=configs/neural_gpu.py --workdir=DIR
    python -m t2t_jax.main --config=configs/neural_gpu.py:multi30k --workdir=DIR \\
        --config.data.dir=FOLDER

A token costs as much as its sentence is long, so it is smaller than the Transformers of
`tiny.py` and `multi30k.py`: 0.5 and 0.7 million parameters, 2 rows, 2 layers. A step
still takes three to five times as long.
"""

from configs import _older

SIZES = {
    "tiny": {"layers": 2, "width": 48, "dropout": 0.0},
    "multi30k": {"layers": 2, "width": 48, "dropout": 0.2},
}


def get_config(text="tiny"):
    config = _older.on_text(text, "neural_gpu", SIZES)
    config.data.update(batching="bucketed", buckets=4)
    config.train.update(peak_learning_rate=0.003, clip_norm=1.0)
    return config
