"""Multi30k English-German image captions: real text, about an hour on two CPU cores.

    python -m t2t_jax.main --config=configs/multi30k.py --config.data.dir=FOLDER

FOLDER holds train.en, train.de, val.en, val.de, test_2016_flickr.en and
test_2016_flickr.de, plain or .gz (github.com/multi30k/dataset).

`configs/multi30k.py:published` has the sizes and schedule of the small Transformer
whose 41.02 lower-cased, tokenised BLEU is published for test_2016_flickr: larger
batches and more pieces, for a GPU.
"""

from t2t_jax import config as fields


def get_config(recipe="hour"):
    config = fields.defaults()
    config.model.update(layers=4, width=128, heads=4, hidden=256)
    config.model.update(norm="pre", dropout=0.2)  # both learn sooner
    config.data.update(
        train="train",
        dev="val",
        test="test_2016_flickr",
        vocab_size=6_000,
        batch_tokens=2_048,
        row_length=64,
    )
    config.train.update(
        steps=20_000,
        minutes=60.0,
        warmup=1_000,
        peak_learning_rate=0.004,
        log_every=100,
        eval_every=750,
        save_every=250,
        dev_lines=300,
    )
    config.decode.update(beam=5, average=10)
    if recipe == "published":
        config.model.update(norm="post", dropout=0.3)
        config.data.update(vocab_size=10_000, batch_tokens=8_192)
        config.train.update(
            steps=8_000, minutes=0.0, warmup=2_000, peak_learning_rate=0.005
        )
    elif recipe != "hour":
        raise ValueError(f"{recipe!r}; want 'hour' or 'published'")
    return config
