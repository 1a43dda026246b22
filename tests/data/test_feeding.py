"""Batches: the same from both feeders, from any position, to the byte."""

import collections
import dataclasses
import importlib.util
import itertools
import sys
import threading

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
    taken = list(itertools.islice(stream, n))
    stream.close()
    return taken


def assert_same(left, right):
    for (position, batch), (other_position, other) in zip(left, right, strict=True):
        assert position == other_position
        assert list(batch) == list(other)
        for name, array in batch.items():
            assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape)
            np.testing.assert_array_equal(array, other[name])


@pytest.mark.parametrize("batching", ["packed", "bucketed"])
def test_tfdata_is_the_numpy_feeder_to_the_byte(pairs, batching):
    streams = [feed(pairs, config(f, batching), seed=3) for f in ("numpy", "tfdata")]
    n = 2 * len(feeding.plan_for(pairs, config(batching=batching), 3, 0)) + 1
    assert_same(*(take(n, stream) for stream in streams))


@pytest.mark.parametrize("feeder", FEEDERS)
def test_any_position_can_be_continued_from(pairs, feeder):
    whole = take(20, feed(pairs, config(feeder), seed=1))
    assert {position.epoch for position, _ in whole} >= {0, 1}
    for start in (1, 5, 13):
        rest = take(20 - start, feed(pairs, config(feeder), 1, whole[start - 1][0]))
        assert_same(rest, whole[start:])
    past = take(3, feed(pairs, config(feeder), 1, Position(0, 10_000)))
    assert_same(past, take(3, feed(pairs, config(feeder), 1, Position(1, 0))))


def targets_of(batches):
    return [
        tuple(batch["target"][row][batch["target_segment"][row] == segment])
        for _, batch in batches
        for row in range(len(batch["target"]))
        for segment in range(1, batch["target_segment"][row].max() + 1)
    ]


@pytest.mark.parametrize("feeder", FEEDERS)
def test_weights_decide_how_often_a_pair_is_fed(pairs, feeder):
    weighted = dataclasses.replace(pairs, sizes=(30, 40), weights=(2.0, 0.5))
    lines = [tuple(pairs.target[i]) for i in range(70)]
    epochs = []
    for epoch in range(2):
        batches = len(feeding.plan_for(weighted, config(), 1, epoch))
        stream = feed(weighted, config(feeder), 1, Position(epoch, 0))
        epochs.append(targets_of(take(batches, stream)))
        assert len(epochs[-1]) == 80
        assert not collections.Counter(lines[:30] * 2) - collections.Counter(epochs[-1])
    assert sorted(epochs[0] + epochs[1]) == sorted(lines[:30] * 4 + lines[30:])


@pytest.mark.parametrize("feeder", FEEDERS)
@pytest.mark.parametrize("work", ["data.pairs.fill", "data.feeding.epoch_for"])
def test_an_error_in_a_thread_reaches_the_user(pairs, feeder, work, monkeypatch):
    def broken(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(f"t2t_jax.{work}", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        take(1, feed(pairs, config(feeder), seed=0))


def test_filled_batches_do_not_wait_for_the_plan_of_the_next_epoch(pairs, monkeypatch):
    ready, epoch_for = threading.Event(), feeding.epoch_for
    waited = []  # whether the test got all batches of the first epoch first

    def late(pairs, config, seed, epoch):
        if epoch:
            waited.append(ready.wait(20))
        return epoch_for(pairs, config, seed, epoch)

    monkeypatch.setattr(feeding, "epoch_for", late)
    count = len(epoch_for(pairs, config(), 1, 0).plan)
    stream = feed(pairs, config("numpy"), 1)
    try:
        *_, (position, _) = itertools.islice(stream, count)
        assert position == Position(1, 0)
    finally:
        ready.set()  # the planner's thread ends
    assert next(stream)[0] == Position(1, 1)
    assert waited[0]


def test_a_feeder_that_is_left_early_ends_its_thread(pairs):
    def feeders():
        return [t for t in threading.enumerate() if t.name.startswith("feeder")]

    before = feeders()
    take(1, feed(pairs, config("numpy"), seed=0))
    assert feeders() == before


def test_without_tensorflow_there_is_numpy(pairs, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # importing it would fail
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert feeding.feeder_name(config("auto")) == "numpy"
    assert take(2, feed(pairs, config("auto"), seed=0))
    with pytest.raises(UserError, match="TensorFlow is not installed; use 'numpy'"):
        feeding.feeder_name(config("tfdata"))
