"""The paper's big model (Table 3, last row; section 6.1), as `configs/base.py`."""

from configs import base


def get_config(direction="en-de"):
    config = base.get_config(direction)
    french = "fr" in (config.data.source, config.data.target)
    dropout = 0.1 if french else 0.3  # section 6.1
    config.model.update(width=1024, heads=16, hidden=4096, dropout=dropout)
    config.train.update(steps=300_000, save_every=600, eval_every=3_000)
    config.decode.average = 20
    return config
