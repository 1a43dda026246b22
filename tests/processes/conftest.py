"""A small run of one process, and one of two."""

import pytest

from t2t_jax import train
from tests.children import Children
from tests.small_run import config_for, flags_for

# With a long warmup, Adam, which divides by what it has seen, does not make rounding
# errors grow: metrics are compared.
PLAIN = {
    "model": {"dropout": 0.0},
    "data": {"test": ""},
    "train": {
        "steps": 10,
        "warmup": 400,
        "log_every": 1,
        "eval_every": 10,
        "save_every": 5,
    },
}


@pytest.fixture(scope="session")
def alone(text, tmp_path_factory):
    """A run of one process with one device, which translates nothing."""
    workdir = tmp_path_factory.mktemp("alone") / "work"
    train(config_for(text, **PLAIN | {"data": {"dev": "", "test": ""}}), workdir)
    return workdir


@pytest.fixture(scope="session")
def together(text, tmp_path_factory):
    """A run of two processes with two devices each, and what they said; the second
    was told of a workdir that cannot be."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "file").touch()
    places = folder / "work", folder / "file" / "elsewhere"
    flags = [[*flags_for(text, place, **PLAIN)] for place in places]
    with Children(folder / "logs") as children:
        children.start_each(flags, devices=2).ends(0, 0)
        return folder / "work", [children.err(i) for i in range(2)]
