"""Huge pages for the commands on Linux, which a process has to ask for as it starts.

XLA on a CPU takes large blocks of memory at every step. In pages of 4 KiB the kernel
hands them out, and the processor finds them, slowly; glibc asks for pages of 2 MiB only
where a variable of the environment says so from the start. So a command that was
started without it starts itself once more, before anything is imported: the same
process, with the same arguments and files.

This knows nothing but the standard library: it runs before all else.
"""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SWITCH = "T2T_JAX_HUGE_PAGES"  # 0 turns this off
TUNABLES = "GLIBC_TUNABLES"
WISH = "glibc.malloc.hugetlb"
SINCE = (2, 35)  # the first glibc that knows the wish
KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def start_again(package: str) -> None:
    """Where `python -m package.X` is finding X: once more, with huge pages if it helps.

    Python calls itself `-m` until it has found the module, so neither a notebook nor a
    program that imports the package is ever started again.
    """
    command = [*getattr(sys, "orig_argv", ())]
    if getattr(sys, "argv", [""])[:1] != ["-m"] or not _starts(command, package):
        return
    if sys.platform != "linux" or sys.gettrace() or sys.getprofile():
        return
    environment = wanted(os.environ, platform.libc_ver(), _kernel())
    if environment is None:
        return
    try:
        os.execve(sys.executable, [sys.executable, *command[1:]], environment)
    except OSError:
        return  # slower, and otherwise the same


def wanted(
    environment: Mapping[str, str], libc: tuple[str, str], kernel: str
) -> dict[str, str] | None:
    """The environment to start with; None where it is as it should be.

    Args:
      libc: its name and version, as `platform.libc_ver` says them.
      kernel: what Linux gives huge pages to, such as `always [madvise] never`.
    """
    name, version = libc
    numbers = tuple(int(n) for n in version.split(".")[:2] if n.isdecimal())
    if name != "glibc" or numbers < SINCE or "[madvise]" not in kernel:
        return None
    given = environment.get(TUNABLES, "")
    if WISH in given or environment.get(SWITCH) == "0":
        return None
    both = f"{given}:{WISH}=1" if given else f"{WISH}=1"
    # Off in what is started: it happens once, even if glibc were to drop the wish.
    return {**environment, TUNABLES: both, SWITCH: "0"}


def _starts(command: Sequence[str], package: str) -> bool:
    """Whether a command line is of a module of the package."""
    following = command[command.index("-m") + 1 :] if "-m" in command else []
    return bool(following) and following[0].startswith(f"{package}.")


def _kernel() -> str:
    try:
        return KERNEL.read_text()
    except OSError:  # a kernel without them
        return ""
