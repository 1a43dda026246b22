"""ConvS2S (Gehring et al. 2017) on the text of `configs/tiny.py` or `multi30k.py`.

    python -m t2t_jax.main --config=configs/conv.py --workdir=DIR
    python -m t2t_jax.main --config=configs/conv.py:multi30k --workdir=DIR \\
        --config.data.dir=FOLDER

It has about as many parameters as the Transformer of that text, and its optimizer
and schedule.
"""

from configs import multi30k, tiny
from t2t_jax import config as fields

TEXTS = {"tiny": tiny, "multi30k": multi30k}


def get_config(text="tiny"):
    if text not in TEXTS:
        raise ValueError(f"unknown text {text!r}; want 'tiny' or 'multi30k'")
    config = TEXTS[text].get_config()
    config.model = fields.defaults().model
    config.model.update(kind="conv", width=128, max_positions=512)
    config.model.update(dropout=0.0, layers=3)
    if text == "multi30k":
        config.model.update(dropout=0.2, layers=5)
    return config
