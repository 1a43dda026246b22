"""The checks of `verify`, in the order in which they run."""

from functools import partial

from t2t_jax.tools.verify import determinism, memory, numbers, workdir_checks
from t2t_jax.tools.verify.check import Check

# What makes a check of each group.
determined, numeric, workdir = (
    partial(Check, "determinism"),
    partial(Check, "numbers"),
    partial(Check, "workdir"),
)
# Name (of --only) -> check.
CHECKS = {
    "twice": determined("two runs write the same bytes", determinism.twice),
    "resume": determined(
        "after SIGKILL a run ends in the same bytes", determinism.resume
    ),
    "processes": determined("two processes train as one", determinism.processes, False),
    "devices": determined("all devices train as one", determinism.devices),
    "lines": determined("a translation depends on its line alone", determinism.lines),
    "forward": numeric("logits are the float64 twin's", numbers.forward),
    "default_precision": numeric(
        "the same with this backend's products", numbers.default_precision
    ),
    "reductions": numeric("sums of products are those in float64", numbers.reductions),
    "gradients": numeric("gradients are those in float64", numbers.gradients),
    "adam": numeric("3 steps of Adam as in float64", numbers.adam_steps),
    "bfloat16": numeric("bfloat16 is near: logits, loss", numbers.bfloat16),
    "golden": numeric("losses at a seed are the stored ones", numbers.golden),
    "fused": numeric("fused attention is dense: results, gradients", numbers.fused),
    "cached": numeric("cached steps are teacher forcing", numbers.cached),
    "packing": numeric("packed sentences are as alone", numbers.packing),
    "padding": numeric("padding changes nothing", numbers.padding),
    "beam": numeric("a wide beam is exhaustive search", numbers.beam),
    "memory": numeric(
        "a step takes no more memory than plan says", memory.memory, False
    ),
    # With --workdir.
    "checkpoints": workdir("checkpoints are as written", workdir_checks.checkpoints),
    "tokenizer": workdir(
        "config, tokenizer as recorded; lossless", workdir_checks.tokenizer
    ),
    "metrics": workdir("the log fits the checkpoints", workdir_checks.metrics),
    "scores": workdir("scores follow from translations", workdir_checks.scores),
    "translations": workdir(
        "translations follow from parameters", workdir_checks.translations
    ),
    "trains": workdir("the config trains", workdir_checks.trains),
}
