"""The input benchmark's peer is a fair batcher; batches of WMT's lengths are full."""

import itertools

import numpy as np
import pytest

from benchmarks import made_up
from benchmarks.input_pipeline import Padded
from t2t_jax import load_config
from t2t_jax.config import from_config_dict
from t2t_jax.data.feeding import plan_for
from t2t_jax.tools.verify.measuring import random_pairs


def test_the_padded_peer_has_every_pair_once_and_fits_the_budget():
    pairs = random_pairs(made_up.lengths(300), 1000)
    padded = Padded(pairs, batch_tokens=512)
    plan = padded.plan()
    found = np.sort(np.concatenate([pair_p for _, pair_p in plan]))
    np.testing.assert_array_equal(found, np.arange(300))
    padded.plan = lambda: plan
    batches = list(itertools.islice(padded.feed(), len(plan)))
    real = computed = 0
    for batch, (_, pair_p) in zip(batches, plan, strict=True):
        for side in ("source", "target"):
            ragged = getattr(pairs, side)
            for row, pair in zip(batch[side], pair_p, strict=False):
                np.testing.assert_array_equal(row[row > 0], ragged[pair])
            assert batch[side].size <= 512
            real += np.count_nonzero(batch[side])
            computed += batch[side].size
    assert real / computed == pytest.approx(padded.efficiency(plan))


@pytest.mark.parametrize("preset", ["base", "big"])
def test_the_papers_batches_of_wmt_lengths_are_full(preset):
    config = from_config_dict(load_config(f"configs/{preset}.py")).data
    pairs = random_pairs(made_up.lengths(60_000), config.vocab_size)
    plan = plan_for(pairs, config, seed=0, epoch=0)
    assert plan.efficiency >= 0.95


def test_the_lengths_of_wmt_are_those_told():
    sides = made_up.lengths(50_000)
    for length_p, mean in zip(sides, made_up.MEAN, strict=True):
        assert length_p.mean() == pytest.approx(mean, rel=0.02)
        assert length_p.min() >= 1
        assert length_p.max() <= made_up.LONGEST
    assert np.corrcoef(*map(np.log, sides))[0, 1] > 0.9
