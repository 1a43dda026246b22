"""Groups of processes that do not outlive their test."""

import contextlib
import itertools

import pytest

from tests.processes.group import Group, ours


@pytest.fixture(scope="session")
def processes_cache(shared):
    """What the processes of all tests keep: compiled code and prepared text."""
    return shared


@pytest.fixture
def group(processes_cache, tmp_path):
    """Makes groups; `group(2, *arguments)` starts two processes of a command."""
    with contextlib.ExitStack() as stack:
        names = itertools.count()

        def make(n, *arguments, **given):
            made = Group(processes_cache, tmp_path / f"logs{next(names)}")
            stack.callback(made.kill)
            for flags in ours(n) if n > 1 else [[]] * n:
                made.start(*flags, *arguments, **given)
            return made

        yield make
