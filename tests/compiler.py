"""Ways to compile that save the tests' time."""

import contextlib
import dataclasses
from unittest import mock

import jax

from t2t_jax.training import loop, losses

FAST = "jax_disable_most_optimizations"


@contextlib.contextmanager
def optimizations(on):
    """Programs are compiled with or without; none that was made before is used."""
    before = jax.config.read(FAST)
    jax.clear_caches()
    jax.config.update(FAST, not on)
    yield
    jax.config.update(FAST, before)
    jax.clear_caches()


def quick_environment():
    """The same for processes whose numbers have a tolerance."""
    return {FAST.upper(): "1"}


# Fields of `config.train` that say when a run does something, not what a step is.
WHEN = ("steps", "minutes", "log_every", "eval_every", "save_every", "patience")


@contextlib.contextmanager
def compiled_once():
    """Runs of the same model and training share their compiled functions."""
    compiled, compile_steps = {}, loop.compile_steps

    def once(model, config, mesh, bos, frozen):
        fields = dataclasses.asdict(config.train)
        for name in WHEN:
            del fields[name]
        # The loss may be one that a test has put in its place.
        parts = config.model, fields, model.count(), mesh, bos, frozen
        key = repr(parts), losses.projected
        if key not in compiled:
            compiled[key] = compile_steps(model, config, mesh, bos, frozen)
        return compiled[key]

    with mock.patch.object(loop, "compile_steps", once):
        yield
