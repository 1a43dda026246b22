"""Continuous batching: places of lines that are finished go to others.

All lines of a batch are at one position of their outputs. It goes on for some positions
(`STRIDE`); then the lines that have stopped leave it, and it waits for another batch of
the same bucket at the same position, whose lines take the places that have become free.
A batch that is full goes on at once, before new lines are begun, so that few batches
are there at a time.

A line keeps its arithmetic, whatever becomes of its neighbours: a batch always has all
its rows, and the shapes that it is computed in are a matter of the bucket and of the
position. Rows never go from one device to another. Lines with rules have tables of
states in common with the others of their block, so these are not mixed.

Shape suffixes: b batch rows.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from t2t_jax.config import DecodeConfig
from t2t_jax.decoding import passes
from t2t_jax.decoding.blocks import Group
from t2t_jax.decoding.devices import own_groups, placed
from t2t_jax.decoding.hypotheses import Hypotheses

STRIDE = 8  # positions from one exchange of lines to the next
ROOM = 16  # positions of the smallest cache; a multiple of STRIDE


def waiting_batches() -> int:
    """How many may wait; more would be memory that waits."""
    return 8 if jax.default_backend() == "cpu" else 2


# Numbers of lines, and NumPy arrays with a row for each.
Found = tuple[list[int], Hypotheses]


class Search(NamedTuple):
    """What is searched with: functions of `decoding/passes.py`, options given.

    Attributes:
      begin: (block, room=, max_length=) -> state.
      advance: (position, until, state, there_b, rules) -> `passes.Advanced`.
    """

    begin: Callable[..., passes.State]
    advance: Callable[..., passes.Advanced]


class Batch(NamedTuple):
    """Lines at one position.

    Attributes:
      state: of the search; leaves [blocks * rows, ...], a block on each device.
      line_b: which line is in a row; -1 for none.
      rules: of the block, or None.
      position: how many tokens the outputs have.
      room: the positions that its caches have.
    """

    state: passes.State
    line_b: np.ndarray
    rules: Any
    position: int
    room: int


def room_for(position: int, max_length: int) -> int:
    """The positions of a cache that has to hold `position` of them: 16, 32, 64, ...

    Every size is a program to compile: one that is nearly `max_length` is left out.
    """
    room = max(ROOM, 1 << (position - 1).bit_length())
    return max_length if 3 * room >= 2 * max_length else room


def searched(
    make: Callable[[Group], Any],
    search: Search,
    lengths: Sequence[int],
    decode: DecodeConfig,
    mesh: Mesh,
) -> Iterator[Found]:
    """What a search finds for each line that is not of length 0, in no certain order.

    Args:
      make: a group -> its block, NumPy arrays.
      lengths: of the lines. Of several processes each searches for its part of them.
    """
    groups = own_groups(lengths, decode, mesh)
    for bucket, same in itertools.groupby(groups, key=lambda group: group.bucket):
        yield from _Refill(search, mesh, bucket + decode.extra_length).run(make, same)


class _Refill:
    """The batches of one bucket.

    Attributes:
      waiting: position -> the batch that waits there for others.
    """

    def __init__(self, search: Search, mesh: Mesh, max_length: int):
        self.search, self.mesh, self.max_length = search, mesh, max_length
        self.waiting: dict[int, Batch] = {}

    def run(self, make: Callable, groups: Iterable[Group]) -> Iterator[Found]:
        for group in groups:
            yield from self.go_on(self.begun(group, make(group)))
            while len(self.waiting) > waiting_batches():
                fullest = max(self.waiting, key=lambda p: _count(self.waiting[p]))
                yield from self.go_on(self.waiting.pop(fullest))
        while self.waiting:
            yield from self.go_on(self.waiting.pop(min(self.waiting)))

    def begun(self, group: Group, block: Any) -> Batch:
        block = placed(block, self.mesh)
        line_b = np.full(group.shape[0], -1)
        line_b[: len(group.lines)] = group.lines
        room = room_for(min(STRIDE, self.max_length), self.max_length)
        state = self.search.begin(block, room=room, max_length=self.max_length)
        return Batch(state, line_b, block.rules, 0, room)

    def go_on(self, batch: Batch | None) -> Iterator[Found]:
        """Until nothing is left of it, or what is left waits."""
        while batch is not None:
            batch, found = self.advanced(batch)
            if found:
                yield found
            if not _count(batch):
                return
            if batch.rules is None and _count(batch) < len(batch.line_b):
                batch = self.merged(batch)

    def advanced(self, batch: Batch) -> tuple[Batch, Found | None]:
        """The batch some positions later without the lines that have stopped."""
        state, line_b, rules, position, room = batch
        until = min(position + STRIDE, self.max_length)
        if room < (room := room_for(until, self.max_length)):
            state = passes.grown(state, room=room, mesh=self.mesh)
        state, stopped_b, found = self.search.advance(
            *(np.int32(position), np.int32(until), state, line_b >= 0, rules)
        )
        done_b = (line_b >= 0) & jax.device_get(stopped_b)
        batch = Batch(state, np.where(done_b, -1, line_b), rules, until, room)
        if not done_b.any():
            return batch, None
        found = jax.tree.map(lambda leaf: leaf[done_b], jax.device_get(found))
        return batch, (line_b[done_b].tolist(), found)

    def merged(self, batch: Batch) -> Batch | None:
        """The batch that goes on, if one does; what is not full waits.

        One that waits is filled up with lines of this one. If some of these find no
        place on their device, it is full there, and goes on in any case.
        """
        waiting = self.waiting.pop(batch.position, None)
        if waiting is None:
            self.waiting[batch.position] = batch
            return None
        from_b = _moves(waiting.line_b, batch.line_b, self.mesh.size)
        state = passes.refilled(waiting.state, batch.state, from_b, mesh=self.mesh)
        first_b = _first_rows(len(from_b), self.mesh.size)
        taken_b = from_b >= 0
        rows = (first_b + from_b)[taken_b]
        line_b, left_b = waiting.line_b.copy(), batch.line_b.copy()
        line_b[taken_b] = batch.line_b[rows]
        left_b[rows] = -1
        waiting = waiting._replace(state=state, line_b=line_b)
        batch = batch._replace(line_b=left_b)
        if _count(batch):
            self.waiting[batch.position] = batch
        elif (line_b < 0).any():
            self.waiting[batch.position] = waiting
            return None
        return waiting


def _count(batch: Batch) -> int:
    return int(np.sum(batch.line_b >= 0))


def _first_rows(rows: int, blocks: int) -> np.ndarray:
    """Of each row, the first one of its block."""
    return np.arange(rows) // (rows // blocks) * (rows // blocks)


def _moves(line_b: np.ndarray, other_b: np.ndarray, blocks: int) -> np.ndarray:
    """int32: which row of the other's same block goes where no line is; -1 for none."""
    from_b = np.full(len(line_b), -1, np.int32)
    for mine, others, into in zip(
        *(np.split(x, blocks) for x in (line_b, other_b, from_b)), strict=True
    ):
        free, lines = np.flatnonzero(mine < 0), np.flatnonzero(others >= 0)
        both = min(len(free), len(lines))
        into[free[:both]] = lines[:both]  # a view of `from_b`
    return from_b
