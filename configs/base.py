"""The paper's base model (Table 3) on WMT 2014 English-German (section 5.1).

    python -m t2t_jax.main --config=configs/base.py --workdir=DIR

`configs/base.py:en-fr` is English-French; `de-en` and `fr-en` are the other directions.
To train on your own files, set `--config.data.train=PREFIX`, and `dev` and `test` too.
"""

from t2t_jax import config as fields

# The paper's language pairs: the TFDS data set and the size of the joint vocabulary.
WMT14 = {
    frozenset({"en", "de"}): ("tfds:wmt14_translate/de-en", 37_000),
    frozenset({"en", "fr"}): ("tfds:wmt14_translate/fr-en", 32_000),
}


def get_config(direction="en-de"):
    source, _, target = direction.partition("-")
    if frozenset({source, target}) not in WMT14:
        raise ValueError(
            f"{direction!r} is not a direction of the paper; want en-de, de-en, en-fr "
            "or fr-en, or set your own files: --config.data.train=PREFIX"
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
