"""Feeds batches, built from plans and token arrays, for any number of epochs.

Two feeders yield the same bytes: one uses tf.data, one NumPy alone, for machines
without TensorFlow. Both fill batches ahead of time in threads of their own. They do not
pause at the end of an epoch, because the next one is planned in the background. If the
text varies from epoch to epoch (`extensions/data/variation.py`), its tokens are made
there, too.

`BatchLookup` says which sentences any batch of a run held.
"""

import contextlib
import importlib.util
import itertools
import json
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np

from t2t_jax.config import Config, DataConfig
from t2t_jax.data.batching import Plan, plan_epoch
from t2t_jax.data.filling import Layout
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.shapes import lengths_within, shapes_of_epochs
from t2t_jax.data.tfds import import_tensorflow
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.io.threads import in_order

AHEAD = 8  # batches filled ahead of time
HostBatch = dict[str, np.ndarray]


class Position(NamedTuple):
    """A position of a run in its data: the next batch to train on."""

    epoch: int = 0
    batch: int = 0


START = Position()


class Epoch(NamedTuple):
    """The pairs of an epoch, and the plan of its batches."""

    pairs: Pairs
    plan: Plan


class Planned(NamedTuple):
    """A batch of an epoch's plan, and the pairs that fill it."""

    epoch: int
    layout: Layout
    pairs: Pairs


Make = Callable[[Planned], HostBatch]
Placed = tuple[Position, Planned]  # the position after a batch, and that batch


def epoch_for(
    pairs: Pairs, config: DataConfig, seed: int, epoch: int, shuffle=True
) -> Epoch:
    """One epoch of a run; a function of its text, config and seed alone."""
    options = _options(pairs, config)
    if "shapes" in options:
        pairs = pairs.epoch_pairs(seed, epoch, within=options["shapes"][-1])
    plan = plan_epoch(
        *pairs.lengths(), seed=seed, epoch=epoch, shuffle=shuffle, **options
    )
    return Epoch(pairs, plan)


def plan_for(
    pairs: Pairs, config: DataConfig, seed: int, epoch: int, shuffle=True
) -> Plan:
    """The plan of `epoch_for`."""
    return epoch_for(pairs, config, seed, epoch, shuffle).plan


def typical_plan(pairs: Pairs, config: DataConfig, seed: int) -> Plan:
    """The plan of the first epoch; if the pairs vary, one of typical lengths.

    It has the shapes of all epochs, and need not make the tokens of one.
    """
    if pairs.variation is None:
        return plan_for(pairs, config, seed, epoch=0)
    options = _options(pairs, config)
    largest = options["shapes"][-1]
    typical = pairs.variation.typical[:2]
    lengths = lengths_within(pairs.lengths(), typical, largest.source, largest.target)
    return plan_epoch(*lengths, seed=seed, epoch=0, **options)


def _options(pairs: Pairs, config: DataConfig) -> dict:
    """The options of `plan_epoch` that are the same for all epochs of a run."""
    options = {
        "batch_tokens": config.batch_tokens,
        "batching": config.batching,
        "row_length": config.row_length,
        "buckets": config.buckets,
        "sizes": pairs.sizes,
        "weights": pairs.weights,
    }
    if pairs.variation is not None:
        typical = pairs.variation.typical[:2]
        options["shapes"] = shapes_of_epochs(pairs.lengths(), typical, **options)
    return options


def feed(
    pairs: Pairs,
    config: DataConfig,
    seed: int,
    start: Position = START,
    share: Callable[[Layout], Layout] = lambda layout: layout,
) -> Iterator[tuple[Position, HostBatch]]:
    """Yields batches without end, from a position on; the seek is O(1).

    Args:
      pairs: The training text, as prepared.
      config: How to batch, and which feeder to use.
      seed: The seed of the run.
      start: The first batch.
      share: Reduces a global batch to the part that this process feeds; see
        `parallel/mesh.py`.

    Yields:
      The position after a batch, and the batch: int32 arrays [rows, length, ...] as
      `data/filling.py:fill` returns them.
    """
    batches = FEEDERS[feeder_name(config)]

    def make(planned):
        return planned.pairs.batch(share(planned.layout), seed, planned.epoch)

    layouts = _layouts(lambda e: epoch_for(pairs, config, seed, e), start)
    arrays = 6 + len(pairs.further.source) + len(pairs.further.target)
    with contextlib.closing(batches(make, layouts, arrays)) as filled:
        yield from filled


