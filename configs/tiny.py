"""A tiny model that learns the built-in English-German grammar in minutes on a CPU.

    python -m t2t_jax.main --config=configs/tiny.py --workdir=DIR

It needs no download. The test sets are described in `t2t_jax/grammar/corpus.py`.
"""

from t2t_jax import config as fields


def get_config():
    config = fields.defaults()
    config.model.update(layers=2, width=128, heads=4, hidden=512)
    config.data.update(
        train="grammar:train",
        dev="grammar:dev",
        test="grammar:test,grammar:unseen,grammar:agreement,grammar:long",
        vocab_size=2_000,
        batch_tokens=2_048,
        row_length=64,
    )
    config.train.update(
        steps=1_100,
        warmup=400,
        log_every=25,
        eval_every=275,
        save_every=50,
        dev_lines=100,
    )
    return config
