"""What the tests of faults share: runs as processes, and a run to damage."""

import shutil

import pytest

from tests.faults.processes import RUN, Process, flags
from tests.faults.stopped_run import go_on
from tests.small_run import made_once


@pytest.fixture(scope="module")
def stopped(text, compiled_once, tmp_path_factory):
    """A run that was stopped after 8 of 12 steps, saved after 4 and 8."""
    workdir = tmp_path_factory.mktemp("stopped") / "work"
    go_on(workdir, text, steps=8)
    return workdir


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


@pytest.fixture(scope="session")
def short(text, shared):
    """Few training texts and lengths; a dev set that takes a while."""

    def write(folder):
        for file in text.iterdir():
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            if file.stem != "train":
                lines = lines[:2] * (100 if file.stem == "dev" else 2)
            (folder / file.name).write_text("".join(lines), encoding="utf-8")

    return made_once(shared / "short", write)


@pytest.fixture(scope="session")
def undisturbed(short, shared):
    """A run, as a process, that nothing happened to."""

    def run(folder):
        process = Process(*flags(short, folder / "work", **RUN))
        assert process.end() == 0, process.told

    return made_once(shared / "undisturbed", run) / "work"
