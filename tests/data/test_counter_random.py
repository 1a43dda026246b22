"""Random numbers that are a pure function of their keys."""

import numpy as np
import pytest

from t2t_jax.text.counter_random import Stream, hashed, uniform


def test_known_answers():
    """The first outputs of SplitMix64 with seed 0, and numbers that must not change."""
    increment = 0x9E3779B97F4A7C15
    for key, output in [(0, 0xE220A8397B1DCDAF), (increment, 0x6E789E6AA1B965F4)]:
        assert uniform(key) == (output >> 11) / 2**53
    pinned = [0.33357203146466263, 0.1588900759943681, 0.6912595630656752]
    np.testing.assert_array_equal(uniform(3, 1, np.arange(3)), pinned)


def test_any_key_changes_the_number():
    keys = (5, 0, 7, 1)
    others = [keys[:i] + (keys[i] + 1,) + keys[i + 1 :] for i in range(4)]
    others += [keys[::-1], (*keys, 0), (0, *keys), keys[1:]]
    assert len({float(uniform(*key)) for key in [keys, *others]}) == 9


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64, np.uint64])
def test_broadcasts_and_ignores_the_type_of_integers(dtype):
    rows, columns = np.arange(40_000, 40_003), np.arange(4)
    wanted = [[uniform(9, int(r), int(c)) for c in columns] for r in rows]
    keys = rows.astype(dtype)[:, None], columns.astype(dtype)
    np.testing.assert_array_equal(uniform(9, *keys), wanted)


@pytest.mark.parametrize("axis", range(4))
def test_numbers_along_any_key_are_uniform_and_independent(axis):
    """Counters are the worst case: neighbours differ in a bit or two."""
    n = 1 << 16
    keys = [0, 0, 0, 0]
    keys[axis] = np.arange(n + 1)
    drawn = uniform(*keys)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    # Chi-squared of 256 x 256 cells of neighbouring pairs: mean 65,535, spread 362.
    cells = (drawn * 256).astype(int)
    counts = np.bincount(cells[:-1] * 256 + cells[1:], minlength=n)
    assert abs(((counts - 1) ** 2).sum() - (n - 1)) < 5 * np.sqrt(2 * n)
    # Neither are they related to those of another epoch.
    keys[(axis + 1) % 4] = 1
    assert abs(np.corrcoef(drawn, uniform(*keys))[0, 1]) < 5 / np.sqrt(n)


def test_a_stream_is_splitmix64():
    stream = Stream(0)
    outputs = 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4
    assert [stream.uniform() for _ in outputs] == [(x >> 11) / 2**53 for x in outputs]
    stream = Stream(int(hashed(1)))
    drawn = [stream.choice("abc") for _ in range(3_000)]
    for letter in "abc":
        assert drawn.count(letter) == pytest.approx(1_000, abs=130)
