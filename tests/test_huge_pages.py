"""A command starts once more for huge pages, once, and nothing else does."""

import os
import platform
import subprocess
import sys

import pytest

from t2t_jax.parallel.huge_pages import SWITCH, TUNABLES, needed_environment

GLIBC, MADVISE = ("glibc", "2.36"), "always [madvise] never\n"


def test_what_is_in_the_environment_is_kept():
    environment = {"PATH": "/bin", TUNABLES: "glibc.malloc.arena_max=2"}
    new_environment = needed_environment(environment, GLIBC, MADVISE)
    assert new_environment["PATH"] == "/bin"
    assert (
        new_environment[TUNABLES] == "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"
    )
    restarted = needed_environment({}, GLIBC, MADVISE)
    assert restarted[TUNABLES] == "glibc.malloc.hugetlb=1"
    for started_again in (restarted, {SWITCH: restarted[SWITCH]}):
        assert needed_environment(started_again, GLIBC, MADVISE) is None


@pytest.mark.parametrize(
    ("environment", "libc", "kernel"),
    [
        ({TUNABLES: "glibc.malloc.hugetlb=0"}, GLIBC, MADVISE),
        ({SWITCH: "0"}, GLIBC, MADVISE),
        ({}, ("glibc", "2.34"), MADVISE),
        ({}, ("", ""), MADVISE),
        ({}, GLIBC, "[always] madvise never"),
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


@pytest.mark.skipif(
    platform.libc_ver() < ("glibc", "2.35"), reason="needs a glibc that can be asked"
)
def test_a_command_starts_once_more_as_it_was_started(tmp_path):
    folder = tmp_path / "commands"
    folder.mkdir()
    (folder / "__init__.py").write_text("open('starts', 'a').write('x')\n")
    (folder / "tell.py").write_text(COMMAND)
    (folder / "kernel").write_text(MADVISE)
    environment = {k: v for k, v in os.environ.items() if k not in (TUNABLES, SWITCH)}
    process = subprocess.Popen(
        [sys.executable, "-O", "-m", "commands.tell", "a -m b", "--c=d"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), "KEPT": "yes"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = process.communicate("a line")
    printed = {TUNABLES: "glibc.malloc.hugetlb=1", "KEPT": "yes"}
    assert out == f"{process.pid} ['a -m b', '--c=d'] {printed} a line 1\n"
    assert (process.returncode, (tmp_path / "starts").read_text()) == (3, "xx")
