"""Windows of neighbouring tokens, for convolutions that do not cross sentences.

Shape suffixes: b batch, t length, k taps of the kernel, d width.
"""

import jax.numpy as jnp
from jax import Array


def windows(x_btd: Array, segment_bt: Array, offsets: tuple[int, ...]) -> Array:
    """Returns the neighbours of each token, [b, t, k, d]: tap i is `offsets[i]` away.

    A neighbour outside the row or in another sentence is zeros, as if each sentence
    were padded with zeros.
    """
    t = x_btd.shape[1]
    before, after = max(0, -min(offsets)), max(0, max(offsets))
    x_btd = jnp.pad(x_btd, ((0, 0), (before, after), (0, 0)))
    # -1 differs from every segment, also from that of padding.
    around_bt = jnp.pad(segment_bt, ((0, 0), (before, after)), constant_values=-1)
    taps = []
    for offset in offsets:
        near = slice(before + offset, before + offset + t)
        same_bt = around_bt[:, near] == segment_bt
        taps.append(jnp.where(same_bt[..., None], x_btd[:, near], 0.0))
    return jnp.stack(taps, axis=2)
