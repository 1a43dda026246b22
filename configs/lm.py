"""A language model of your own text: a decoder with the paper's base sizes.

    python -m t2t_jax.main --config=configs/lm.py --workdir=DIR \\
        --config.data.train=news.en --config.data.dev=FILE --config.data.test=FILE

Each line is an example; with --config.task.options.unit=document, empty lines separate
the examples. Longer ones are cut into blocks of `data.max_length` tokens, and scored
with a sliding window.

`configs/lm.py:small` is for tens of thousands of lines on a CPU: with
--config.train.minutes=8 it learns the English of Tatoeba's pairs on two cores.
"""

from t2t_jax import config as fields


def get_config(size="base"):
    config = fields.defaults()
    config.task.kind = "language_model"
    config.model.update(kind="decoder_only", norm="pre")
    config.data.update(max_length=256, row_length=256)
    # A language model is scored by its probabilities, which smoothing would spoil.
    config.train.update(label_smoothing=0.0, dev_lines=500)
    config.decode.extra_length = 200
    if size == "small":
        config.model.update(layers=4, width=128, heads=4, hidden=512, dropout=0.1)
        config.data.update(
            vocab_size=4_000, max_length=128, row_length=128, batch_tokens=2_048
        )
        config.train.update(
            steps=20_000,
            warmup=200,
            peak_learning_rate=0.003,
            log_every=100,
            eval_every=750,
            save_every=50,  # the last few are averaged, and should be alike
        )
        config.decode.extra_length = 60
    elif size != "base":
        raise ValueError(f"unknown size {size!r}; want 'base' or 'small'")
    return config
