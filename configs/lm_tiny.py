"""A tiny language model that learns the built-in grammar in minutes on a CPU.

    python -m t2t_jax.main --config=configs/lm_tiny.py --workdir=DIR
    yes '' | head -20 | python -m t2t_jax translate --workdir=DIR --sample

It needs no download. It learns the English side, or the German one with
--config.data.source=en --config.data.target=de.
"""

from t2t_jax import config as fields


def get_config():
    config = fields.defaults()
    config.task.kind = "language_model"
    config.model.update(kind="decoder_only", layers=2, width=128, heads=4, hidden=512)
    config.model.update(norm="pre", dropout=0.0)
    config.data.update(
        source="de",
        target="en",
        train="grammar:train",
        dev="grammar:dev",
        test="grammar:test,grammar:unseen",
        vocab_size=1_500,
        max_length=64,
        batch_tokens=2_048,
        row_length=128,
        feeder="numpy",
    )
    config.train.update(
        steps=1_500,
        warmup=100,
        peak_learning_rate=0.003,
        label_smoothing=0.0,
        log_every=25,
        eval_every=250,
        save_every=25,
        dev_lines=500,
    )
    config.decode.extra_length = 60
    return config
