"""The paper's base model on WMT14 (Table 2, Table 3): every field is the default."""

from t2t_jax import config as fields


def get_config():
    return fields.defaults()
