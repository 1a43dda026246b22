"""Small models for the tests of exports, and their peer scripts."""

import dataclasses
import functools
import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

from t2t_jax.decoding.translator import Translator
from t2t_jax.model.model import build
from t2t_jax.tools.bridges.checks import peer_process
from tests.decoding.small_translator import CONFIG, renumbered, vocabulary


def needs(*packages):
    """Marks a test that runs other libraries: slow, and skipped without them."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    skip = pytest.mark.skipif(bool(missing), reason="the extra [peers] is missing")
    return lambda test: pytest.mark.slow(skip(test))


def random_like(shapes, scale=1.0, seed=0):
    """Random numbers in these shapes, for biases and norms too."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: rng.normal(0, scale, x.shape).astype(np.float32), shapes
    )


@functools.cache
def translator(own_source: bool = False, **model) -> Translator:
    """A model with NumPy's random numbers, for which nothing is compiled."""
    tokens = vocabulary()
    config = CONFIG
    if own_source:
        tokens = type(tokens)(tokens.model, tokens.name, renumbered(len(tokens)))
        data = dataclasses.replace(config.data, joint_vocabulary=False)
        config = dataclasses.replace(
            config, data=data, model=dataclasses.replace(config.model, tied="target")
        )
    config = dataclasses.replace(
        config, model=dataclasses.replace(config.model, **model)
    )
    built, rng = build(config.model, *tokens.sizes), np.random.default_rng(1)

    def value(x) -> np.ndarray:
        # Of the scale that training gives: all activations stay of the size of 1.
        fan_in = np.prod(x.shape[:-1]) if x.ndim > 1 else 4
        return (2 * fan_in**-0.5 * rng.normal(size=x.shape)).astype(np.float32)

    parameters = jax.tree.map(value, built.shapes)
    return Translator(config, tokens, built, parameters, [7])


def run_peer(script: str, task: str, folder: Path, **job):
    """Runs a peer script on the export in `folder`; returns its result."""
    return peer_process.run(script, task, model=str(folder), **job)
