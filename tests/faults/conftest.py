"""A run that was stopped, a copy of it to damage, and what it becomes untouched."""

import shutil

import pytest

from tests.faults.damage import compiled_once
from tests.faults.stopped_run import go_on


@pytest.fixture(scope="module")
def stopped(text, _own_cache, tmp_path_factory):
    """A run that was stopped after 8 of 12 steps, saved after 4 and 8."""
    workdir = tmp_path_factory.mktemp("stopped") / "work"
    with compiled_once():
        go_on(workdir, text, steps=8)
        yield workdir


@pytest.fixture(scope="module")
def whole(stopped, text, tmp_path_factory):
    """What becomes of it when it is left alone."""
    workdir = tmp_path_factory.mktemp("whole") / "work"
    shutil.copytree(stopped, workdir)
    go_on(workdir, text)
    return workdir


@pytest.fixture
def workdir(stopped, tmp_path):
    """A copy of the stopped run, to be damaged."""
    shutil.copytree(stopped, tmp_path / "work")
    return tmp_path / "work"