def _layouts(epoch_of: Callable[[int], Epoch], start: Position) -> Iterator[Placed]:
    """Yields layouts without end; plans the next epoch once half of one is fed."""
    number, upcoming = start.batch, _start_planning(epoch_of, start.epoch)
    for epoch in itertools.count(start.epoch):
        (pairs, plan), upcoming = upcoming.result(), None
        while number < len(plan):
            if upcoming is None and 2 * (number + 1) >= len(plan):
                upcoming = _start_planning(epoch_of, epoch + 1)
            is_last = number + 1 == len(plan)
            next_position = (
                Position(epoch + 1, 0) if is_last else Position(epoch, number + 1)
            )
            yield next_position, Planned(epoch, plan[number], pairs)
            number += 1
        # Not begun yet if the start is past the end of this epoch.
        number, upcoming = 0, upcoming or _start_planning(epoch_of, epoch + 1)


def _start_planning(epoch_of: Callable[[int], Epoch], epoch: int) -> Future:
    """Plans an epoch in the background, in a thread that does not delay an exit."""
    planned = Future()

    def work():
        try:
            planned.set_result(epoch_of(epoch))
        except BaseException as e:  # re-raised by `result()` in the feeding thread
            planned.set_exception(e)

    threading.Thread(target=work, name="planner", daemon=True).start()
    return planned


def feeder_name(config: DataConfig) -> str:
    """The feeder that a config selects; `auto` is tf.data if TensorFlow is installed.

    Raises UserError if the config wants tf.data, but TensorFlow is not installed.
    """
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
    make: Make, layouts: Iterator[Placed], arrays: int
) -> Iterator[tuple[Position, HostBatch]]:
    """Yields the batch of each layout, in order, filled ahead by a thread.

    The thread draws the layouts, too: while it waits for the plan of the next epoch,
    the batches that it has filled can be trained on.
    """

    def next_filled(_) -> tuple[Position, HostBatch]:
        position, planned = next(layouts)
        return position, make(planned)

    endless = itertools.repeat(None)
    return in_order(next_filled, endless, threads=1, ahead=AHEAD, name="feeder")


def tfdata_batches(
    make: Make, layouts: Iterator[Placed], arrays: int
) -> Iterator[tuple[Position, HostBatch]]:
    """The same as `numpy_batches`, through tf.data.

    A NumPy callback reads the token arrays, because constants of the graph would be
    copied into memory as a whole. tf.data may call it for several batches at once, in
    any order. So layouts drawn on behalf of a later batch are parked until it asks.
    """
    tf = import_tensorflow()
    lock = threading.Lock()
    positions: queue.SimpleQueue[Position] = queue.SimpleQueue()
    names, parked, drawn, errors = [], {}, itertools.count(), []

    def planned(number: int) -> Planned:
        with lock:  # a generator cannot be advanced by two threads at once
            while number not in parked:
                position, batch = next(layouts)
                positions.put(position)
                parked[next(drawn)] = batch
            return parked.pop(number)

    def call(number):
        try:
            batch = make(planned(int(number)))
        except Exception as e:
            errors.append(e)  # TensorFlow would keep only its text
            raise
        names[:] = batch  # tf.numpy_function returns a list, without the keys
        return list(batch.values())

    def load(number):
        # Tokens, segments and positions of source and target, and what the loss needs.
        return tf.numpy_function(call, [number], [tf.int32] * arrays, stateful=False)

    # In effect endless; `deterministic` keeps the order although two calls run at once.
    dataset = tf.data.Dataset.range(np.iinfo(np.int64).max)
    dataset = dataset.map(load, num_parallel_calls=2, deterministic=True).prefetch(
        AHEAD
    )
    try:
        for batch in dataset.as_numpy_iterator():
            yield positions.get(), dict(zip(names, batch, strict=True))
    except tf.errors.OpError:
        if errors:
            raise errors[0] from None  # the original exception, not TensorFlow's
        raise


