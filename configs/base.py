"""The paper's base model (Table 3): every field is the default. Give it your text."""

from t2t_jax import config as fields


def get_config():
    return fields.defaults()
