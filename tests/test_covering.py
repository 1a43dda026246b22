"""The covering array of `python -m tests.covering`, and one of its rows."""

import itertools
import subprocess
import sys

import pytest

from t2t_jax.config import field_names
from tests import covering
from tests.small_run import ROOT


@pytest.fixture(scope="module")
def array():
    return covering.rows(seed=0)


def test_any_two_values_that_go_together_meet_in_a_row(array):
    found = {pair for row in array for pair in itertools.combinations(row.items(), 2)}
    found |= {(b, a) for a, b in found}
    assert covering.value_pairs() <= found
    assert all(covering.allowed(row) for row in array)
    assert len(array) < 100


def test_each_field_is_varied_or_listed_as_held(array):
    """A new field of the config becomes a value of a factor."""
    changes = [change for of in covering.FACTORS.values() for change in of.values()]
    varied = {name for change in changes for name in change}
    assert not varied & covering.HELD
    assert {*field_names(options=False)} == {
        name for name in varied | covering.HELD if not name.startswith("run.")
    }


def test_each_row_is_a_config(array, tmp_path):
    for row in array:
        covering.config_of(row, tmp_path)


@pytest.mark.slow
def test_a_row_of_a_seed_of_its_own():
    """A minute."""
    command = [sys.executable, "-m", "tests.covering", "--seed=1", "--rows=1"]
    assert not subprocess.run(command, cwd=ROOT).returncode
