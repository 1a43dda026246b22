"""Checks of the speed of what surrounds a training step: input, disk, beam search."""

import dataclasses
import tempfile
import time

import jax
import numpy as np

from t2t_jax.config import Config, ModelConfig, changed
from t2t_jax.data.feeding import feed, plan_for
from t2t_jax.decoding.batches import block_rows, bucket_for
from t2t_jax.parallel.machine import tree_bytes
from t2t_jax.tools.verify import measuring, speed
from t2t_jax.tools.verify.check import Context, Measured, Unavailable, reported
from t2t_jax.tools.verify.random_models import (
    random_lines,
    random_translator,
)
from t2t_jax.tools.verify.speed import (
    PIECES,
    check_time,
    cost_of,
    in_words,
    sizes,
    with_rows,
)

BEAM = 4


def feeder(context: Context) -> Measured:
    """Compares the rate of filled batches with what a step of base consumes.

    Both in tokens a second of source and target. Without planning, which happens once
    an epoch during training; its seconds are in the details.
    """
    check_time(context)
    step = cost_of(context, "base").tokens_per_second
    config = with_rows(Config(), speed.ACCELERATOR.rows["base"])  # configs/base.py
    config = changed(config, "data", feeder="numpy")  # needs no TensorFlow
    pairs = measuring.random_pairs(_lengths(sizes().pairs), PIECES)
    began = time.perf_counter()
    plan = plan_for(pairs, config.data, seed=0, epoch=0)
    planning = time.perf_counter() - began
    stream = (batch for _, batch in feed(pairs, config.data, seed=0))
    rate = measuring.feed_rate(stream, sizes().batches)
    return Measured(
        f"{rate / 1e6:,.1f}M tokens/s, {rate / step:,.0f} times a step of base",
        ">= 1 times",
        rate >= step,
        {"feeder": rate, "step": step, "planning": planning, "pairs": len(pairs)},
        (
            f"NumPy; {len(pairs):,} random pairs, batches of "
            f"{config.data.batch_tokens:,} tokens in rows of {config.data.row_length}, "
            f"{plan.efficiency:.3f} of them filled; an epoch is planned in "
            f"{planning:.2f} s, during training",
        ),
    )


def _lengths(count: int) -> list[np.ndarray]:
    """Log-normal lengths of sentences, of mean 28 and 31 tokens."""
    rng = np.random.default_rng(0)
    spread = 0.5  # of the logarithm; the mean is exp(mu + spread^2 / 2)
    return [
        np.clip(
            rng.lognormal(np.log(mean) - spread**2 / 2, spread, count).astype(int),
            2,
            128,
        )
        for mean in (28, 31)
    ]


def saving(context: Context) -> Measured:
    """Saves and restores a state; compares with one plain file of as many bytes.

    The file is written, fsynced and hashed. Ours has a SHA-256 of every file, which is
    compared when it is restored (docs/surviving.md).
    """
    check_time(context)
    config = changed(Config(), "model", **sizes().state)
    trainer = measuring.Trainer(config, sizes().state_pieces)
    state = measuring.with_noise(trainer.state)
    size = tree_bytes(state)
    folder = context.folder("saving")
    plain = measuring.plain_file(folder, size)
    ours = measuring.saved_and_restored(folder / "run", state, trainer.steps.shapes)
    disk = size / (plain["written"] + plain["hashed"])
    return reported(
        f"blocks {ours['blocked']:.2f} s, complete after {ours['complete']:.2f} s "
        f"(plain file: {plain['written'] + plain['hashed']:.2f} s), restored in "
        f"{ours['restored']:.2f} s",
        {"bytes": size, "plain": plain, **ours},
        (
            f"{size / 1e6:,.0f} MB of state ({trainer.model.count():,} parameters"
            f"{', base shrunk for a CPU' if sizes().state else ''}), "
            f"{ours['on_disk'] / 1e6:,.0f} MB on disk, in {tempfile.gettempdir()}",
            f"plain file: written and fsynced in {plain['written']:.2f} s, read and "
            f"hashed in {plain['hashed']:.2f} s, {disk / 1e6:,.0f} MB/s",
        ),
    )


def decode(context: Context) -> Measured:
    """Translates with a random base model, to a fixed length."""
    check_time(context)
    count, source, target = sizes().decoded
    rate, _ = _decoded("decode", sizes().decoded, batch_tokens=0)
    return reported(
        f"{rate:,.1f} sentences/s, {rate * target:,.0f} tokens/s",
        {"sentences_per_second": rate, "tokens_per_second": rate * target},
        (
            f"{_model('decode')}, beam {BEAM}, {PIECES:,} tokens; {count} lines of "
            f"{source} tokens to exactly {target}",
        ),
    )


def decode_batch(context: Context) -> Measured:
    """Compares how many lines are searched together: `config.decode.batch_tokens`."""
    check_time(context)
    count, source, target = sizes().compared
    rates, rows = {}, []
    for batch_tokens in sizes().batch_tokens:
        rate, in_block = _decoded("decode_batch", sizes().compared, batch_tokens)
        rates[batch_tokens] = rate
        rows.append(f"{batch_tokens:,} ({in_block} lines): {rate:,.1f} sentences/s")
    best = max(rates, key=rates.get)
    default = 512 if jax.default_backend() == "cpu" else 16_384
    return reported(
        f"best {best:,}; the default, {default:,}, reaches "
        f"{rates[default] / rates[best]:.0%} of it",
        {str(tokens): rate for tokens, rate in rates.items()},
        (
            f"{_model('decode_batch')}, beam {BEAM}; {count:,} lines of {source} "
            f"tokens to exactly {target}",
            *rows,
        ),
    )


def _model(check: str) -> str:
    changes = in_words(sizes().decoders[check])
    shrunk = f" shrunk to {changes}" if changes else ""
    return f"one device, random base model{shrunk}"


def _decoded(
    check: str, lengths: tuple[int, int, int], batch_tokens: int
) -> tuple[float, int]:
    """Sentences/s of the second of two calls, and the lines in a block."""
    count, source, target = lengths
    model = dataclasses.replace(ModelConfig(), **sizes().decoders[check])
    one = jax.devices()[:1]
    translator = random_translator(model, PIECES, 1, source, target, batch_tokens, one)
    lines = random_lines(count, source, PIECES)
    spent = []
    for _ in range(2):  # the first one compiles
        began = time.perf_counter()
        translations = translator.translate(lines, beam=BEAM, warn=False)
        spent.append(time.perf_counter() - began)
    lengths = {len(each.best.tokens) for each in translations}
    if lengths != {target}:
        raise Unavailable(f"outputs have {sorted(lengths)} tokens, not {target}")
    decode = translator.config.decode
    return count / spent[-1], block_rows(bucket_for(source), decode)
