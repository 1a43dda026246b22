"""A masked language model of your own text: one sentence a line, on a CPU.

    python -m t2t_jax.main --config=configs/mlm.py --workdir=DIR \\
        --config.data.train=FILE --config.data.dev=FILE --config.data.test=FILE

Its encoder has the sizes of `configs/small.py`, so that such a translator can start
from it (`train.init_from`). For that, give it text of both languages.
"""

from configs import small


def get_config():
    config = small.get_config()
    config.task.kind = "masked_language_model"
    config.model.kind = "encoder_only"
    # Text is not seen the same way twice, and smoothing would only blur it.
    config.model.dropout = 0.1
    config.train.label_smoothing = 0.0
    return config
