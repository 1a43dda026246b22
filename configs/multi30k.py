"""Multi30k English-German image captions: real text, an hour on two CPU cores.

    python -m t2t_jax.main --config=configs/multi30k.py --workdir=DIR \\
        --config.data.dir=FOLDER

FOLDER holds train.en, train.de, val.en, val.de, test_2016_flickr.en and
test_2016_flickr.de, plain or .gz (github.com/multi30k/dataset).

`configs/multi30k.py:published` has the sizes and the schedule of a small Transformer
with a published score on test_2016_flickr: 41.02 BLEU, lower-cased and tokenized. It
has larger batches, more dropout and post-norm, and is meant for a GPU.
"""

from configs import small


def get_config(recipe="hour"):
    config = small.get_config()
    config.data.update(
        train="train", dev="val", test="test_2016_flickr", vocab_size=6_000
    )
    if recipe == "hour":
        config.train.minutes = 60.0
    elif recipe == "published":
        config.model.update(norm="post", dropout=0.3)
        config.data.update(vocab_size=10_000, batch_tokens=8_192, row_length=128)
        config.train.update(steps=8_000, warmup=2_000, peak_learning_rate=0.005)
    else:
        raise ValueError(f"unknown recipe {recipe!r}; want 'hour' or 'published'")
    return config
