"""The recurrent translator of Wu et al. 2016 (GNMT), small, on the built-in corpus.

    python -m t2t_jax.main --config=configs/lstm.py --workdir=DIR

`configs/lstm.py:multi30k` reads Multi30k (see configs/multi30k.py). Both have about as
many parameters as the Transformer on the same text, and its optimizer and schedule.
Luong's form: `--config.model.options.lstm_form=luong`.
"""

from configs import multi30k, tiny
from t2t_jax import config as fields

WIDTH = {"tiny": 128, "multi30k": 144}


def get_config(text="tiny"):
    if text not in WIDTH:
        raise ValueError(f"unknown text {text!r}; want 'tiny' or 'multi30k'")
    config = (tiny if text == "tiny" else multi30k).get_config()
    config.model = fields.defaults().model
    config.model.update(kind="lstm", layers=2, width=WIDTH[text])
    config.model.dropout = 0.0 if text == "tiny" else 0.2
    return config
