"""Checks of the speed of beam search, with a random model."""

import dataclasses
import time
from typing import NamedTuple

import jax

from t2t_jax.config import ModelConfig
from t2t_jax.decoding.batches import block_rows, bucket_for
from t2t_jax.tools.verify.check import Measured, Unavailable
from t2t_jax.tools.verify.context import Context
from t2t_jax.tools.verify.random_models import random_lines, random_translator
from t2t_jax.tools.verify.speed import PIECES, in_time

BEAM = 4


class Sizes(NamedTuple):
    """How much is measured on a kind of device.

    Attributes:
      decoded: (sentences, tokens of each source, of each output).
      model: changes to base, by check.
      batch_tokens: values of `config.decode.batch_tokens` to compare.
      compared: as `decoded`, for these.
    """

    decoded: tuple[int, int, int]
    model: dict[str, dict]
    batch_tokens: tuple[int, ...]
    compared: tuple[int, int, int]


ACCELERATOR = Sizes(
    decoded=(512, 32, 64),
    model={"decode": {}, "decode_batch": {"layers": 2}},  # fewer compile sooner
    batch_tokens=(4_096, 16_384, 65_536),
    compared=(2_048, 32, 64),
)
# Platform -> sizes; `ACCELERATOR` for all others.
SIZES = {
    "cpu": Sizes(
        decoded=(16, 16, 32),
        model={
            "decode": {"layers": 2},
            "decode_batch": {"layers": 2, "width": 128, "heads": 4, "hidden": 512},
        },
        batch_tokens=(256, 512, 1_024),
        compared=(64, 16, 32),
    )
}


def sizes() -> Sizes:
    """The sizes for this machine's devices."""
    return SIZES.get(jax.default_backend(), ACCELERATOR)


@in_time
def decode(context: Context) -> Measured:
    """Translates with a random base model, to a fixed length."""
    count, source, target = sizes().decoded
    rate, _ = _decoded("decode", sizes().decoded, batch_tokens=0)
    return Measured(
        f"{rate:,.1f} sentences/s, {rate * target:,.0f} tokens/s",
        "",
        None,
        {"sentences_per_second": rate, "tokens_per_second": rate * target},
        (
            f"{_model('decode')}, beam {BEAM}, {PIECES:,} pieces; {count} lines of "
            f"{source} tokens to exactly {target}",
        ),
    )


@in_time
def decode_batch(context: Context) -> Measured:
    """Compares how many lines are searched together: `config.decode.batch_tokens`."""
    count, source, target = sizes().compared
    rates, rows = {}, []
    for batch_tokens in sizes().batch_tokens:
        rate, in_block = _decoded("decode_batch", sizes().compared, batch_tokens)
        rates[batch_tokens] = rate
        rows.append(f"{batch_tokens:,} ({in_block} lines): {rate:,.1f} sentences/s")
    best = max(rates, key=rates.get)
    default = 512 if jax.default_backend() == "cpu" else 16_384
    return Measured(
        f"best {best:,}; the default, {default:,}, reaches "
        f"{rates[default] / rates[best]:.0%} of it",
        "",
        None,
        {str(tokens): rate for tokens, rate in rates.items()},
        (
            f"{_model('decode_batch')}, beam {BEAM}; {count:,} lines of {source} "
            f"tokens to exactly {target}",
            *rows,
        ),
    )


def _model(check: str) -> str:
    changes = ", ".join(f"{k}={v}" for k, v in sizes().model[check].items())
    shrunk = f" shrunk to {changes}" if changes else ""
    return f"one device, random base model{shrunk}"


def _decoded(
    check: str, lengths: tuple[int, int, int], batch_tokens: int
) -> tuple[float, int]:
    """Sentences/s of the second of two calls, and the lines in a block.

    Raises:
      Unavailable: an output has another length, so a rate would mean nothing.
    """
    count, source, target = lengths
    model = dataclasses.replace(ModelConfig(), **sizes().model[check])
    one = jax.devices()[:1]
    translator = random_translator(model, PIECES, 1, source, target, batch_tokens, one)
    lines = random_lines(count, source, PIECES)
    spent = []
    for _ in range(2):  # the first one compiles
        began = time.perf_counter()
        found = translator.translate(lines, beam=BEAM, warn=False)
        spent.append(time.perf_counter() - began)
    lengths = {len(each.best.tokens) for each in found}
    if lengths != {target}:
        raise Unavailable(f"outputs have {sorted(lengths)} tokens, not {target}")
    decode = translator.config.decode
    return count / spent[-1], block_rows(bucket_for(source), decode)
