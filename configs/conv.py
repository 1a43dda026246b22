"""ConvS2S (Gehring et al. 2017) on the built-in corpus, or on Multi30k.

    python -m t2t_jax.main --config=configs/conv.py --workdir=DIR
    python -m t2t_jax.main --config=configs/conv.py:multi30k --workdir=DIR \\
        --config.data.dir=FOLDER

It has about as many parameters as the Transformers of `tiny.py` and `multi30k.py`, and
their optimizer and schedule.
"""

from configs import _older

SIZES = {
    "tiny": {"layers": 3, "width": 128, "dropout": 0.0, "max_positions": 512},
    "multi30k": {"layers": 5, "width": 128, "dropout": 0.2, "max_positions": 512},
}


def get_config(text="tiny"):
    return _older.on_text(text, "conv", SIZES)
