"""What the tests of faults share: runs as processes, and a run to damage."""

import shutil

import jax
import pytest

from tests.faults.damage import compiled_once
from tests.faults.processes import RUN, Process, flags
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


@pytest.fixture(autouse=True, scope="module")
def _compiled_once():
    """Runs in this process share all that is compiled, not only what takes long."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    yield
    jax.config.update(name, before)


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """What processes keep of one another: compiled code and prepared text."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def short(text, tmp_path_factory):
    """Few lengths, quick to compile for; a dev set that takes a while."""
    folder = tmp_path_factory.mktemp("short")
    for file in text.iterdir():
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        if file.stem != "train":
            lines = lines[:2] * (100 if file.stem == "dev" else 2)
        (folder / file.name).write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def undisturbed(short, cache, tmp_path_factory):
    """A run, as a process, that nothing happened to."""
    workdir = tmp_path_factory.mktemp("undisturbed") / "work"
    process = Process(cache, *flags(short, workdir, **RUN))
    assert process.end() == 0, process.told
    return workdir
