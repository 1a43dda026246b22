"""Plan and token arrays -> batches, for as many epochs as are wanted.

Two feeders give the same bytes: one through tf.data, one in NumPy for machines without
TensorFlow. Both fill batches ahead of time, in threads of their own.
"""

import contextlib
import importlib.util
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from t2t_jax.config import DataConfig
from t2t_jax.data.batching import Layout, Plan, fill, plan_epoch
from t2t_jax.data.prepare import Pairs
from t2t_jax.data.tensorflow_import import import_tensorflow
from t2t_jax.errors import UserError

AHEAD = 8  # batches filled ahead of time

HostBatch = dict[str, np.ndarray]


class Position(NamedTuple):
    """Where a run is in its data: the next batch to train on."""

    epoch: int = 0
    batch: int = 0


START = Position()


def plan_for(
    pairs: Pairs, config: DataConfig, seed: int, epoch: int, shuffle=True
) -> Plan:
    """The plan of one epoch of a run, from its config and seed alone."""
    return plan_epoch(
        pairs.source.lengths,
        pairs.target.lengths,
        batch_tokens=config.batch_tokens,
        batching=config.batching,
        row_length=config.row_length,
        buckets=config.buckets,
        seed=seed,
        epoch=epoch,
        shuffle=shuffle,
        sizes=pairs.sizes,
        weights=pairs.weights,
    )


def feed(
    pairs: Pairs,
    config: DataConfig,
    seed: int,
    start: Position = START,
    share: Callable[[Layout], Layout] = lambda layout: layout,
) -> Iterator[tuple[Position, HostBatch]]:
    """Endless batches from a position on: an O(1) seek into the epoch's plan.

    Args:
      share: makes of a global batch what this process feeds, `parallel/mesh.py`.

    Yields:
      The position after a batch, and the batch: int32 arrays [rows, length] as
      `data/batching.py` describes them.
    """
    batches = FEEDERS[feeder_name(config)]
    for epoch in itertools.count(start.epoch):
        plan = plan_for(pairs, config, seed, epoch)
        first = start.batch if epoch == start.epoch else 0
        numbers = range(first, len(plan))

        def make(number, plan=plan):
            return fill(share(plan[number]), pairs.source, pairs.target)

        for number, batch in zip(numbers, batches(make, numbers), strict=True):
            last = number + 1 == len(plan)
            yield Position(epoch + 1, 0) if last else Position(epoch, number + 1), batch


def feeder_name(config: DataConfig) -> str:
    """The feeder a config means: `auto` is tf.data where TensorFlow is installed."""
    installed = importlib.util.find_spec("tensorflow") is not None
    if config.feeder == "auto":
        return "tfdata" if installed else "numpy"
    if config.feeder == "tfdata" and not installed:
        raise UserError(
            "config.data.feeder='tfdata' but TensorFlow is not installed; use 'numpy', "
            "which gives the same batches, or pip install tensorflow-cpu"
        )
    return config.feeder


def numpy_batches(
    make: Callable[[int], HostBatch], numbers: range
) -> Iterator[HostBatch]:
    """`make(number)` for each number, in order, filled ahead by a thread."""
    filled: queue.Queue = queue.Queue(AHEAD)
    stop = threading.Event()

    def put(item):
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                filled.put(item, timeout=0.1)
                break

    def work():
        try:
            for number in numbers:
                put((make(number), None))
                if stop.is_set():
                    break
        except BaseException as e:  # raised again where the batches are used
            put((None, e))

    thread = threading.Thread(target=work, name="feeder", daemon=True)
    thread.start()
    try:
        for _ in numbers:
            batch, error = filled.get()
            if error is not None:
                raise error
            yield batch
    finally:
        stop.set()
        thread.join()


def tfdata_batches(
    make: Callable[[int], HostBatch], numbers: range
) -> Iterator[HostBatch]:
    """The same through tf.data.

    The arrays are reached through a NumPy callback: as constants of the graph they
    would be copied into memory whole.
    """
    tf = import_tensorflow()
    names = []

    def call(number):
        batch = make(int(number))
        names[:] = batch
        return list(batch.values())

    def load(number):
        return tf.numpy_function(call, [number], [tf.int32] * 6, stateful=False)

    dataset = tf.data.Dataset.range(numbers.start, numbers.stop)
    dataset = dataset.map(load, num_parallel_calls=2, deterministic=True).prefetch(
        AHEAD
    )
    for arrays in dataset.as_numpy_iterator():
        yield dict(zip(names, arrays, strict=True))


FEEDERS = {"tfdata": tfdata_batches, "numpy": numpy_batches}
