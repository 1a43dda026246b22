"""The paper's base model (Table 3) on WMT 2014 English-German (section 5.1).

`configs/base.py:en-fr` is English-French; the languages turned round train the other
direction. `--config.data.train=PREFIX` and the like train on your own files.
"""

from t2t_jax import config as fields

WMT14 = {  # the paper's pairs: the data set of TensorFlow Datasets, and joint pieces
    frozenset({"en", "de"}): ("tfds:wmt14_translate/de-en", 37_000),
    frozenset({"en", "fr"}): ("tfds:wmt14_translate/fr-en", 32_000),
}


def get_config(direction="en-de"):
    source, _, target = direction.partition("-")
    if frozenset({source, target}) not in WMT14:
        raise ValueError(
            f"{direction!r} is no direction of the paper; want en-de, de-en, en-fr or "
            "fr-en, or your own files: --config.data.train=PREFIX"
        )
    name, pieces = WMT14[frozenset({source, target})]
    config = fields.defaults()
    config.data.update(
        source=source,
        target=target,
        train=f"{name}:train",
        dev=f"{name}:validation",  # newstest2013
        test=f"{name}:test",  # newstest2014
        vocab_size=pieces,
    )
    return config
