"""The checks of `verify`, in the order in which they run."""

from functools import partial

from t2t_jax.tools.verify import (
    agreement,
    determinism,
    numbers,
    speed,
    speed_around,
    workdir_files,
    workdir_results,
)
from t2t_jax.tools.verify.check import Check

# Name (of --only) -> check.
CHECKS = {
    # First those that start processes: they need a TPU that this one has not taken yet.
    "twice": Check("determinism", "two runs write the same bytes", determinism.twice),
    "resume": Check(
        "determinism", "after SIGKILL a run ends in the same bytes", determinism.resume
    ),
    "processes": Check(
        "determinism", "two processes train as one", determinism.processes, quick=False
    ),
    "devices": Check("determinism", "all devices train as one", determinism.devices),
    "lines": Check(
        "determinism", "a translation depends on its line alone", determinism.lines
    ),
    "forward": Check("numbers", "logits are the float64 twin's", numbers.forward),
    "default_precision": Check(
        "numbers", "the same with this backend's products", numbers.default_precision
    ),
    "gradients": Check("numbers", "gradients are those in float64", numbers.gradients),
    "adam": Check("numbers", "3 steps of Adam as in float64", numbers.adam_steps),
    "bfloat16": Check("numbers", "bfloat16 is near: logits, loss", numbers.bfloat16),
    "golden": Check("numbers", "losses at a seed are the stored ones", numbers.golden),
    "fused": Check(
        "numbers", "fused attention is dense: results, gradients", agreement.fused
    ),
    "cached": Check("numbers", "cached steps are teacher forcing", agreement.cached),
    "packing": Check("numbers", "packed sentences are as alone", agreement.packing),
    "padding": Check("numbers", "padding changes nothing", agreement.padding),
    "beam": Check("numbers", "a wide beam is exhaustive search", agreement.beam),
    # In this order: on a GPU the allocator's peak of memory only rises, so that of
    # base is known only before anything larger has run. What is last may come too late
    # (`speed.check_time`).
    "matrix": Check("speed", "matrix products by dtype, and memory", speed.matrix),
    "base_step": Check(
        "speed",
        "a training step of base",
        partial(speed.step, name="base"),
        quick=False,
    ),
    "base_memory": Check(
        "speed",
        "base takes no more than plan says",
        partial(speed.memory, name="base"),
        quick=False,
    ),
    "big_step": Check(
        "speed", "a training step of big", partial(speed.step, name="big"), quick=False
    ),
    "big_memory": Check(
        "speed",
        "big takes no more than plan says",
        partial(speed.memory, name="big"),
        quick=False,
    ),
    "attention": Check("speed", "fused and dense attention", speed.attention, False),
    "decode": Check("speed", "beam search with base", speed_around.decode, False),
    "feeder": Check(
        "speed", "batches are filled before a step ends", speed_around.feeder, False
    ),
    "saving": Check(
        "speed", "a checkpoint compared with a plain file", speed_around.saving, False
    ),
    "dtypes": Check("speed", "a step in bfloat16 and float32", speed.dtypes, False),
    "scaling": Check("speed", "all devices compared with one", speed.scaling, False),
    "decode_batch": Check(
        "speed", "lines searched together", speed_around.decode_batch, False
    ),
    # With --workdir.
    "checkpoints": Check(
        "workdir", "checkpoints are as written", workdir_files.checkpoints
    ),
    "tokenizer": Check(
        "workdir", "config, tokenizer as recorded; lossless", workdir_files.tokenizer
    ),
    "metrics": Check("workdir", "the log fits the checkpoints", workdir_files.metrics),
    "scores": Check(
        "workdir", "scores follow from translations", workdir_results.scores
    ),
    "translations": Check(
        "workdir", "translations follow from parameters", workdir_results.translations
    ),
    "trains": Check("workdir", "the config trains", workdir_files.trains),
}
