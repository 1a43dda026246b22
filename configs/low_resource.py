"""A small model for little text: tens of thousands of pairs, 11,000 steps.

    python -m t2t_jax.main --config=configs/low_resource.py --workdir=DIR \\
        --config.data.train=PREFIX --config.data.dev=PREFIX --config.data.test=PREFIX

`configs/low_resource.py:half_hour` takes a third of the steps. Both were chosen on the
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


def get_config(recipe="hour"):
    if recipe not in RECIPES:
        raise ValueError(
            f"unknown recipe {recipe!r}; want {' or '.join(map(repr, RECIPES))}"
        )
    config = small.get_config()
    config.model.positions = "rotary"
    config.data.vocab_size = 6_000
    config.train.schedule = "linear"
    for section, fields in RECIPES[recipe].items():
        config[section].update(fields)
    return config
