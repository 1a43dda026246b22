"""Fast sorting is NumPy's stable argsort."""

import numpy as np
import pytest

from t2t_jax.data.drawing import column_orders, stable_order


@pytest.mark.parametrize("pairs", [0, 1, 2, 1000, 1025])
@pytest.mark.parametrize("different", [1, 7, 1 << 20, 1 << 64])
def test_indices_are_sorted_stably_whatever_is_equal(pairs, different):
    rng = np.random.default_rng(pairs)
    key_p = rng.integers(0, different - 1, pairs, np.uint64, endpoint=True)
    if pairs > 2 and different == 1 << 64:  # equal but for their last bits
        key_p[: pairs // 2] = key_p[0] ^ np.arange(pairs // 2, dtype=np.uint64)[::-1]
    wanted = np.argsort(key_p, kind="stable")
    np.testing.assert_array_equal(stable_order(key_p), wanted)


def test_narrow_keys_are_sorted_stably():
    key_p = np.random.default_rng(0).integers(0, 300, 5000).astype(np.int32)
    wanted = np.argsort(key_p, kind="stable")
    np.testing.assert_array_equal(stable_order(key_p, bits=32), wanted)


def test_columns_are_sorted_stably_each_by_itself():
    key_iw = np.random.default_rng(0).integers(0, 50, (300, 7))
    wanted = np.argsort(key_iw, axis=0, kind="stable")
    np.testing.assert_array_equal(column_orders(key_iw), wanted)
