"""A small model for little text: tens of thousands of pairs, 11,000 steps.

    python -m t2t_jax.main --config=configs/low_resource.py --workdir=DIR \\
        --config.data.train=PREFIX --config.data.dev=PREFIX --config.data.test=PREFIX

`configs/low_resource.py:half_hour` takes a third of the steps, and `:1500` has as many
as it says, with all else in half_hour's proportions. Both recipes were chosen on the
dev set of Multi30k (`configs/multi30k.py`). They differ from `configs/small.py`, which
may be stopped at any time, in three ways: rotary positions, a learning rate that falls
to 0 with the last step, and dropout that suits the number of steps. So decide on
`train.steps` before the start. docs/recipes.md says what else helps little text.
"""

from configs import small

RECIPES = {
    "hour": {
        "model": {"dropout": 0.25},
        "train": {"steps": 11_000, "warmup": 1_000, "eval_every": 1_000},
    },
    # Dropout slows learning down: in a short run, less of it is better.
    "half_hour": {
        "model": {"dropout": 0.1},
        "train": {
            "steps": 3_500,
            "warmup": 400,
            "eval_every": 875,
            "save_every": 125,
        },
    },
}


def recipe_of(name, others):
    """Returns the fields of a recipe, or of as many steps of `half_hour` as it says."""
    if name in RECIPES:
        return RECIPES[name]
    if not name.isdecimal():
        recipes = ", ".join(map(repr, [*RECIPES, *others]))
        raise ValueError(
            f"unknown recipe {name!r}; want {recipes} or a number of steps"
        )
    steps = int(name)
    save_every = next((n for n in range(steps // 28, 0, -1) if steps % n == 0), 0)
    # The last five checkpoints are averaged: neither too old nor too much alike.
    if steps < 280 or 56 * save_every < steps:
        better = max(280, steps // 28 * 28)
        raise ValueError(
            f"{steps} steps: want at least 280, and a number that can be divided into "
            f"28 to 56 equal parts, each with a checkpoint, such as {better}"
        )
    train = {"steps": steps, "warmup": steps // 9, "eval_every": steps // 4}
    train |= {"save_every": save_every, "log_every": max(1, steps // 150)}
    return RECIPES["half_hour"] | {"train": train}


def get_config(recipe="hour", others=()):
    fields = recipe_of(recipe, others)
    config = small.get_config()
    config.model.positions = "rotary"
    config.data.vocab_size = 6_000
    config.train.schedule = "linear"
    for section, values in fields.items():
        config[section].update(values)
    return config
