"""The number of cores that this process may use."""

import os


def core_count() -> int:
    """The number of cores that this process may use."""
    # The affinity mask knows of taskset and Slurm; `cpu_count` counts all cores.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
