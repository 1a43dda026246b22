"""A small run of one process, and one of two."""

import pytest

from tests.children import Children
from tests.compiler import quick_environment
from tests.small_run import flags_for

# With a long warmup, Adam, which divides by what it has seen, does not make rounding
# errors grow: metrics are compared.
PLAIN = {
    "model": {"dropout": 0.0},
    "data": {"test": ""},
    "train": {
        "steps": 20,
        "warmup": 400,
        "log_every": 1,
        "eval_every": 10,
        "save_every": 5,
        "dev_lines": 0,
    },
}


@pytest.fixture(scope="session")
def alone(text, tmp_path_factory):
    """A run of one process with one device."""
    folder = tmp_path_factory.mktemp("alone")
    flags = flags_for(text, folder / "work", **PLAIN)
    with Children(folder / "logs") as one:
        one.start(*flags, **quick_environment()).ends(0)
    return folder / "work"


@pytest.fixture(scope="session")
def together(text, tmp_path_factory):
    """A run of two processes with two devices each, and what they said; the second
    was told of a workdir that cannot be."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "file").touch()
    places = folder / "work", folder / "file" / "elsewhere"
    flags = [[*flags_for(text, place, **PLAIN)] for place in places]
    with Children(folder / "logs") as two:
        two.start_each(flags, devices=2, **quick_environment()).ends(0, 0)
        return folder / "work", [two.err(i) for i in range(2)]
