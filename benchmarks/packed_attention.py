"""Fused attention over the sentences of packed rows, next to the same with a mask.

    python -m benchmarks.packed_attention
    python -m benchmarks.packed_attention --rows=192 --length=1024 --heads=16

cuDNN takes a mask as a dense bias and skips no block of keys. It also takes where each
sentence of a row begins and how long it is (`benchmarks/sentence_attention.py`). Each
case first has to give the values and gradients of `attention.dense`, or the benchmark
fails. No GPU has run it.

On a device that cannot run it (cuDNN supports it from compute capability 9.0 on), a
loop over sentences that reads the same arrays stands for it, and nothing is timed.

Shape suffixes: b batch, t queries, s keys, h heads, k head width, m sentences of a row.
"""

import itertools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from jax import Array

from benchmarks import measuring, run, sentence_attention
from t2t_jax.io.errors import UserError
from t2t_jax.model import kernels
from t2t_jax.model.attention import KV, NO_POSITION, dense
from t2t_jax.model.layers import Dropout
from t2t_jax.model.mask import Mask, Tokens


def looped(q_bthk: Array, kv: KV, mask: Mask, longest: int) -> Array:
    """`by_sentence` as a loop over the sentences, outside `jax.jit`."""
    y_bthk = jnp.zeros_like(q_bthk)
    (q_length, q_offset), (k_length, k_offset) = (
        jax.tree.map(np.asarray, sentence_attention.sentences(tokens.segment, longest))
        for tokens in (mask.query, mask.key)
    )
    for b, m in np.argwhere(q_length > 0):
        sentence = slice(q_offset[b, m], q_offset[b, m] + q_length[b, m])
        keys = slice(k_offset[b, m], k_offset[b, m] + k_length[b, m])
        y_1thk = jax.nn.dot_product_attention(
            q_bthk[b : b + 1, sentence],
            kv.k_bshk[b : b + 1, keys],
            kv.v_bshk[b : b + 1, keys],
            is_causal=mask.causal,
        )
        y_bthk = y_bthk.at[b, sentence].set(y_1thk[0])
    return y_bthk


def with_mask(q_bthk: Array, kv: KV, mask: Mask, longest: int) -> Array:
    """The call that training makes today."""
    return kernels.cudnn(q_bthk, kv, mask)


def plain(q_bthk: Array, kv: KV, mask: Mask, longest: int) -> Array:
    """Attention by its formula, in float32."""
    q_bthk, kv = jax.tree.map(lambda x: x.astype(jnp.float32), (q_bthk, kv))
    return dense(q_bthk, kv, mask, NO_POSITION, Dropout(0.0, None))


def packed_rows(rng: np.random.Generator, rows: int, lengths: tuple[int, int]):
    """Draws the tokens of packed rows: as many sentences in source as in target.

    Returns:
      `Tokens` of each side, and the largest number of sentences of a row.
    """
    segments = [np.zeros((rows, length), np.int32) for length in lengths]
    for row in range(rows):
        begin_2 = np.zeros(2, int)
        for number in itertools.count(1):
            end_2 = begin_2 + 1 + rng.gamma(2.0, 13.0, 2).astype(int)
            if number > 1 and (end_2 > lengths).any():
                break
            for segment_bt, begin, end in zip(segments, begin_2, end_2, strict=True):
                segment_bt[row, begin:end] = number
            begin_2 = end_2
    longest = int(max(segment_bt.max() for segment_bt in segments))
    return [Tokens(jnp.asarray(x), jnp.zeros_like(x)) for x in segments], longest


def gradient(attend: Callable, mask: Mask, longest: int) -> Callable:
    """(queries, keys and values) -> a loss over real tokens and its gradients."""
    real_bt11 = (mask.query.segment > 0)[..., None, None]

    def loss(q_bthk, kv):
        y_bthk = attend(q_bthk, kv, mask, longest).astype(jnp.float32)
        return jnp.sum(jnp.where(real_bt11, y_bthk, 0) ** 2)

    return jax.value_and_grad(loss, (0, 1))


def check(name: str, computed, expected, tolerance: float) -> None:
    """Raises UserError if arrays differ by more than a share of the largest entry."""
    trees = jax.tree.leaves(computed), jax.tree.leaves(expected)
    for leaves in zip(*trees, strict=True):
        x, y = (np.asarray(leaf, np.float32) for leaf in leaves)
        apart = np.abs(x - y).max() / np.abs(y).max()
        if not apart <= tolerance:
            raise UserError(
                f"{name}: attention by sentences differs from that by its formula by "
                f"{apart:.2g} of the largest entry; want at most {tolerance:g}"
            )


def is_capable(device: jax.Device) -> bool:
    """Does cuDNN support packed rows on this device?"""
    return float(getattr(device, "compute_capability", 0) or 0) >= 9


def define_flags():
    measuring.define_flags()
    for name, default in (("rows", 32), ("length", 128), ("heads", 8), ("width", 64)):
        flags.DEFINE_integer(name, default, f"{name} of the arrays.", lower_bound=1)


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    rng = np.random.default_rng(0)
    (source, target), longest = packed_rows(rng, args.rows, 2 * (args.length,))
    capable = is_capable(jax.devices()[0])
    rows = []
    for name, query, key, causal in (
        ("encoder", source, source, False),
        ("decoder", target, target, True),
        ("decoder to encoder", target, source, False),
    ):
        mask = Mask(query, key, causal=causal, aligned=query is key)
        shape = args.rows, args.length, args.heads, args.width
        q, k, v = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for _ in range(3))
        arrays = q, KV(k, v)
        expected = jax.jit(gradient(plain, mask, longest))(*arrays)
        if not capable:
            check(name, gradient(looped, mask, longest)(*arrays), expected, 0.05)
            rows.append({"attention": name, "call": "a loop over sentences"})
            continue
        calls = {
            "by sentences": jax.jit(
                gradient(sentence_attention.by_sentence, mask, longest)
            ),
            "with a mask": jax.jit(gradient(with_mask, mask, longest)),
        }
        for call in calls.values():
            check(name, call(*arrays), expected, 0.05)

        def milliseconds(call, arrays=arrays):
            began = time.perf_counter()
            for _ in range(20):
                results = call(*arrays)
            jax.block_until_ready(results)
            return 1e3 * (time.perf_counter() - began) / 20

        medians = measuring.alternate(
            {n: lambda call=call: milliseconds(call) for n, call in calls.items()},
            args.rounds,
        )
        for call, median in medians.items():
            ratio = medians["with a mask"] / median
            rows.append({"attention": name, "call": call, "ms": median, "speed": ratio})
    measuring.publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags)
