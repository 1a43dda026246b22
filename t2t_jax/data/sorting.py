"""Stable sorting of integers, as `np.argsort`, in a tenth of its time.

NumPy sorts values with vector instructions and indices without. So an integer and its
index are put into one 64-bit number, and the numbers are sorted.
"""

import numpy as np


def stable_order(key_p: np.ndarray, bits: int = 64) -> np.ndarray:
    """The same as `np.argsort(key_p, kind="stable")`, int64 [keys].

    key_p: integers [keys] from 0 up to, not including, 2 ** bits.

    Where a key and an index need more than 64 bits together, the last bits of the keys
    are left out, and the few that are equal but for them are sorted again.
    """
    index_bits = np.uint64(max(len(key_p) - 1, 0).bit_length())
    both_p = key_p.astype(np.uint64)
    both_p <<= np.uint64(64 - bits)
    both_p >>= index_bits
    both_p <<= index_bits
    both_p |= np.arange(len(key_p), dtype=np.uint64)
    both_p.sort()
    order_p = (both_p & np.uint64((1 << int(index_bits)) - 1)).view(np.int64)
    if bits + index_bits > 64:
        both_p >>= index_bits
        same = both_p[1:] == both_p[:-1]
        tied_p = np.flatnonzero(np.append(same, False) | np.append(False, same))
        tied = order_p[tied_p]
        order_p[tied_p] = tied[np.argsort(key_p[tied], kind="stable")]
    return order_p


def column_orders(key_iw: np.ndarray) -> np.ndarray:
    """The same as `np.argsort(key_iw, axis=0, kind="stable")`, int64 [steps, columns].

    key_iw: integers [steps, columns] >= 0 that fit into 64 bits together with a step.
    """
    index_bits = max(len(key_iw) - 1, 0).bit_length()
    both_iw = key_iw.astype(np.int64) << index_bits
    both_iw |= np.arange(len(key_iw))[:, None]
    both_iw.sort(axis=0)
    both_iw &= (1 << index_bits) - 1
    return both_iw
