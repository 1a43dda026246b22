"""A run to damage, and one that nothing happened to."""

import shutil

import pytest

from t2t_jax import train
from tests.faults.damage import QUIET, go_on
from tests.small_run import config_for, made_once


@pytest.fixture(scope="module")
def stopped(text, compiled_once, tmp_path_factory):
    """A run that was stopped after 8 of 12 steps, saved after 4 and 8."""
    workdir = tmp_path_factory.mktemp("stopped") / "work"
    go_on(workdir, text, steps=8)
    return workdir


@pytest.fixture(scope="module")
def whole(stopped, text, tmp_path_factory):
    """The same run, continued without damage."""
    workdir = shutil.copytree(stopped, tmp_path_factory.mktemp("whole") / "work")
    go_on(workdir, text)
    return workdir


@pytest.fixture
def workdir(stopped, tmp_path):
    """A copy of the stopped run, to be damaged."""
    return shutil.copytree(stopped, tmp_path / "work")


@pytest.fixture(scope="session")
def undisturbed(text, shared):
    """A run that nothing happened to, and that is quick."""

    def run(folder):
        train(config_for(text, data=QUIET), folder / "work")

    return made_once(shared / "undisturbed", run) / "work"
