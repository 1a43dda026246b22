"""A small model for your own text: hundreds of thousands of pairs, on a CPU.

    python -m t2t_jax.main --config=configs/small.py --workdir=DIR \\
        --config.data.train=PREFIX --config.data.dev=PREFIX --config.data.test=PREFIX

It is tuned to learn much in an hour on two cores: small batches, a higher learning
rate, pre-norm. Stop it when you like, or set `train.minutes` or `train.patience`.
With more time, try `--config.model.width=256`. For tens of thousands of pairs, take
`configs/low_resource.py`.
"""

from t2t_jax import config as fields


def get_config():
    config = fields.defaults()
    config.model.update(layers=4, width=128, heads=4, hidden=256)
    config.model.update(norm="pre", dropout=0.2)
    config.data.update(vocab_size=8_000, batch_tokens=2_048, row_length=64)
    config.train.update(
        steps=20_000,
        warmup=1_000,
        peak_learning_rate=0.004,
        log_every=100,
        eval_every=750,
        save_every=250,
        dev_lines=300,
    )
    config.decode.beam = 5
    return config
