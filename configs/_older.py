"""The configs of the older models: that of a text, with another model."""

from configs import multi30k, small, tiny
from t2t_jax import config as fields


def captions():
    """The recipe that the models of docs/older-models.md are compared with."""
    config = small.get_config()
    config.data = multi30k.get_config().data
    config.train.minutes = 60.0
    return config


TEXTS = {"tiny": tiny.get_config, "multi30k": captions}


def on_text(text, kind, sizes):
    """Returns the config of `text` with the model `kind`.

    Args:
      sizes: by text, the fields of `config.model` that are not at their defaults.
    """
    if text not in TEXTS:
        raise ValueError(f"unknown text {text!r}; want {' or '.join(map(repr, TEXTS))}")
    config = TEXTS[text]()
    config.model = fields.defaults().model
    config.model.update(kind=kind, **sizes[text])
    return config
