"""A command starts once more for huge pages, once, and nothing else does."""

import os
import platform
import subprocess
import sys
from unittest import mock

import pytest

from t2t_jax.parallel import huge_pages
from t2t_jax.parallel.huge_pages import SWITCH, TUNABLES, needed_environment

GLIBC, MADVISE = ("glibc", "2.36"), "always [madvise] never\n"


def test_what_is_in_the_environment_is_kept():
    given = {"PATH": "/bin", TUNABLES: "glibc.malloc.arena_max=2"}
    after = needed_environment(given, GLIBC, MADVISE)
    assert after["PATH"] == "/bin"
    assert after[TUNABLES] == "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"
    first = needed_environment({}, GLIBC, MADVISE)
    assert first[TUNABLES] == "glibc.malloc.hugetlb=1"
    for started_again in (first, {SWITCH: first[SWITCH]}):
        assert needed_environment(started_again, GLIBC, MADVISE) is None


@pytest.mark.parametrize(
    ("environment", "libc", "kernel"),
    [
        ({TUNABLES: "glibc.malloc.hugetlb=0"}, GLIBC, MADVISE),
        ({SWITCH: "0"}, GLIBC, MADVISE),
        ({}, ("glibc", "2.34"), MADVISE),
        ({}, ("musl", "1.2"), MADVISE),
        ({}, ("", ""), MADVISE),
        ({}, GLIBC, "[always] madvise never"),
        ({}, GLIBC, "always madvise [never]"),
        ({}, GLIBC, ""),
    ],
)
def test_where_it_would_not_help_nothing_changes(environment, libc, kernel):
    assert needed_environment(environment, libc, kernel) is None


# A command that starts as ours do, on a kernel that can be asked for huge pages.
COMMAND = """
import os, sys
from pathlib import Path
from t2t_jax.parallel import huge_pages
huge_pages.KERNEL = Path(__file__).with_name("kernel")
if __name__ == "__main__":
    huge_pages.restart_if_useful()
told = {k: os.environ.get(k) for k in ("GLIBC_TUNABLES", "KEPT")}
print(os.getpid(), sys.argv[1:], told, sys.stdin.read(), sys.flags.optimize)
sys.exit(3)
"""
STARTS = "a -m b", "--c=d"


@pytest.fixture
def commands(tmp_path):
    """A folder with that package, in which every start of it is counted."""
    folder = tmp_path / "commands"
    folder.mkdir()
    count = "open('starts', 'a').write('x')\n"
    (folder / "__init__.py").write_text(count)
    (folder / "tell.py").write_text(COMMAND)
    (folder / "kernel").write_text(MADVISE)
    return tmp_path


def run(commands, *how, **environment):
    path = os.pathsep.join(sys.path)
    given = {k: v for k, v in os.environ.items() if k not in (TUNABLES, SWITCH)}
    process = subprocess.Popen(
        [sys.executable, *how],
        cwd=commands,
        env={**given, "PYTHONPATH": path, "KEPT": "yes", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = process.communicate("a line")
    return process, out, (commands / "starts").read_text()


@pytest.mark.skipif(
    platform.libc_ver() < ("glibc", "2.35"), reason="needs a glibc that can be asked"
)
def test_a_command_starts_once_more_as_it_was_started(commands):
    process, out, starts = run(commands, "-O", "-m", "commands.tell", *STARTS)
    told = {TUNABLES: "glibc.malloc.hugetlb=1", "KEPT": "yes"}
    assert out == f"{process.pid} {[*STARTS]} {told} a line 1\n"
    assert (process.returncode, starts) == (3, "xx")


RUNS_IT = "import runpy; runpy.run_module('commands.tell', alter_sys=True)"


@pytest.mark.parametrize(
    ("how", "switch"),
    [
        (("-c", "import commands.tell"), {}),
        (("-c", RUNS_IT), {}),
        (("-m", "commands.tell"), {SWITCH: "0"}),
    ],
)
def test_what_only_imports_it_or_turns_it_off_is_not_started_again(
    commands, how, switch
):
    process, out, starts = run(commands, *how, **switch)
    assert (process.returncode, starts) == (3, "x")
    assert "hugetlb" not in out


def test_an_interpreter_that_cannot_be_started_again_goes_on(monkeypatch):
    execve = mock.Mock(side_effect=OSError)
    monkeypatch.setattr(huge_pages, "needed_environment", lambda *_: {})
    monkeypatch.setattr(huge_pages, "_is_command", lambda: True)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(os, "execve", execve)
    huge_pages.restart_if_useful()
    execve.assert_called_once()
