"""Decodes encoded lines: blocks of a fixed shape, a search, then text.

Continuous batching: waiting lines take the rows of finished ones. All lines of a batch
are at the same position of their outputs. A batch advances by `STRIDE` positions. Then
finished lines leave it, and it is parked until another batch of the same bucket reaches
the same position, whose lines take the free rows. A full batch advances at once, before
new lines begin, so that few batches exist at a time. On a CPU each core advances a
batch, in a thread of its own; the threads share the batches of a bucket.

A line's arithmetic does not depend on its neighbours: a batch always has all its rows,
and its shapes depend only on the bucket and the position. Rows never move between
devices. Lines with constraints share tables of states within their block, so their
batches are not merged, unless all batches share one (`SharedTable`).

Shape suffixes: b batch rows, s source, t target, n hypotheses.
"""

import dataclasses
import hashlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from t2t_jax.config import DecodeConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.batches import (
    Group,
    block_rows,
    bucket_for,
    gather_results,
    longest_output,
    own_groups,
    pad_rows,
    place_blocks,
)
from t2t_jax.decoding.constraints import Constraints, Phrases, SharedTable
from t2t_jax.decoding.inputs import Source
from t2t_jax.decoding.programs import (
    Block,
    Search,
    SearchState,
    grow_caches,
    merge_rows,
)
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.io.errors import UserError
from t2t_jax.io.threads import core_count, merged
from t2t_jax.parallel.machine import device_memory
from t2t_jax.search.algorithm import Hypotheses
from t2t_jax.search.rules import Rules, concatenate_rules

EMPTY = Hypothesis("", 0.0, 0.0, True)  # for a line without a visible character
# For a line for which no output meets the constraints.
NOTHING = Hypothesis("", -float("inf"), -float("inf"), False)
# The same, for a model whose probabilities are NaN.
UNDEFINED = Hypothesis("", float("nan"), float("nan"), False)


def decode_batch(
    search: Search,
    sources: Sequence[Source],
    constraints: Sequence[Constraints],
    vocabulary: Vocabulary,
    phrases: Phrases,
    decode: DecodeConfig,
    seed: int = 0,
) -> list[tuple[Hypothesis, ...]]:
    """Returns the hypotheses of each source, in order; at least one for each."""
    # Tuples of fields, since processes exchange results as JSON.
    nbest_lists: dict[int, list[tuple]] = {}

    def make_block(group: Group) -> Block:
        group_sources = [sources[line] for line in group.lines]
        group_constraints = [constraints[line] for line in group.lines]
        rules = rules_of(group, phrases, group_constraints, decode)
        seeds = [seed] * len(group.lines)
        return block_of(group, group_sources, rules, decode, seeds)

    lengths = [len(source.ids) for source in sources]
    for lines, result in search_lines(make_block, search, lengths, decode):
        for line, nbest in zip(lines, to_text(result, vocabulary), strict=True):
            nbest_lists[line] = [*map(dataclasses.astuple, nbest)]
    nbest_lists = gather_results("translations", nbest_lists)
    return [
        tuple(
            Hypothesis(*fields, tuple(ids), tokenizer)
            for *fields, ids, tokenizer in nbest_lists[line]
        )
        if line in nbest_lists
        else (EMPTY,)
        for line in range(len(sources))
    ]


def check_room(
    source: Source, constraints: Constraints, number: int, decode: DecodeConfig
) -> None:
    """Raises UserError for a prefix that leaves no room for a translation."""
    room = longest_output(len(source.ids), decode)
    pieces = len(constraints.prefix) + bool(constraints.begun)
    if source.ids and pieces >= room:
        raise UserError(
            f"line {number}: the prefix has {pieces} tokens, but the "
            f"translation may have at most {room} (extra_length="
            f"{decode.extra_length}); shorten the prefix, or raise extra_length"
        )


NARROW = 32  # hypotheses of a line that are not worth the trace of `check_memory`


