"""Plan and token arrays -> batches, for as many epochs as are wanted.

Two feeders give the same bytes: one through tf.data, one in NumPy for machines without
TensorFlow. Both fill batches ahead of time, in threads of their own, and do not stop
where an epoch ends: the next one is planned in time.
"""

import contextlib
import importlib.util
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np

from t2t_jax.config import DataConfig
from t2t_jax.data.batching import Layout, Plan, fill, plan_epoch
from t2t_jax.data.prepare import Pairs
from t2t_jax.data.tensorflow_import import import_tensorflow
from t2t_jax.terminal.errors import UserError

AHEAD = 8  # batches filled ahead of time

HostBatch = dict[str, np.ndarray]
Make = Callable[[Layout], HostBatch]


class Position(NamedTuple):
    """Where a run is in its data: the next batch to train on."""

    epoch: int = 0
    batch: int = 0


START = Position()
Placed = tuple[Position, Layout]  # the position after a batch, and the batch


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

    def make(layout):
        return fill(share(layout), pairs.source, pairs.target)

    layouts = _layouts(lambda e: plan_for(pairs, config, seed, e), start)
    with contextlib.closing(batches(make, layouts)) as filled:
        yield from filled


def _layouts(plan_of: Callable[[int], Plan], start: Position) -> Iterator[Placed]:
    """Endless layouts; while half an epoch is left to feed, the next one is planned."""
    number, coming = start.batch, _begun(plan_of, start.epoch)
    for epoch in itertools.count(start.epoch):
        plan, coming = coming.result(), None
        while number < len(plan):
            if coming is None and 2 * (number + 1) >= len(plan):
                coming = _begun(plan_of, epoch + 1)
            last = number + 1 == len(plan)
            after = Position(epoch + 1, 0) if last else Position(epoch, number + 1)
            yield after, plan[number]
            number += 1
        number, coming = 0, coming or _begun(plan_of, epoch + 1)


def _begun(plan_of: Callable[[int], Plan], epoch: int) -> Future:
    """A plan that is being made, in a thread that nobody has to wait for."""
    plan = Future()

    def work():
        try:
            plan.set_result(plan_of(epoch))
        except BaseException as e:  # raised again where the plan is used
            plan.set_exception(e)

    threading.Thread(target=work, name="planner", daemon=True).start()
    return plan


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
    make: Make, layouts: Iterator[Placed]
) -> Iterator[tuple[Position, HostBatch]]:
    """The batch of each layout, in order, filled ahead by a thread."""
    filled: queue.Queue = queue.Queue(AHEAD)
    stop = threading.Event()

    def put(item):
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                filled.put(item, timeout=0.1)
                break

    def work():
        try:
            for position, layout in layouts:
                put(((position, make(layout)), None))
                if stop.is_set():
                    break
        except BaseException as e:  # raised again where the batches are used
            put((None, e))

    thread = threading.Thread(target=work, name="feeder", daemon=True)
    thread.start()
    try:
        while True:
            batch, error = filled.get()
            if error is not None:
                raise error
            yield batch
    finally:
        stop.set()
        thread.join()


def tfdata_batches(
    make: Make, layouts: Iterator[Placed]
) -> Iterator[tuple[Position, HostBatch]]:
    """The same through tf.data.

    The arrays are reached through a NumPy callback: as constants of the graph they
    would be copied into memory whole. It may be asked for several batches at once and
    in any order, so what is drawn from `layouts` for others waits for them.
    """
    tf = import_tensorflow()
    lock = threading.Lock()
    positions: queue.SimpleQueue[Position] = queue.SimpleQueue()
    names, waiting, drawn, errors = [], {}, itertools.count(), []

    def layout_of(number: int) -> Layout:
        with lock:
            while number not in waiting:
                position, layout = next(layouts)
                positions.put(position)
                waiting[next(drawn)] = layout
            return waiting.pop(number)

    def call(number):
        try:
            batch = make(layout_of(int(number)))
        except Exception as e:
            errors.append(e)
            raise
        names[:] = batch
        return list(batch.values())

    def load(number):
        return tf.numpy_function(call, [number], [tf.int32] * 6, stateful=False)

    dataset = tf.data.Dataset.range(np.iinfo(np.int64).max)
    dataset = dataset.map(load, num_parallel_calls=2, deterministic=True).prefetch(
        AHEAD
    )
    try:
        for arrays in dataset.as_numpy_iterator():
            yield positions.get(), dict(zip(names, arrays, strict=True))
    except tf.errors.OpError:
        if errors:
            raise errors[0] from None  # not as TensorFlow tells it
        raise


FEEDERS = {"tfdata": tfdata_batches, "numpy": numpy_batches}
