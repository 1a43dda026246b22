"""`examples/transformer.py` as a module, and once more with NumPy: in float64."""

import importlib.util

import numpy as np

from tests.small_run import ROOT

FILE = ROOT / "examples/transformer.py"


def _loaded(name):
    spec = importlib.util.spec_from_file_location(name, FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


in_jax, in_numpy = _loaded("one_file"), _loaded("one_file_in_numpy")
in_numpy.jnp = np
