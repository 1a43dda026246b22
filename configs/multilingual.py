"""One model for several directions: English, German and a little French, both ways.

    python -m t2t_jax.main --config=configs/multilingual.py --workdir=DIR \\
        --config.data.dir=FOLDER

FOLDER holds tatoeba/train.en, .de, tatoeba/dev.*, and newstest/train.en, .fr,
newstest/test.*: 154,707 pairs of everyday sentences, and 2,500 of news. Each place is
read in both directions. The temperature has the little French read often; of German to
French there is no text, so its scores are "zero-shot". For other text, change `PLACES`.
"""

from configs import small

# The training text, with the dev or test set beside it, and its two languages.
PLACES = {
    ("en", "de"): ("tatoeba/train", "tatoeba/dev"),
    ("en", "fr"): ("newstest/train", "newstest/test"),
}
ZERO_SHOT = "de-fr:newstest/test", "fr-de:newstest/test"


def both_ways(number):
    return [
        f"{source}-{target}:{places[number]}"
        for languages, places in PLACES.items()
        for source, target in (languages, languages[::-1])
    ]


def get_config():
    config = small.get_config()
    config.task.kind = "text_to_text"
    config.data.update(
        train=",".join(both_ways(0)),
        dev=",".join(both_ways(1)),
        test=",".join([*both_ways(1), *ZERO_SHOT]),
        temperature=5.0,
        max_length=100,  # rows hold the longest sentence, and news has long ones
    )
    config.train.dev_lines = 50  # of each dev set
    return config