def check_memory(search: Search, longest: int, decode: DecodeConfig) -> None:
    """Raises UserError if a search takes more memory than a device has.

    Without the check a CPU would run out of memory, and the system end the program.

    Args:
      longest: the length of the longest line, in tokens.
    """
    count = search.algorithm.rows
    if count <= NARROW:
        return
    bucket = bucket_for(longest)
    # The caches of the first positions: a search that ends early needs no larger ones.
    rows, room = block_rows(bucket, decode), room_for(1, longest_output(bucket, decode))
    linear, squared = search.memory(rows, bucket, room)
    needed = linear * count + squared * count**2
    limit = device_memory(search.mesh.local_devices[0])
    if needed <= limit:
        return
    # The count that takes the limit: the root of squared n^2 + linear n - limit.
    fits = 2 * limit / (linear + math.sqrt(linear**2 + 4 * squared * limit))
    raise UserError(
        f"{count:,} hypotheses of a line (the beam, or samples) take at least "
        f"{needed / 2**30:,.1f} GiB, for {rows} lines of up to {bucket} tokens at once "
        f"and the first {room} tokens of translations; this device has "
        f"{limit / 2**30:,.1f} GiB. At most {int(fits):,} can fit: use a smaller "
        "beam, or fewer samples"
    )


def rules_of(
    group: Group,
    phrases: Phrases,
    constraints: list[Constraints],
    decode: DecodeConfig,
) -> Rules | None:
    """Builds the rules of a group's lines; None if they have no constraints."""
    # Tables of states are shared within a block, not between devices, so each block
    # gets rules of its own.
    size = group.rows, longest_output(group.bucket, decode)
    blocks = group.split(constraints)
    return concatenate_rules([phrases.rules(block, *size) for block in blocks])


def block_of(
    group: Group,
    sources: Sequence[Source],
    rules: Rules | None,
    decode: DecodeConfig,
    seeds: Sequence[int] = (),
) -> Block:
    """Builds the arrays of a group's lines, padded with empty rows.

    Args:
      seeds: of the lines' rngs; empty: all are 0.
    """
    rows, bucket = group.shape
    ids = [source.ids for source in sources]
    limit_b = np.ones(rows, np.int32)
    limit_b[: len(ids)] = [longest_output(len(line), decode) for line in ids]
    hash_b2 = np.zeros((rows, 2), np.uint32)
    if ids:
        hash_b2[: len(ids)] = [_hash(source) for source in sources]
    seed_b = np.zeros(rows, np.uint32)
    seed_b[: len(seeds)] = seeds
    return Block(*pad_rows(ids, rows, bucket), limit_b, rules, hash_b2, seed_b)


def _hash(source: Source) -> np.ndarray:
    """Returns a 64-bit hash of a line's ids and number, as two uint32 numbers."""
    hashed = [*source.ids, source.number] if source.number else source.ids
    content = np.asarray(hashed, "<i4").tobytes()
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return np.frombuffer(digest, "<u4")


def to_text(
    result: Hypotheses, vocabulary: Vocabulary, counts: Sequence[int | None] = ()
) -> Iterator[tuple]:
    """Yields the hypotheses of each row as text; at least one for each.

    Args:
      counts: how many of each row; empty or None: all.
    """
    for row, arrays in enumerate(zip(*result, strict=True)):
        count = counts[row] if counts else None
        tokens_nt, score_n, log_prob_n, length_n, ended_n = (x[:count] for x in arrays)
        # Places without a hypothesis have length 0 or no finite log-probability.
        valid = [n for n, x in enumerate(log_prob_n) if length_n[n] and np.isfinite(x)]
        tokens = [tuple(tokens_nt[n, : length_n[n]].tolist()) for n in valid]
        numbers = [
            (float(score_n[n]), float(log_prob_n[n]), bool(ended_n[n])) for n in valid
        ]
        yield with_texts(vocabulary, tokens, numbers) or (
            UNDEFINED if np.isnan(log_prob_n).any() else NOTHING,
        )


def with_texts(
    vocabulary: Vocabulary,
    tokens: Sequence[tuple[int, ...]],
    numbers: Sequence[tuple[float, float, bool]],
) -> tuple[Hypothesis, ...]:
    """Returns hypotheses of tokens, with their (score, log_prob, ended).

    One line in, one line out, whatever bytes a model generates and whichever of
    Unicode's line ends the reader of the output recognises.
    """
    return tuple(
        Hypothesis(" ".join(text.splitlines()), *row, ids, vocabulary.sha256[0])
        for text, row, ids in zip(
            vocabulary.decode(tokens), numbers, tokens, strict=True
        )
    )


# ------------------------------------------------------------------ continuous batching


STRIDE = 8  # positions from one exchange of lines to the next
ROOM = 16  # positions of the smallest cache; a multiple of STRIDE

# The numbers of finished lines, and NumPy arrays with a row for each.
Finished = tuple[list[int], Hypotheses]


