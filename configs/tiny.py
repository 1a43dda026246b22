"""A tiny model that learns the built-in English-German grammar in minutes on a CPU.

    python -m t2t_jax.main --config=configs/tiny.py --workdir=DIR

It needs no download. `t2t_jax/extensions/grammar/corpus.py` describes the test sets.
"""

from t2t_jax import config as fields


def get_config():
    config = fields.defaults()
    config.model.update(layers=2, width=128, heads=4, hidden=512, dropout=0.0)
    config.data.update(
        train="grammar:train",
        dev="grammar:dev",
        test="grammar:test,grammar:unseen,grammar:agreement,grammar:long",
        vocab_size=3_000,
        batch_tokens=2_048,
        row_length=64,
        feeder="numpy",
    )
    config.train.update(
        steps=600,
        warmup=200,
        log_every=25,
        eval_every=300,
        save_every=25,
        dev_lines=100,
    )
    config.decode.extra_length = 16
    return config
