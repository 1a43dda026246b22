"""The paper's big model (Table 3, last row; section 6.1)."""

from configs import base


def get_config():
    config = base.get_config()
    config.model.update(width=1024, heads=16, hidden=4096, dropout=0.3)
    config.train.update(steps=300_000, save_every=600, eval_every=3_000)
    config.decode.average = 20
    return config
