"""Huge pages on Linux, which a process has to request before it starts.

XLA on a CPU allocates large buffers at every step. In pages of 4 KiB they are slow to
allocate and slow to address. glibc uses pages of 2 MiB only if an environment variable
is set when the process starts. A command started without it therefore re-executes
itself once, before anything heavy is imported: same process id, arguments and files.

This imports only the standard library, since it runs before everything else.
"""

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

SWITCH = "T2T_JAX_HUGE_PAGES"  # 0 turns this off
TUNABLES = "GLIBC_TUNABLES"
REQUEST = "glibc.malloc.hugetlb"
SINCE = (2, 35)  # the first glibc that knows the request
KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def restart_if_useful() -> None:
    """Re-executes this command with huge pages where they help and are not yet on."""
    if not _is_command() or sys.platform != "linux":
        return
    # A debugger, profiler or coverage that is active here would not survive.
    if sys.gettrace() or sys.getprofile():
        return
    environment = needed_environment(os.environ, platform.libc_ver(), _kernel())
    if environment is None:
        return
    # orig_argv has the options of the interpreter, such as `-m`, which sys.argv lacks.
    try:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    except OSError:
        return  # slower, but otherwise the same


def _is_command() -> bool:
    """True if `__main__` is what this process was started for.

    False where `runpy` runs a command within another program: a restart would start
    that program again.
    """
    started = sys.orig_argv[1:]
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None:  # a script, such as the installed `t2t_jax`
        return any(sys.argv[0].startswith(argument) for argument in started[:1])
    module = spec.name.removesuffix(".__main__")
    return "-m" in started and started[started.index("-m") + 1] == module


def needed_environment(
    environment: Mapping[str, str], libc: tuple[str, str], kernel: str
) -> dict[str, str] | None:
    """The environment to restart with; None if a restart changes nothing.

    Args:
      libc: name and version, as `platform.libc_ver` returns them.
      kernel: Linux's setting for huge pages, such as `always [madvise] never`.
    """
    # With `always` the kernel uses huge pages anyway, with `never` not at all.
    name, version = libc
    numbers = tuple(int(n) for n in version.split(".")[:2] if n.isdecimal())
    if name != "glibc" or numbers < SINCE or "[madvise]" not in kernel:
        return None
    current = environment.get(TUNABLES, "")
    if REQUEST in current or environment.get(SWITCH) == "0":
        return None
    tunables = f"{current}:{REQUEST}=1" if current else f"{REQUEST}=1"
    # SWITCH is 0 in the new process, so that it restarts only once, even if glibc drops
    # the request.
    return {**environment, TUNABLES: tunables, SWITCH: "0"}


def _kernel() -> str:
    try:
        return KERNEL.read_text()
    except OSError:  # a kernel without huge pages
        return ""
