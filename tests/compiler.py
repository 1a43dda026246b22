"""Ways to compile that save the tests' time."""

import contextlib
import dataclasses
import os
from unittest import mock

import jax
import jaxlib

from t2t_jax.training import loop, losses

FAST = "jax_disable_most_optimizations"


@contextlib.contextmanager
def optimizations(on):
    """Programs are compiled with or without; none that was made before is used.

    So it is in commands that are started meanwhile.
    """
    before = jax.config.read(FAST)
    jax.clear_caches()
    jax.config.update(FAST, not on)
    with mock.patch.dict(os.environ, {FAST.upper(): str(int(not on))}):
        yield
    jax.config.update(FAST, before)
    jax.clear_caches()


# Programs that are slower and may round otherwise, made in half the time.
OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_llvm_disable_expensive_passes": True,
}
if jaxlib.version.__version_info__ < (0, 12):  # later ones no longer have it
    OPTIONS["xla_cpu_use_fusion_emitters"] = False


def quick_jit(function, **options):
    """`jax.jit` of a program of which only numbers within a tolerance are wanted."""
    return jax.jit(function, compiler_options=OPTIONS, **options)


# Fields of `config.train` that say when a run does something, not what a step is.
WHEN = ("steps", "minutes", "log_every", "eval_every", "save_every", "patience")


COMPILED = {}  # of all files of tests that share them


@contextlib.contextmanager
def compiled_once():
    """Runs of the same model and training share their compiled functions."""
    compile_steps = loop.compile_steps

    def once(model, config, mesh, bos, frozen):
        fields = dataclasses.asdict(config.train)
        for name in WHEN:
            del fields[name]
        # The loss may be one that a test has put in its place.
        parts = config.model, fields, model.count(), mesh, bos, frozen
        key = repr(parts), losses.projected
        if key not in COMPILED:
            COMPILED[key] = compile_steps(model, config, mesh, bos, frozen)
        return COMPILED[key]

    with mock.patch.object(loop, "compile_steps", once):
        yield
