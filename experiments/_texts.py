"""The texts of small experiments: their presets and their first test sets."""

from t2t_jax import load_config

# The preset of a text -> the name of the test set that is reported.
TEST_SETS = {"tiny": "test", "multi30k": "test_2016_flickr"}


def test_set(text):
    """Returns the name of the test set of a text; refuses other texts."""
    if text not in TEST_SETS:
        raise ValueError(
            f"unknown text {text!r}; want {' or '.join(map(repr, TEST_SETS))}"
        )
    return TEST_SETS[text]


def preset(name, text, steps):
    """Returns a preset of a text, trained for a number of steps.

    Args:
      name: such as `tiny`, or `lstm:multi30k`.
      steps: 0 for those of the preset; of `multi30k`, which ends by time, 4,000.
    """
    config = load_config(name)
    test_set(text)
    if text == "multi30k":
        config.train.update(minutes=0.0, steps=4_000)
    config.train.steps = steps or config.train.steps
    return config