def max_parked() -> int:
    """Returns how many batches may be parked; each of them holds memory."""
    return 8 if jax.default_backend() == "cpu" else 2


class Batch(NamedTuple):
    """Lines at one position."""

    # Of the search; leaves [blocks * rows, ...], one block on each device.
    state: SearchState
    line_b: np.ndarray  # the line in each row; -1 for none
    rules: Any
    position: int  # the length of the outputs so far, in tokens
    room: int  # the number of positions that its caches have room for


def room_for(position: int, max_length: int) -> int:
    """Returns the size of a cache for `position` positions: 16, 32, 64, ...

    Every size is a program to compile, so sizes just below `max_length` are skipped.
    """
    room = max(ROOM, 1 << (position - 1).bit_length())
    # From 2/3 of the largest size on, a smaller one is not worth a compilation.
    return max_length if 3 * room >= 2 * max_length else room


def search_lines(
    make_block: Callable[[Group], Block],
    search: Search,
    lengths: Sequence[int],
    decode: DecodeConfig,
) -> Iterator[Finished]:
    """Yields the hypotheses of each line of positive length, in no particular order.

    Args:
      make_block: a group -> its block, NumPy arrays.
      lengths: of the lines. Each of several processes searches its share of them.
    """
    groups, once = own_groups(lengths, decode, search.mesh), Once()
    buckets = [
        Bucket(search, longest_output(width, decode), list(bucket_groups), once)
        for width, bucket_groups in itertools.groupby(groups, lambda g: g.bucket)
    ]

    def searched() -> Iterator[Finished | None]:
        for bucket in buckets:
            yield from bucket.run(make_block)

    count = min(searches_at_once(search), len(groups))
    for finished in merged([searched() for _ in range(count)], "search"):
        if finished:
            yield finished


def searches_at_once(search: Search) -> int:
    """Returns how many searches run beside each other, in threads.

    On one CPU device each core has a search of its own: products of small matrices do
    not become faster on several cores, and those of large ones fill all cores either
    way (docs/notes/cpu-speed.md). Other devices are busy with one.
    """
    return core_count() if on_one_cpu(search) else 1


def on_one_cpu(search: Search) -> bool:
    """Returns True if a search is on the processor, as one device."""
    return jax.default_backend() == "cpu" and search.mesh.size == 1


class Once:
    """Lets threads wait while one of them compiles a program that all need."""

    def __init__(self):
        self.lock, self.compiled = threading.Lock(), set()

    def __call__(self, program: Callable, *arrays: Any, **options: Any) -> Any:
        """Calls a program, one thread at a time until it is compiled."""
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(arrays))
        key = program.__name__, options.get("room"), shapes
        if key in self.compiled:
            return program(*arrays, **options)
        with self.lock:
            result = program(*arrays, **options)
            self.compiled.add(key)
        return result