FEEDERS = {"tfdata": tfdata_batches, "numpy": numpy_batches}  # config.data.feeder


class BatchLookup:
    """Reconstructs any batch of a run from the plan; nothing is recorded in training.

    Args:
      config: The config of the run.
      pairs: Its training text, as prepared.
      vocabulary: Its tokenizer.
    """

    def __init__(self, config: Config, pairs: Pairs, vocabulary: Vocabulary):
        self._config, self._pairs, self._vocabulary = config, pairs, vocabulary
        # Only the last epoch used: a plan of 36 million pairs takes much memory.
        self._epochs: dict[int, Epoch] = {}

    def _epoch(self, epoch: int) -> Epoch:
        if epoch not in self._epochs:
            seed = self._config.train.seed
            self._epochs = {}  # before the next one is made
            current = epoch_for(self._pairs, self._config.data, seed, epoch)
            self._epochs = {epoch: current}
        return self._epochs[epoch]

    def position(self, start: Position, batches: int) -> Position:
        """The position `batches` batches after `start`, across ends of epochs."""
        epoch, number = start.epoch, start.batch + batches
        while number >= (length := len(self._epoch(epoch).plan)):
            epoch, number = epoch + 1, number - length
        return Position(epoch, number)

    def pairs(self, position: Position) -> Iterator[dict]:
        """Yields the pairs of the batch at a position, in the order of its rows.

        Yields:
          A dict of `row` (in the batch), `corpus` (a spec of `config.data.train`),
          `line` (in that corpus before cleaning, from 1), and `source` and `target`
          (the text that the tokens decode to, as the model saw them).
        """
        layout = self._epoch(position.epoch).plan[position.batch]
        # Pairs are numbered consecutively across corpora.
        offsets = np.cumsum([0, *self._pairs.sizes])
        source_tokens, target_tokens = self._tokens(position)
        for pair, row, source, target in zip(
            layout.pair_p.tolist(),
            layout.row_p.tolist(),
            self._vocabulary.source.decode(source_tokens),
            self._vocabulary.decode(target_tokens),
            strict=True,
        ):
            # side="right": the first pair of a corpus belongs to it, and a corpus of
            # which nothing is left has none.
            corpus = int(np.searchsorted(offsets, pair, side="right")) - 1
            yield {
                "row": row,
                "corpus": self._pairs.names[corpus],
                "line": int(self._pairs.line[pair]),
                "source": source,
                "target": target,
            }

    def arrays(self, position: Position) -> HostBatch:
        """The arrays of the batch at a position, as `feed` yields them."""
        pairs, plan = self._epoch(position.epoch)
        seed = self._config.train.seed
        return pairs.batch(plan[position.batch], seed, position.epoch)

    def _tokens(self, position: Position) -> list[list[np.ndarray]]:
        """The source tokens of each pair of a batch, and its target tokens."""
        pairs, plan = self._epoch(position.epoch)
        layout, batch = plan[position.batch], self.arrays(position)
        starts = layout.source_start_p, layout.target_start_p
        return [
            [
                batch[side][row, start : start + length]
                for row, start, length in zip(
                    layout.row_p, start_p, length_p[layout.pair_p], strict=True
                )
            ]
            for side, start_p, length_p in zip(
                ("source", "target"), starts, pairs.lengths(), strict=True
            )
        ]

    def lines(self, position: Position) -> list[str]:
        """The same as `pairs`, each pair as a line of JSON."""
        return [json.dumps(p, ensure_ascii=False) for p in self.pairs(position)]
