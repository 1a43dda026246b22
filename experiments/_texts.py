"""The texts of small experiments: their presets and their first test sets."""

from t2t_jax import load_config
from t2t_jax.tools.experiment import with_fields

# The preset of a text -> the name of the test set that is reported.
TEST_SETS = {"tiny": "test", "multi30k": "test_2016_flickr"}

# Texts on which experiments rank rows: the preset, its changes, and the set that ranks,
# a dev set but for built_in, where nothing is chosen. Experiments with the same one
# share their runs.
RANKED = {
    "built_in": ("tiny", {}, "test"),
    "hard": ("hard", {"data.test": "grammar:hard-dev"}, "hard-dev"),
    "multi30k": ("multi30k:1500", {"data.test": "val,test_2016_flickr"}, "val"),
}


def entry(kind, name, choices):
    """Returns the entry of a name, such as that of a text; refuses other names."""
    if name not in choices:
        expected = " or ".join(map(repr, choices))
        raise ValueError(f"unknown {kind} {name!r}; want {expected}")
    return choices[name]


def test_set(text):
    """Returns the name of the test set of a text."""
    return entry("text", text, TEST_SETS)


def short(name, steps, changes):
    """Returns a preset for some steps, evaluated at their end; with other changes."""
    fields = {
        "train.minutes": 0.0,
        "train.steps": steps,
        "train.warmup": 200,
        "train.save_every": steps // 8,  # 5 of them are averaged
        "train.eval_every": steps,
        "train.dev_lines": 0,
    }
    return with_fields(load_config(name), fields | changes)


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
