"""Multi30k English-German image captions: real text, 93 to 103 minutes on one core.

    python -m t2t_jax.main --config=configs/multi30k.py --workdir=DIR \\
        --config.data.dir=FOLDER

FOLDER holds train.en, train.de, val.en, val.de, test_2016_flickr.en and
test_2016_flickr.de, plain or .gz (github.com/multi30k/dataset).

The recipes are those of `configs/low_resource.py`: `configs/multi30k.py:half_hour` is
the shorter one, `:1500` one of as many steps as it says. `:published` has the sizes and
the schedule of a small Transformer with a published score on test_2016_flickr: 41.02
BLEU, lower-cased and tokenized. It has larger batches, more dropout and post-norm, and
is meant for a GPU.
"""

from configs import low_resource, small


def get_config(recipe="hour"):
    if recipe == "published":
        config = small.get_config()
        config.model.update(norm="post", dropout=0.3)
        config.data.update(vocab_size=10_000, batch_tokens=8_192, row_length=128)
        config.train.update(steps=8_000, warmup=2_000, peak_learning_rate=0.005)
    else:
        config = low_resource.get_config(recipe, others=["published"])
    config.data.update(train="train", dev="val", test="test_2016_flickr")
    return config
