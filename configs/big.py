"""The paper's big model (Table 3, last row; section 6.1), on the data of base.py.

    python -m t2t_jax.main --config=configs/big.py --workdir=DIR

It takes the same directions as `configs/base.py`, such as `configs/big.py:en-fr`.
"""

from configs import base


def get_config(direction="en-de"):
    config = base.get_config(direction)
    french = "fr" in (config.data.source, config.data.target)
    dropout = 0.1 if french else 0.3  # section 6.1: less for English-French
    config.model.update(width=1024, heads=16, hidden=4096, dropout=dropout)
    # Section 6.1 averages the last 20 checkpoints, written every 10 minutes: about 600
    # steps at the paper's speed.
    config.train.update(steps=300_000, save_every=600, eval_every=3_000)
    config.decode.average = 20
    return config
