"""The configs of the older models: that of a text, with another model."""

from configs import multi30k, tiny
from t2t_jax import config as fields

TEXTS = {"tiny": tiny, "multi30k": multi30k}


def on_text(text, kind, sizes):
    """Returns the config of `text` with the model `kind`.

    Args:
      sizes: by text, the fields of `config.model` that are not at their defaults.
    """
    if text not in TEXTS:
        raise ValueError(f"unknown text {text!r}; want {' or '.join(map(repr, TEXTS))}")
    config = TEXTS[text].get_config()
    config.model = fields.defaults().model
    config.model.update(kind=kind, **sizes[text])
    return config
