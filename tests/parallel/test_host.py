"""Freed memory is kept for the next step, where the C library can be asked."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource
import numpy as np
from t2t_jax.parallel.process_setup import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(50 << 20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(), faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_second_allocation_asks_the_kernel_for_nothing():
    counts = [
        int(subprocess.check_output([sys.executable, "-c", CODE.format(keep=keep)]))
        for keep in (False, True)
    ]
    assert counts[1] < 50 < counts[0]
