"""A tiny masked language model of the built-in German sentences, in minutes on a CPU.

    python -m t2t_jax.main --config=configs/mlm_tiny.py --workdir=DIR
    echo "Der <mask> schläft." | python -m t2t_jax translate --workdir=DIR

It needs no download. English: --config.data.source=de --config.data.target=en.
"""

from configs import tiny


def get_config():
    config = tiny.get_config()
    config.task.kind = "masked_language_model"
    config.model.kind = "encoder_only"
    # A step learns from 15% of the tokens, so it takes more of them.
    config.train.update(steps=2_000, eval_every=500, label_smoothing=0.0)
    return config
