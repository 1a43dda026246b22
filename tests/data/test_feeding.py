"""Batches: the same from both feeders, from any position, to the byte."""

import importlib.util
import itertools
import sys
import threading
from unittest import mock

import numpy as np
import pytest

from t2t_jax.config import DataConfig
from t2t_jax.data import feeding
from t2t_jax.data.feeding import Position, feed
from t2t_jax.data.filling import ragged
from t2t_jax.data.pairs import Pairs
from t2t_jax.io.errors import UserError

FEEDERS = ["numpy", "tfdata"]


def config(feeder="numpy", batching="packed"):
    return DataConfig(
        batch_tokens=128, row_length=16, buckets=3, batching=batching, feeder=feeder
    )


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    sides = [
        ragged([rng.integers(3, 99, n) for n in rng.integers(1, 13, 70)])
        for _ in range(2)
    ]
    return Pairs(*sides, {})


def take(n, stream):
    items = list(itertools.islice(stream, n))
    stream.close()
    return items


def assert_same(fed, expected):
    for (position, batch), (other_position, expected_batch) in zip(
        fed, expected, strict=True
    ):
        assert position == other_position
        assert list(batch) == list(expected_batch)
        for name, array in batch.items():
            assert (array.dtype, array.shape) == (
                expected_batch[name].dtype,
                expected_batch[name].shape,
            )
            np.testing.assert_array_equal(array, expected_batch[name])


@pytest.mark.parametrize("batching", ["packed", "bucketed"])
def test_tfdata_is_the_numpy_feeder_to_the_byte(pairs, batching):
    streams = [feed(pairs, config(f, batching), seed=3) for f in ("numpy", "tfdata")]
    n = 2 * len(feeding.plan_for(pairs, config(batching=batching), 3, 0)) + 1
    assert_same(*(take(n, stream) for stream in streams))


@pytest.mark.parametrize("feeder", FEEDERS)
def test_any_position_can_be_continued_from(pairs, feeder):
    batches = take(20, feed(pairs, config(feeder), seed=1))
    assert {position.epoch for position, _ in batches} >= {0, 1}
    for start in (1, 5, 13):
        resumed = take(
            20 - start, feed(pairs, config(feeder), 1, batches[start - 1][0])
        )
        assert_same(resumed, batches[start:])
    past = take(3, feed(pairs, config(feeder), 1, Position(0, 10_000)))
    assert_same(past, take(3, feed(pairs, config(feeder), 1, Position(1, 0))))


@pytest.mark.parametrize("feeder", FEEDERS)
def test_an_error_in_a_thread_reaches_the_user(pairs, feeder, monkeypatch):
    error = OSError("the disk is gone")
    for work in ("data.pairs.fill", "data.feeding.epoch_for"):
        with monkeypatch.context() as patch:
            patch.setattr(f"t2t_jax.{work}", mock.Mock(side_effect=error))
            with pytest.raises(OSError, match="the disk is gone"):
                take(1, feed(pairs, config(feeder), seed=0))


def test_a_feeder_that_is_left_early_ends_its_thread(pairs):
    def feeders():
        return [t for t in threading.enumerate() if t.name.startswith("feeder")]

    running = feeders()
    take(1, feed(pairs, config("numpy"), seed=0))
    assert feeders() == running


def test_without_tensorflow_there_is_numpy(pairs, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # importing it would fail
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert feeding.feeder_name(config("auto")) == "numpy"
    assert take(2, feed(pairs, config("auto"), seed=0))
    with pytest.raises(UserError, match="TensorFlow is not installed; use 'numpy'"):
        feeding.feeder_name(config("tfdata"))
