"""The checks of `verify`, in the order in which they run."""

from t2t_jax.verification import (
    numbers,
    speed,
    speed_around,
    speed_compared,
    workdir_files,
    workdir_results,
)
from t2t_jax.verification.check import Check

# Name (of --only) -> check.
CHECKS = {
    "forward": Check("numbers", "logits as the float64 twin has them", numbers.forward),
    # In this order: on a GPU the allocator's peak of memory only rises, so that of
    # base is known only before anything larger has run.
    "matrix": Check("speed", "matrix products by dtype, and memory", speed.matrix),
    "base_step": Check("speed", "a training step of base", speed.base_step, False),
    "base_memory": Check(
        "speed", "base takes no more than plan says", speed.base_memory, False
    ),
    "big_step": Check("speed", "a training step of big", speed.big_step, False),
    "big_memory": Check(
        "speed", "big takes no more than plan says", speed.big_memory, False
    ),
    "dtypes": Check(
        "speed", "a step in bfloat16 and float32", speed_compared.dtypes, False
    ),
    "attention": Check(
        "speed", "fused attention beside dense", speed_compared.attention, False
    ),
    "scaling": Check("speed", "all devices beside one", speed_compared.scaling, False),
    "feeder": Check(
        "speed", "batches are filled before a step ends", speed_around.feeder, False
    ),
    "checkpoint": Check(
        "speed", "a checkpoint beside a plain file", speed_around.checkpoint, False
    ),
    "decode": Check("speed", "beam search with base", speed_around.decode, False),
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
    "trains": Check("workdir", "the config trains", workdir_results.trains),
}
