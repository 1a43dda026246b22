"""The paper's constituency parser (section 6.3).

    python -m t2t_jax.main --config=configs/parse.py --workdir=DIR --config.data.dir=PTB

The Penn Treebank is not free, so its files come from you: `02-21.mrg`, `22.mrg` and
`23.mrg`, each the sections of the Wall Street Journal in one file (`cat wsj/23/*.mrg`).
`configs/parse.py:semi` also reads `high-confidence.trees` and `berkeley.trees`, which
are the paper's names of 17 million sentences that other parsers parsed.

The paper gives layers, width, vocabulary and search, says that it chose dropout and
learning rate on section 22, and leaves all else as in the base model.
"""

from t2t_jax import config as fields

# The vocabulary is the paper's. Dropout and warm-up are ours, since it does not give
# them: those that tensor2tensor has in its presets for the same two settings.
SETTINGS = {
    "wsj": {"pieces": 16_000, "dropout": 0.2, "attention": 0.2, "warmup": 16_000},
    "semi": {"pieces": 32_000, "dropout": 0.1, "attention": 0.1, "warmup": 4_000},
}
MORE = ",high-confidence,berkeley"


def get_config(text="wsj"):
    if text not in SETTINGS:
        raise ValueError(f"{text!r} is not a setting of the paper; want wsj or semi")
    setting = SETTINGS[text]
    config = fields.defaults()
    config.task.kind = "parsing"
    config.model.update(
        layers=4,
        width=1024,
        dropout=setting["dropout"],
        attention_dropout=setting["attention"],
    )
    config.data.update(
        source="words",
        target="en",
        train="02-21" + (MORE if text == "semi" else ""),
        dev="22",
        test="23",
        vocab_size=setting["pieces"],
        # Ours: trees have three times the tokens of their sentences.
        max_length=512,
        row_length=256,
    )
    config.train.warmup = setting["warmup"]
    config.decode.update(beam=21, alpha=0.3, extra_length=300)
    return config