class Bucket:
    """The batches of one bucket; several threads may run it together.

    Args:
      waiting: the groups that are not begun.
      table: of the constraints of all batches; if None, each block has its own.

    Attributes:
      parked: position -> the batch that waits at this position for more lines.
    """

    def __init__(
        self,
        search: Search,
        max_length: int,
        waiting: list[Group],
        once: Once,
        table: SharedTable | None = None,
    ):
        self.search, self.mesh, self.max_length = search, search.mesh, max_length
        self.once, self.table, self.lock = once, table, threading.Lock()
        self.waiting = waiting[::-1]
        self.parked: dict[int, Batch] = {}

    def run(self, make_block: Callable) -> Iterator[Finished | None]:
        """Searches until no batch is left to begin or advance; yields finished lines.

        After a step without a finished line it yields None, so that it can be stopped.
        """
        while True:
            with self.lock:
                batch, group = self.take_parked(), None
                if batch is None and self.waiting:
                    group = self.waiting.pop()
            if group is not None:
                batch = self.begin(group, make_block(group))
            if batch is None:
                return
            yield from self.advance_until_parked(batch)

    def take_parked(self) -> Batch | None:
        """Takes the parked batch to advance before another group begins, if any."""
        if not self.waiting and self.parked:
            # The lowest position: it can still merge with those ahead.
            return self.parked.pop(min(self.parked))
        if len(self.parked) > max_parked():
            # The fullest batch computes the fewest empty rows.
            fullest = max(self.parked, key=lambda p: count_lines(self.parked[p]))
            return self.parked.pop(fullest)
        return None

    def begin(self, group: Group, block: Block) -> Batch:
        """Starts the search for a group's lines."""
        line_rules, block = block.rules, place_blocks(block, self.mesh)
        line_b = np.full(group.shape[0], -1)
        line_b[: len(group.lines)] = group.lines
        room = room_for(min(STRIDE, self.max_length), self.max_length)
        state = self.once(
            self.search.begin, block, room=room, max_length=self.max_length
        )
        # With a shared table, what is left of the rules is small and stays on the host.
        return Batch(state, line_b, line_rules if self.table else block.rules, 0, room)

    def advance_until_parked(self, batch: Batch | None) -> Iterator[Finished | None]:
        """Advances a batch until it is parked or all its lines have finished."""
        while batch is not None:
            batch, finished = self.advance(batch)
            yield finished
            if not count_lines(batch):
                return
            may_merge = batch.rules is None or self.table is not None
            if may_merge and count_lines(batch) < len(batch.line_b):
                with self.lock:
                    batch = self.park_or_merge(batch)

    def advance(self, batch: Batch) -> tuple[Batch, Finished | None]:
        """Advances a batch by `STRIDE`; removes the lines that have stopped."""
        state, line_b, rules, position, room = batch
        until = min(position + STRIDE, self.max_length)
        # The left `room` is still the old one: Python evaluates it first.
        if room < (room := room_for(until, self.max_length)):
            state = self.once(grow_caches, state, room=room, mesh=self.mesh)
        all_rules = self.table.joined(rules) if self.table and rules else rules
        state, stopped_b, result = self.once(
            self.search.advance, state, position, until, line_b >= 0, all_rules
        )
        done_b = (line_b >= 0) & jax.device_get(stopped_b)
        batch = Batch(state, np.where(done_b, -1, line_b), rules, until, room)
        if not done_b.any():
            return batch, None
        result = jax.tree.map(lambda leaf: leaf[done_b], jax.device_get(result))
        return batch, (line_b[done_b].tolist(), result)

    def park_or_merge(self, batch: Batch) -> Batch | None:
        """Parks a batch, or moves its lines to the one parked at its position.

        Returns:
          The batch to advance next: the parked one, if it is full or if lines remain
          that do not fit (then it is full on their device). None if all are parked.
        """
        parked = self.parked.pop(batch.position, None)
        if parked is None:
            self.parked[batch.position] = batch
            return None
        from_b = _moves(parked.line_b, batch.line_b, self.mesh.size)
        states = parked.state, batch.state
        state = self.once(merge_rows, *states, from_b, mesh=self.mesh)
        # `from_b` counts rows within a block; `line_b` is over all blocks.
        block = len(from_b) // self.mesh.size
        first_b = np.arange(len(from_b)) // block * block
        taken_b = from_b >= 0
        rows = (first_b + from_b)[taken_b]
        line_b, left_b = parked.line_b.copy(), batch.line_b.copy()
        line_b[taken_b] = batch.line_b[rows]
        left_b[rows] = -1
        rules = jax.tree.map(
            lambda leaf, moved: _with_rows(leaf, taken_b, moved[rows]),
            parked.rules,
            batch.rules,
        )
        merged = parked._replace(state=state, line_b=line_b, rules=rules)
        batch = batch._replace(line_b=left_b)
        if count_lines(batch):
            self.parked[batch.position] = batch
        elif (line_b < 0).any():
            self.parked[batch.position] = merged
            return None
        return merged


def _with_rows(array: np.ndarray, mask: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns the array with other rows where `mask` is True."""
    array = array.copy()
    array[mask] = rows
    return array


def count_lines(batch: Batch) -> int:
    """Returns the number of lines in a batch."""
    return int(np.sum(batch.line_b >= 0))


def _moves(line_b: np.ndarray, other_b: np.ndarray, blocks: int) -> np.ndarray:
    """Matches the free rows of one batch with the lines of another, by block.

    Returns:
      int32: for each row, the row in the same block of the other batch that moves here;
      -1 if none does.
    """
    from_b = np.full(len(line_b), -1, np.int32)
    for own_lines, other_lines, moves in zip(
        *(np.split(x, blocks) for x in (line_b, other_b, from_b)), strict=True
    ):
        free, lines = np.flatnonzero(own_lines < 0), np.flatnonzero(other_lines >= 0)
        count = min(len(free), len(lines))
        moves[free[:count]] = lines[:count]  # writes to `from_b`: `moves` is a view
    return from_b
