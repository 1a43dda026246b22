"""GNMT's recurrent model (Wu et al. 2016) on the built-in corpus, or on Multi30k.

    python -m t2t_jax.main --config=configs/lstm.py --workdir=DIR
    python -m t2t_jax.main --config=configs/lstm.py:multi30k --workdir=DIR \\
        --config.data.dir=FOLDER

It has about as many parameters as the Transformers of `tiny.py` and `multi30k.py`, and
their optimizer and schedule. For the form of Luong et al. 2015, set
`--config.model.options.lstm_form=luong`.
"""

from configs import _older

SIZES = {
    "tiny": {"layers": 2, "width": 128, "dropout": 0.0},
    "multi30k": {"layers": 2, "width": 144, "dropout": 0.2},
}


def get_config(text="tiny"):
    return _older.on_text(text, "lstm", SIZES)
