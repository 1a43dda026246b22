"""The engine of a translation server: lines of all clients share batches.

`Engine.translate` is called by the event loop; worker threads own the searches. An
answer does not depend on the load: it is to the bit what `Translator.translate` gives
for that line alone with the same options.
"""

import asyncio
import contextlib
import copy
import dataclasses
import functools
import gc
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from t2t_jax.config import Config, DecodeConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import alignment, scoring
from t2t_jax.decoding.batch_decoding import (
    EMPTY,
    STRIDE,
    Batch,
    Bucket,
    Finished,
    block_of,
    count_lines,
    max_parked,
    on_one_cpu,
    searches_at_once,
    to_text,
)
from t2t_jax.decoding.batches import (
    SHORTEST,
    Group,
    block_rows,
    bucket_for,
    longest_output,
    replicate,
)
from t2t_jax.decoding.choosing import PLAIN
from t2t_jax.decoding.constraints import (
    Automaton,
    Constraints,
    SharedTable,
    phrases_for_each,
)
from t2t_jax.decoding.inputs import Source
from t2t_jax.decoding.programs import Block, Search, merge_rows
from t2t_jax.decoding.results import Alignment, Hypothesis, Score, Translation
from t2t_jax.decoding.search_options import SamplingOptions, SearchRequest
from t2t_jax.decoding.searcher import JAX
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.parts import chunks
from t2t_jax.parallel.machine import device_memory, tree_bytes
from t2t_jax.search.algorithm import Hypotheses
from t2t_jax.text.languages import pair_of
from t2t_jax.text.units import Aligned
from t2t_jax.tools.serve.executables import Executables, NotCompiledError
from t2t_jax.tools.serve.fair_queue import FairQueue
from t2t_jax.tools.serve.turns import QUICK, LateError, Turns
from t2t_jax.tools.serve.warm_up import (
    Job,
    WarmUp,
    let_searches_go_first,
    return_freed_memory,
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What is compiled; anything else is refused.

    Attributes:
      beams: the first is the default.
      longest: tokens of a source, with its end.
      phrases: of a line: those in `must`, and one for all of `must_not`.
      states: of the automata of all phrases that are being searched with.
      queue: lines that wait or are being searched, of all clients.
      samples: of a line.
      sampling: how they are drawn.
    """

    beams: tuple[int, ...] = (4,)
    longest: int = 128
    phrases: int = 4
    states: int = 1024
    queue: int = 20_000
    samples: int = 0
    sampling: SamplingOptions = dataclasses.field(default_factory=SamplingOptions)


class OverloadedError(Exception):
    """The deadline cannot be met: `retry_after` is in seconds."""

    def __init__(self, retry_after: float):
        super().__init__(f"the queue is too long; retry after {retry_after:.0f} s")
        self.retry_after = retry_after


class CompilingError(OverloadedError):
    """A program is still to be compiled: `retry_after` is an estimate."""

    def __init__(self, name: str, retry_after: float):
        super().__init__(retry_after)
        self.args = (f"still being compiled: {name}; retry after {retry_after:.0f} s",)


class StoppingError(Exception):
    """The server takes no more lines, and answers those that it has."""


@dataclasses.dataclass(frozen=True)
class Direction:
    """A translator that is served.

    Attributes:
      name: such as `en-de`.
      source, target: the languages' codes, such as `en` and `de`.
    """

    name: str
    source: str
    target: str
    translator: Translator


@dataclasses.dataclass(frozen=True)
class Details:
    """More about one translation.

    Attributes:
      score: each token with its log-probability, and the end.
      alignment: links of source to target words; None if the model has no attention to
        the source.
    """

    score: Score
    alignment: Alignment | None


@dataclasses.dataclass(eq=False)
class _Line:
    """A line that waits or is being searched."""

    index: int  # in its call
    text: str
    source: Source
    constraints: Constraints
    nbest: int
    samples: int = 0  # that are drawn, in place of `nbest` that are found
    seed: int = 0
    lane: tuple = ()  # the key of its lane
    program: tuple = ()  # the search, where a lane has several
    automata: Mapping[tuple, Automaton] = dataclasses.field(default_factory=dict)
    states: Sequence[int] = ()  # in the table, while it is searched
    call: "_Call | None" = None


class _Call:
    """The lines of one call of `Engine.translate`; its result is for the event loop.

    Attributes:
      left: lines without a result.
    """

    def __init__(self, count: int, client: str):
        self.client = client
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future = self.loop.create_future()
        self.results: list = [None] * count
        self.left = count
        self.dropped = False

    def set(self, results: Mapping[int, Translation | BaseException]) -> None:
        """Takes the results of lines by index, from any thread."""
        if results and not self.dropped:
            self.loop.call_soon_threadsafe(self._set, results)

    def _set(self, results: Mapping[int, Translation | BaseException]) -> None:
        # In the loop's thread: two threads that count `left` down could miss one.
        for index, result in results.items():
            self.results[index] = result
        self.left -= len(results)
        if not self.left and not self.done.done():
            self.done.set_result(None)


NO_CONSTRAINTS = "this server takes no prefix, phrases or glossaries (--phrases=N)"
# Lines that a client may wait for while nobody knows how long lines take.
UNKNOWN = 1_000
ENCODED = 16  # lines of a step
PAIRS = 16  # whose details are computed in a turn
NEW = -1  # the position of lines that wait
# Rows of blocks for few lines. On a CPU a search with them has the same bits as one
# with all rows (`model/products.py: Transposed`), in a part of the time. One row has
# other programs, with other last bits. Each size takes as long to compile; where all
# rows are fewer, or constrained, there is only the first.
FEW = 2, 4


class _Lane(Bucket):
    """The lines of one bucket and one program, and the batches that search them.

    All methods but `begin` and `advance` are called with the engine's lock.

    Attributes:
      queue: lines that wait.
      searched: the lines in batches, by number.
      running: batches that threads advance now.
      sizes: rows that a block may have; none before its programs are compiled.
    """

    compiles = True

    def __init__(
        self,
        search: Search,
        bucket: int,
        decode: DecodeConfig,
        vocabulary: Vocabulary,
        lock: threading.Lock,
        executables: Executables,
        table: SharedTable | None,
    ):
        super().__init__(search, longest_output(bucket, decode), [], executables, table)
        self.vocabulary = vocabulary
        self.bucket, self.decode, self.lock = bucket, decode, lock
        self.rows = block_rows(bucket, decode)
        self.sizes: list[int] = []
        self._expected: dict[int, tuple[np.ndarray, ...]] = {}
        self._begin_empty()

    def _begin_empty(self) -> None:
        self.queue: FairQueue[_Line] = FairQueue()
        self.searched: dict[int, _Line] = {}
        self.running = 0
        self._numbers = itertools.count()
        self.stride = 0.01  # seconds of the last ones
        self.counts = np.zeros(2, int)  # rows of strides: of lines, and all
        # The position of a parked batch, or `NEW` for lines that wait -> since when it
        # has been passed over.
        self._since: dict[int, float] = {}

    def busy(self) -> bool:
        """True if lines wait or are being searched."""
        return bool(self.queue or self.parked or self.running)

    def ranks(self, may_begin: bool) -> dict[int, float]:
        """Ranks what could be advanced or begun: the position -> its rank.

        A batch takes as long with one line as with all. So most lines go first: those
        of a parked batch, which fills up while it waits, or those in the queue. Each
        stride for which they have been passed over counts as a line more. Few lines
        in the queue wait for others while many are being searched.
        """
        now = time.monotonic()
        counts = {p: count_lines(batch) for p, batch in self.parked.items()}
        in_threads = len(self.searched) - sum(counts.values())
        if self.queue and may_begin:
            counts[NEW] = min(len(self.queue), self.capacity)
        self._since = {p: self._since.get(p, now) for p in counts}
        ranks = {p: n + (now - self._since[p]) / self.stride for p, n in counts.items()}
        if self.compiles and ranks.get(NEW, in_threads) < in_threads / 2:
            del ranks[NEW]
        return ranks

    def take(self, place: int) -> Batch | Group | None:
        """Takes what has this position; None for lines that have to wait for states."""
        task = self.parked.pop(place, None) or self._new_group()
        if task is not None:
            del self._since[place]
            self.running += 1
        return task

    def _new_group(self) -> Group | None:
        """A group of waiting lines, if there is room for their constraints.

        Its blocks are the largest of which two thirds are filled: time is about in
        proportion to the rows, and further lines go into another group.
        """
        devices, waiting = self.mesh.size, len(self.queue)
        filled = [rows for rows in self.sizes if 3 * waiting >= 2 * rows * devices]
        rows = filled[-1] if filled else self.sizes[0]
        lines = self._lines(rows * devices)
        return Group(lines, self.bucket, rows, devices) if lines else None

    @property
    def capacity(self) -> int:
        """Lines of a batch, at most."""
        return self.rows * self.mesh.size

    def _lines(self, count: int) -> list[int]:
        """Takes lines from the queue, which ask for the same search."""
        numbers, program = [], None
        while self.queue and len(numbers) < count:
            line = self.queue.pop()
            if line.call.dropped:
                continue
            if line.program != (program := program or line.program):
                self.queue.put_first(line.call.client, line.call, line)
                break
            if self.table is not None:
                states = self.table.take(line.automata)
                if states is None:  # until others have given states back
                    self.queue.put_first(line.call.client, line.call, line)
                    break
                line.states = states
            number = next(self._numbers)
            self.searched[number] = line
            numbers.append(number)
        return numbers

    def block(self, group: Group, lines: Sequence[_Line] | None = None) -> Block:
        """Builds the arrays of a group's lines, those that are searched by default."""
        if lines is None:
            lines = [self.searched[number] for number in group.lines]
        rules = None
        if self.table is not None:
            line_starts = [(line.constraints.prefix, line.states) for line in lines]
            rules = self.table.rows(line_starts, group.shape[0], self.max_length)
        sources, seeds = zip(*((line.source, line.seed) for line in lines), strict=True)
        return block_of(group, sources, rules, self.decode, seeds)

    def park_or_merge(self, batch: Batch) -> Batch | None:
        """As a `Bucket`; a batch of few rows goes on by itself."""
        if len(batch.line_b) < self.rows * self.mesh.size:
            return batch
        return super().park_or_merge(batch)

    def advance(self, batch: Batch) -> tuple[Batch, Finished | None]:
        """Advances a batch, without the lines that nobody waits for any more.

        After an error, the lines of this batch have it as their result, and no other.
        """
        with self.lock:
            for row, number in enumerate(batch.line_b.tolist()):
                if number >= 0 and self.searched[number].call.dropped:
                    self.leave(number)
                    batch.line_b[row] = -1
            lines = count_lines(batch)
            self.counts += lines, len(batch.line_b) if lines else 0
        if not lines:
            return batch, None
        began = time.monotonic()
        try:
            return super().advance(batch)
        except Exception as error:  # of the device, for one
            return self.fail(batch.line_b.tolist(), error, batch), None
        finally:
            self.stride += 0.2 * (time.monotonic() - began - self.stride)

    def fail(
        self, numbers: Iterable[int], error: Exception, batch: Batch | None = None
    ) -> Batch | None:
        """Makes an error the result of lines; returns the batch without them."""
        with self.lock:
            lines = [self.leave(number) for number in numbers if number >= 0]
        for line in lines:
            line.call.set({line.index: error})
        return batch and batch._replace(line_b=batch.line_b * 0 - 1)

    def finish(self, numbers: list[int], result: Hypotheses) -> None:
        """Gives lines their hypotheses."""
        with self.lock:
            lines = [self.leave(number) for number in numbers]
        # Several texts that differ are chosen from all that were found.
        counts = [line.samples or (1 if line.nbest == 1 else None) for line in lines]
        self.answer(lines, to_text(result, self.vocabulary, counts))

    def answer(self, lines: Iterable[_Line], results: Iterable[tuple]) -> None:
        """Gives lines the hypotheses that were found for them."""
        by_call: dict[_Call, dict[int, Translation]] = {}
        for line, hypotheses in zip(lines, results, strict=True):
            translation = Translation(line.text, hypotheses, line.source.cut)
            if not line.samples:
                translation = translation.distinct(line.nbest)
            by_call.setdefault(line.call, {})[line.index] = translation
        for call, translations in by_call.items():
            call.set(translations)

    def run(self, task: Batch | Group) -> Iterator[int]:
        """Advances a batch until it is parked; yields counts of finished lines."""
        if isinstance(task, Group):
            try:
                task = self.begin(task, self.block(task))
            except Exception as error:
                self.fail(task.lines, error)
                return
        for finished in self.advance_until_parked(task):
            if finished:
                self.finish(*finished)
            yield len(finished[0]) if finished else 0

    def renewed(self, translator: Translator) -> "_Lane":
        """An empty lane with the parameters of another translator, and its programs."""
        devices = [*self.mesh.devices.flat]
        parameters = replicate(translator.search_parameters, devices)
        search = self.search._replace(parameters=parameters)
        shared = self.decode, self.vocabulary, self.lock, self.once, self.table
        lane = _Lane(search, self.bucket, *shared)
        lane.sizes = self.sizes  # the same list: compiling may still add to it
        return lane

    @property
    def searches_at_once(self) -> int:
        """How many threads may run it beside each other."""
        return searches_at_once(self.search)

    def leave(self, number: int) -> _Line:
        """Takes a line out; gives back its states."""
        line = self.searched.pop(number)
        if self.table is not None:
            self.table.give_back(line.automata)
        return line

    def few_rows(self) -> tuple[int, ...]:
        """Smaller sizes of blocks that are worth trying."""
        if not on_one_cpu(self.search):
            return ()
        return FEW if self.bucket == SHORTEST and self.table is None else FEW[:1]

    def compile(self, rows: int) -> None:
        """Compiles the programs of a block; fewer than all rows must not change a bit.

        What was found out by an earlier process is not tried again.
        """
        about = self.search.algorithm, self.bucket, self.max_length, self.rows, rows
        about += () if self.table is None else (self.table.states, self.table.width)
        if (same_bits := self.once.recall(*about)) is None:
            lane = copy.copy(self)
            lane.once = compiler = self.once.compiler()
            results = lane._try(rows)
            if rows == self.rows:
                self._expected = results
            self._expected = self._expected or lane._try(self.rows)
            same_bits = rows == self.rows or all(
                all(map(np.array_equal, self._expected[number], arrays))
                for number, arrays in results.items()
            )
            compiler.remember(same_bits, *about)
        if same_bits:
            with self.lock:
                self.sizes[:] = sorted({*self.sizes, rows})

    def _try(self, rows: int) -> dict[int, tuple[np.ndarray, ...]]:
        """Searches for made-up lines, through all positions; returns their hypotheses.

        They fill a block, which is merged with another at each position if it has all
        rows.
        """
        results = {}
        group = Group([*range(rows)], self.bucket, rows, self.mesh.size)
        sources = map(self._made_up, range(rows))
        lines = [_Line(0, "", source, Constraints(), 1) for source in sources]
        batch, other = (self.begin(group, self.block(group, lines)) for _ in range(2))
        nothing_b = np.full(len(batch.line_b), -1, np.int32)
        for _ in range(0, self.max_length, STRIDE):
            batch, finished = Bucket.advance(self, batch)
            if finished:
                results |= zip(finished[0], zip(*finished[1], strict=True), strict=True)
            if rows == self.rows:
                other, _ = Bucket.advance(self, other)
                state = self.once(
                    merge_rows, batch.state, other.state, nothing_b, mesh=self.mesh
                )
                # A merged one is advanced, and merged, as one that was not. Both have
                # the same lines.
                batch, other = other, batch._replace(state=state)
        return results

    def _made_up(self, row: int) -> Source:
        """A source of some length; another one for each row."""
        size, length = self.vocabulary.source.sizes[0], self.bucket - row % 4
        ids = (np.arange(1, length) * (row + 1) * 7 % size).tolist()
        return Source([*ids, self.vocabulary.source.eos], 0)


class _ExportedLane(_Lane):
    """The lines of a direction that CTranslate2 searches, in batches that are whole."""

    compiles, sizes, table = False, (1,), None

    def __init__(self, translator: Translator, lock: threading.Lock):
        self.translator, self.lock = translator, lock
        self.parked: dict[int, Batch] = {}
        # The searches of programs: to check one takes as long as a line's text.
        self._search = functools.cache(lambda p: translator.beam_search(**dict(p)))
        self._begin_empty()

    @property
    def searches_at_once(self) -> int:
        """How many threads may run it beside each other."""
        return self.translator.searches_at_once

    @property
    def capacity(self) -> int:
        """Lines of a batch, at most."""
        return self.translator.batch_rows

    def renewed(self, translator: Translator) -> "_ExportedLane":
        """An empty lane with another translator."""
        return _ExportedLane(translator, self.lock)

    def _new_group(self) -> list[int] | None:
        """Lines that ask for the same search; they leave some for idle threads."""
        idle = max(1, self.searches_at_once - self.running)
        share = -(-len(self.queue) // idle)
        numbers = self._lines(min(share, self.capacity))
        self.counts += len(numbers)
        return numbers or None

    def run(self, task: list[int]) -> Iterator[int]:
        """Searches for lines; yields their number."""
        lines = [self.searched[number] for number in task]
        began = time.monotonic()
        try:
            results = self.translator.decode(
                self._search(lines[0].program),
                [line.source for line in lines],
                [line.constraints for line in lines],
                at_once=1,
            )
        except Exception as error:
            if len(task) > 1:  # of one of them, so each by itself
                for number in task:
                    yield from self.run([number])
            else:
                self.fail(task, error)
            return
        self.stride += 0.2 * (time.monotonic() - began - self.stride)
        with self.lock:
            for number in task:
                self.leave(number)
        self.answer(lines, results)
        yield len(lines)


# Programs compiled in this process.
_compiled = 0


def _count_compilation(event: str, _: float, **__) -> None:
    global _compiled
    _compiled += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count_compilation)


class Engine:
    """Translates lines of many clients at once.

    Attributes:
      directions: by name, in the order of the command line; the first is the default.
      limits: what is compiled.
      ready: lines of the smallest bucket are answered.
      turns: in which all work for clients is done that is no search.

    Args:
      translators: by name.

    Raises:
      UserError: a model does not translate, its options are not served, or memory is
        too small.
    """

    def __init__(
        self, translators: Mapping[str, Translator], limits: Limits = Limits()
    ):
        self.limits, self.ready = limits, False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._lanes: list[_Lane] = []
        # (direction, beam or 0, hypotheses, with constraints?, bucket) -> lane
        self._lane_of: dict[tuple, _Lane] = {}
        self._tables: dict[str, SharedTable] = {}
        self._executables: dict[str, Executables] = {}
        self.directions: dict[str, Direction] = {}
        for name, translator in translators.items():
            data = translator.config.data
            codes = pair_of(name) or (data.source, data.target)
            self.directions[name] = Direction(name, *codes, translator)
            self._add_lanes(name, translator)
        self._workers = max(lane.searches_at_once for lane in self._lanes)
        self._batches = self._workers + max_parked()  # of all lanes
        self._check_memory()
        self._threads: list[threading.Thread] = []
        self.turns = Turns()
        self._closing = False
        self._calls: set[_Call] = set()  # that are not answered
        self._compiled_before: int | None = None
        self._warm_up: WarmUp | None = None
        self._seconds, self._finished = 0.0, 0.0  # of workers, and lines in them
        self._rows_before = np.zeros(2)  # rows that do not count any more
        self._advanced: dict[str, float] = {}  # thread -> when it began its stride

    def _add_lanes(self, name: str, translator: Translator) -> None:
        """Makes the lanes of a direction, one for each program and bucket."""
        config, limits = translator.config, self.limits
        if not translator.model.has_source or config.decode.choose != PLAIN:
            raise UserError(
                f"{name}: config.model.kind={config.model.kind!r}, config.decode."
                f"choose={config.decode.choose!r}; want a model that translates, and "
                f"choose={PLAIN!r}"
            )
        if translator.engine != JAX:
            self._lanes.append(lane := _ExportedLane(translator, self._lock))
            self._lane_of[name, translator.engine] = lane
            self._tables[name] = None
            return
        mesh, vocabulary = translator.members[0].mesh, translator.vocabulary
        self._tables[name] = table = SharedTable(
            vocabulary, limits.states, limits.phrases, mesh
        )
        executables = Executables(translator.members, vocabulary.sizes)
        for others in self._executables.values():
            if others and others.facts == executables.facts:  # adapters of one base
                executables = others
        self._executables[name] = executables
        shared = config.decode, vocabulary, self._lock, executables
        last = bucket_for(limits.longest)
        buckets = [1 << n for n in range(SHORTEST.bit_length() - 1, last.bit_length())]
        searches = {
            (beam, count): translator.beam_search(count, beam=beam)
            for beam in limits.beams
            for count in {
                _compiled_count(nbest, beam, config): 0 for nbest in (1, beam)
            }
        }
        if count := limits.samples:
            searches[0, count] = translator.sampling(count, limits.sampling)
        for (program, search), bucket in itertools.product(searches.items(), buckets):
            for rules in (None, table) if limits.phrases else (None,):
                lane = _Lane(search, bucket, *shared, rules)
                self._lanes.append(lane)
                self._lane_of[name, *program, rules is not None, bucket] = lane

    def _check_memory(self) -> None:
        """Raises UserError if parameters and batches do not fit into a device."""
        batch_bytes = parameters = 0.0
        lanes = [lane for lane in self._lanes if lane.compiles]
        for lane in lanes[:: 1 + bool(self.limits.phrases)]:  # one of each shape
            a, b = lane.search.memory(lane.rows, lane.bucket, lane.max_length)
            n = lane.search.algorithm.rows
            batch_bytes = max(batch_bytes, a * n + b * n**2)
        for direction in self.directions.values():
            translator = direction.translator
            if translator.engine != JAX:
                continue
            stored = [member.parameters for member in translator.members]
            # Searches on a CPU have copies of some of them.
            leaves = jax.tree.leaves((stored, translator.search_parameters))
            parameters += tree_bytes({id(leaf): leaf for leaf in leaves})
        needed = parameters + self._batches * batch_bytes
        limit = lanes and device_memory(lanes[0].mesh.local_devices[0])
        if lanes and needed > limit:
            models, batches, has = (
                f"{size / 2**30:,.1f} GiB"
                for size in (parameters, needed - parameters, limit)
            )
            raise UserError(
                f"{len(self.directions)} models take {models}, and {self._batches} "
                f"batches {batches}; this device has {has}: serve fewer models, "
                "narrower beams, or shorter lines"
            )

    # ------------------------------------------------------------------ compiling

    def warm_up(self, report: Callable[[str], None] = lambda line: None) -> None:
        """Compiles what short lines need, and starts the threads; blocks.

        Args:
          report: gets lines about progress, of `compile_rest` too.
        """
        self._warm_up = WarmUp(self._jobs(), report)
        self._warm_up.run(lambda: all(lane.sizes for lane in self._first_lanes()))
        _freeze_live_objects()
        for number in range(self._workers):
            thread = threading.Thread(target=self._work, name=f"search-{number}")
            thread.start()
            self._threads.append(thread)
        self.ready = True

    def compile_rest(self) -> None:
        """Compiles all that `warm_up` has left, while lines are answered; blocks."""
        compiled_before = _compiled
        if self.compiling:
            let_searches_go_first()
        self._warm_up.run()
        if _compiled > compiled_before:
            jax.clear_caches()  # of what was traced
        _freeze_live_objects()
        return_freed_memory()
        self._compiled_before = _compiled

    def _first_lanes(self) -> list[_Lane]:
        """For short lines, of each direction, as they are searched by default."""
        keys = {key[0]: key for key in reversed(self._lane_of)}
        return [self._lane_of[key] for key in keys.values()]

    def _jobs(self) -> list[Job]:
        """All that is to be compiled, what comes first in front."""
        ranked, first_lanes = [], self._first_lanes()
        for key, lane in self._lane_of.items():
            if not lane.compiles:
                continue
            direction, beam, _, constrained, bucket = key
            what = f"beam {beam}" if beam else "samples"
            what += f", up to {bucket} tokens" + ", with constraints" * constrained
            for rows in (lane.rows, *lane.few_rows()):
                rank = (lane not in first_lanes) * 3 + (rows != lane.rows)
                name = f"{direction}: {what}, {rows} lines"
                work = partial(lane.compile, rows)
                ranked.append((rank, constrained, bucket, Job(key, name, work)))
        for name in self._executables:
            for length in self._lengths(self.directions[name].translator):
                work = partial(self._compile_details, name, length)
                job = Job((name, "details"), f"{name}: details, {length} tokens", work)
                ranked.append((2 if length == SHORTEST else 3, False, length, job))
        return [job for *_, job in sorted(ranked, key=lambda item: item[:3])]

    @property
    def compiling(self) -> list[str]:
        """Names of what is still to be compiled."""
        return self._warm_up.left() if self._warm_up else []

    def _compiling_error(self, key: tuple) -> CompilingError:
        """The error of a line that needs a program, which is compiled next."""
        return CompilingError(*self._warm_up.hurry(key))

    def _lengths(self, translator: Translator) -> Iterator[int]:
        """Lengths of the longer side of pairs, one for each program of details."""
        longest = longest_output(self.limits.longest, translator.config.decode)
        length = SHORTEST
        while length < 2 * longest:
            yield length
            length *= 2

    def _compile_details(self, direction: str, length: int) -> None:
        executables, about = self._executables[direction], ("details", length)
        if executables.recall(*about):
            return
        translator = self.directions[direction].translator
        compiler = executables.compiler()
        eos, decode = translator.vocabulary.eos, translator.config.decode
        longest = self.limits.longest, longest_output(self.limits.longest, decode)
        pair = tuple([eos] * min(limit, length) for limit in longest)
        compiler(self._score_and_align, translator, [pair], [("", "")])
        compiler.remember(True, *about)

    @property
    def compilations(self) -> int:
        """Programs compiled since all were; 0 unless something is wrong."""
        before = self._compiled_before
        return 0 if before is None else _compiled - before

    # ------------------------------------------------------------------- searching

    def _work(self) -> None:
        """Begins and advances batches, until the engine is closed and all is done."""
        while True:
            with self._changed:
                while (work := self._take()) is None:
                    if self._closing and not self._busy():
                        self._changed.notify_all()
                        return
                    # Lines that wait for more of them do so for a time.
                    waiting = any(lane.queue for lane in self._lanes)
                    self._changed.wait(0.02 if waiting else None)
            lane, task = work
            name = threading.current_thread().name
            self._advanced[name] = began = time.monotonic()
            finished = 0
            try:
                finished = self._run(lane, task)
            except Exception as error:  # no line shall wait for ever
                with self._lock:
                    searched = [*lane.searched]
                    lane.parked.clear()
                lane.fail(searched, error)
            finally:
                del self._advanced[name]
                with self._changed:
                    lane.running -= 1
                    self._remove_retired()
                    self._seconds += time.monotonic() - began
                    self._finished += finished
                    if self._seconds > 60:  # what comes now counts more
                        self._seconds /= 2
                        self._finished /= 2
                        self._rows_before = (self._rows_before + self.rows()) / 2
                    # This thread takes what is next; others would wake for nothing.
                    if any(lane.queue or lane.parked for lane in self._lanes):
                        self._changed.notify()

    def _rate(self) -> float:
        """Lines a second that full batches would finish; 0 if unknown."""
        used, computed = self.rows() - self._rows_before
        if not used or not self._finished:
            return 0.0
        return self._finished / self._seconds * self._workers * computed / used

    def _busy(self) -> bool:
        return bool(self._calls) or any(lane.busy() for lane in self._lanes)

    def _take(self) -> tuple[_Lane, Batch | Group] | None:
        """Takes the work that ranks highest in all lanes."""
        alive = sum(len(lane.parked) + lane.running for lane in self._lanes)
        ranked = [
            (rank, lane, place)
            for lane in self._lanes
            for place, rank in lane.ranks(alive < self._batches).items()
        ]
        for _, lane, place in sorted(ranked, key=lambda item: -item[0]):
            if task := lane.take(place):
                return lane, task
        return None

    def _run(self, lane: _Lane, task: Batch | Group) -> int:
        """Advances a batch until it is parked; returns the number of finished lines."""
        count, name = 0, threading.current_thread().name
        for finished in lane.run(task):
            self._advanced[name] = time.monotonic()
            count += finished
        return count

    def stuck(self) -> float:
        """Seconds for which a thread has not gone on, in a search or in a turn."""
        now = time.monotonic()
        searches = [now - began for began in [*self._advanced.values()]]
        return max([self.turns.longest(), *searches])

    # --------------------------------------------------------------------- calls

    def rows(self) -> np.ndarray:
        """Rows that were computed since the start, [2]: those of lines, and all."""
        return sum(lane.counts for lane in self._lane_of.values())

    def queued(self) -> int:
        """The number of lines that are to be answered."""
        with self._lock:
            return sum(self._load().values())

    def _load(self) -> Counter[str]:
        """Lines that are to be answered, by client."""
        load: Counter[str] = Counter()
        for call in self._calls:
            load[call.client] += call.left
        return load

    @contextlib.contextmanager
    def expected(
        self, client: str, count: int, deadline: float, checked: bool = False
    ) -> Iterator[_Call]:
        """Counts lines as those that are to be answered, before they can be searched.

        Args:
          checked: by `check_load`, with others.

        Raises:
          StoppingError, or as `check_load`.
        """
        if not checked:
            self.check_load(client, count, deadline)
        with self._lock:
            if self._closing:
                raise StoppingError("the server is stopping; it takes no more lines")
            self._calls.add(call := _Call(count, client))
        try:
            yield call
        finally:
            self._drop(call)

    async def translate(
        self,
        direction: str,
        lines: Sequence[str],
        requests: Sequence[SearchRequest],
        *,
        client: str,
        deadline: float,
        checked: bool = False,
    ) -> list[Translation | UserError]:
        """Translates lines; in order. A line that is refused has its error instead.

        If the task is cancelled, its lines leave the queue and the batches.

        Args:
          requests: of each line. Of their `search`, `beam` is read: one of
            `Limits.beams`, the first of them by default.
          client: lines of all clients take turns, and so do the calls of a client.
          deadline: of `time.monotonic()`.
          checked: as for `expected`.

        Raises:
          LateError, or as `expected`: for all lines together.
        """
        with self.expected(client, len(lines), deadline, checked) as call:
            encoding = self._enqueue(direction, lines, requests, call)
            # Automata take their time.
            constrained = any(x.must or x.must_not for x in requests)
            quick = not constrained and sum(map(len, lines)) <= QUICK
            quick = quick and not any(request.prefix for request in requests)
            await self.turns.run(encoding, client, deadline, quick=quick)
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    if call.results:
                        await call.done
            except TimeoutError:
                raise LateError(
                    f"{call.left} of {len(lines)} lines were not translated in time"
                ) from None
        for result in call.results:
            if isinstance(result, Exception) and not isinstance(result, UserError):
                raise result
        return call.results

    def _enqueue(
        self,
        direction: str,
        lines: Sequence[str],
        requests: Sequence[SearchRequest],
        call: _Call,
    ) -> Iterator[None]:
        """Encodes lines, some a step, and puts them into the queues of their lanes."""
        translator = self.directions[direction].translator
        results: dict[int, Translation | UserError] = {}
        waiting: list[_Line] = []
        numbered = enumerate(zip(lines, requests, strict=True))
        for request, alike in itertools.groupby(numbered, lambda item: item[1][1]):
            for chunk in chunks(alike, ENCODED):
                texts = {index: text for index, (text, _) in chunk}
                placed = self._placed(direction, translator, texts, request)
                for index, outcome in placed.items():
                    if isinstance(outcome, _Line):
                        outcome.call = call
                        waiting.append(outcome)
                    else:
                        results[index] = outcome
                yield
        call.set(results)
        with self._changed:
            if call.dropped:
                return
            for line in waiting:
                self._lane_of[line.lane].queue.put(call.client, call, line)
            self._changed.notify(len(waiting))

    def _placed(
        self,
        direction: str,
        translator: Translator,
        texts: Mapping[int, str],
        request: SearchRequest,
    ) -> dict[int, _Line | Translation | UserError]:
        """Encodes lines, by their number in the call; a blank one has its result."""
        try:
            lines = self._encoded(direction, translator, texts, request)
            for line in lines:
                line.lane = self._lane(direction, translator, line, request)
        except UserError as error:
            if len(texts) == 1:
                return dict.fromkeys(texts, error)
            outcomes = {}
            for item in texts.items():  # one is wrong, so each by itself
                outcomes |= self._placed(direction, translator, dict([item]), request)
            return outcomes
        return {
            line.index: line if line.lane else Translation(line.text, (EMPTY,))
            for line in lines
        }

    def _encoded(
        self,
        direction: str,
        translator: Translator,
        texts: Mapping[int, str],
        request: SearchRequest,
    ) -> list[_Line]:
        """Checks a request, and encodes its lines; they have numbers in the call."""
        limits = self.limits
        requested_beam, count = request.search.get("beam"), request.samples
        beam = requested_beam or limits.beams[0]
        translator.check_request(request)
        if count > limits.samples:
            raise UserError(
                f"samples={count}; this server has {limits.samples} (--samples=N)"
            )
        if count and (requested_beam or request.nbest > 1 or request.must):
            raise UserError("samples: want them without beam, nbest and must")
        if beam not in limits.beams:
            raise UserError(
                f"beam={beam}; this server has {', '.join(map(str, limits.beams))}"
            )
        if not 1 <= request.nbest <= beam:
            raise UserError(f"nbest={request.nbest}; want 1 to {beam}, the beam")
        if request.must or request.must_not:
            if not limits.phrases:
                raise UserError(NO_CONSTRAINTS)
            self._tables[direction].check(
                *phrases_for_each(request.must, 1, "must"),
                *phrases_for_each(request.must_not, 1, "must_not"),
            )
        request = dataclasses.replace(request, warn=False)
        columns = zip(*translator.encode([*texts.values()], request), strict=True)
        return [
            _Line(*item, *encoded, request.nbest, count, request.seed)
            for item, encoded in zip(texts.items(), columns, strict=True)
        ]

    def _lane(
        self,
        direction: str,
        translator: Translator,
        line: _Line,
        request: SearchRequest,
    ) -> tuple:
        """The key of a line's lane; empty for a blank one."""
        limits, decode, source = self.limits, translator.config.decode, line.source
        beam, count = request.search.get("beam") or limits.beams[0], request.samples
        if not source.ids:
            return ()
        if len(source.ids) > limits.longest:
            raise UserError(
                f"the line has {len(source.ids) + source.cut - 1} tokens; want at most "
                f"{limits.longest - 1}: divide it into sentences"
            )
        if translator.engine != JAX:
            line.program = ("nbest", 1 if line.nbest == 1 else beam), ("beam", beam)
            return direction, translator.engine
        constrained = line.constraints != Constraints()
        if constrained:
            if not limits.phrases:
                raise UserError(NO_CONSTRAINTS)
            line.automata = self._tables[direction].automata(line.constraints)
        if decode.stop == "first" and request.nbest not in (1, beam):
            raise UserError(f"{request.nbest} translations; want 1 or {beam}, the beam")
        program = beam, _compiled_count(request.nbest, beam, translator.config)
        program = (0, limits.samples) if count else program
        key = direction, *program, constrained, bucket_for(len(source.ids))
        if not self._lane_of[key].sizes:
            raise self._compiling_error(key)
        return key

    def check_load(self, client: str, count: int, deadline: float) -> None:
        """Refuses new lines that could not be answered in time.

        Clients take turns, so others delay a client by as many lines as it waits for.

        Raises:
          OverloadedError: for all lines together.
          UserError: there are more than the queue ever has.
        """
        if count > (limit := self.limits.queue):
            raise UserError(f"{count:,} lines or sentences; want at most {limit:,}")
        with self._lock:
            load = self._load()
            rate = self._rate() if load else 0.0
        total = load.pop(client, 0) + count  # of this client
        ahead = sum(min(lines, total) for lines in load.values())
        waiting = sum(load.values()) + total - count
        late = (ahead + total) / rate - (deadline - time.monotonic()) if rate else 0.0
        unknown = not rate and total > max(count, UNKNOWN)
        full = waiting + count > limit
        if unknown or full or (waiting and late > 0):
            raise OverloadedError(max(1.0, late, waiting / rate if rate else 1.0))

    def _drop(self, call: _Call) -> None:
        """Takes the lines of a call out of the queues; batches lose them as they go."""
        with self._changed:
            self._calls.discard(call)
            if call.left:
                call.dropped = True
                for lane in self._lanes:
                    lane.queue.remove(call.client, call)
            if self._closing:  # the threads wait for the last call
                self._changed.notify_all()

    async def details(
        self,
        direction: str,
        pairs: Sequence[tuple[str, Translation]],
        *,
        client: str,
        deadline: float,
    ) -> list[Details]:
        """Scores tokens and aligns words of translations. Raises as `translate`."""
        translator = self.directions[direction].translator

        def steps() -> Generator[None, None, list[Details]]:
            details = [Details(Score((), (), 0.0), Alignment(()))] * len(pairs)
            searched = (row for row, (_, t) in enumerate(pairs) if t.best.tokens)
            for rows in chunks(searched, PAIRS):
                chunk = [pairs[row] for row in rows]
                encoded = translator.reader(1, warn=False).pairs(chunk)
                texts = [(source, t.best.text) for source, t in chunk]
                results = self._run_now(
                    direction, self._score_and_align, translator, encoded, texts
                )
                for row, result in zip(rows, results, strict=True):
                    details[row] = result
                yield
            return details

        return await self.turns.run(steps(), client, deadline)

    async def align_units(
        self,
        direction: str,
        pairs: Sequence[tuple[str, Hypothesis]],
        *,
        client: str,
        deadline: float,
    ) -> list[Aligned]:
        """Links the units of translations, as `Translator.align_units`."""
        translator = self.directions[direction].translator

        def steps() -> Generator[None, None, list[Aligned]]:
            aligned = []
            for chunk in chunks(pairs, PAIRS):
                aligned += self._run_now(direction, translator.align_units, chunk)
                yield
            return aligned

        return await self.turns.run(steps(), client, deadline)

    def _run_now(self, direction: str, work: Callable, *arguments: Any) -> list:
        """Calls what computes details, unless it has to wait for a program."""
        if direction not in self._executables:
            return work(*arguments)
        executables = self._executables[direction]
        call = executables.call_compiled if self.compiling else executables
        try:
            return call(work, *arguments)
        except NotCompiledError:
            raise self._compiling_error((direction, "details")) from None

    def _score_and_align(
        self, translator: Translator, pairs: list, texts: list
    ) -> list[Details]:
        """The details of encoded pairs, and of their texts."""
        if not pairs:
            return []
        vocabulary, decode = translator.vocabulary, translator.config.decode
        log_probs = translator.token_log_probs(pairs)
        penalty = decode.alpha, decode.penalty
        scores = scoring.scores(vocabulary, pairs, log_probs, *penalty)
        links = [None] * len(pairs)
        if all(member.model.cross_layers for member in translator.members):
            weights = translator.alignment_weights(pairs)
            links = alignment.align(vocabulary, weights, pairs, texts)
        return [*map(Details, scores, links)]

    async def close(self) -> None:
        """Takes no more lines, waits for those that it has, and ends the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        self.turns.close()

    def reload(self, direction: str, translator: Translator) -> None:
        """Takes over new parameters of the same shapes for lines that come from now on.

        Lines in batches keep the old ones.

        Raises:
          UserError: the model has another config or vocabulary.
        """
        old = self.directions[direction].translator
        kinds = [
            (
                (t.engine, t.vocabulary.model),
                [m.config.model for m in t.members],
                # An adapter's; an export has programs of its own.
                t.engine == JAX and jax.tree.map(np.shape, t.members[0].parameters),
            )
            for t in (old, translator)
        ]
        if kinds[0] != kinds[1]:
            raise UserError(
                f"{direction}: the model, the vocabulary or the engine has changed; "
                "start the server again"
            )
        _ = translator.search_parameters  # made before clients wait
        with self._changed:
            self.directions[direction] = dataclasses.replace(
                self.directions[direction], translator=translator
            )
            for key, lane in self._lane_of.items():
                if key[0] == direction:
                    self._lane_of[key] = fresh = lane.renewed(translator)
                    fresh.counts = lane.counts
                    self._lanes.append(fresh)
            self._remove_retired()
        _freeze_live_objects()

    def _remove_retired(self) -> None:
        """Removes lanes of old parameters that have no line any more."""
        if len(self._lanes) > len(self._lane_of):
            current = {*map(id, self._lane_of.values())}
            for lane in [*self._lanes]:
                if id(lane) not in current and not lane.busy():
                    self._lanes.remove(lane)


def _freeze_live_objects() -> None:
    """Exempts all objects that exist now from garbage collections.

    A request of 300,000 empty lists sets off several, which stop all threads: for a
    second with the objects of JAX, for a tenth without.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _compiled_count(nbest: int, beam: int, config: Config) -> int:
    """How many hypotheses the compiled search returns to answer a request for `nbest`.

    The best of all of a beam are those of a smaller `nbest`, if no search ends at its
    first ones (`search/beam.py`), and finding all takes about as long as finding one.
    """
    return 1 if nbest == 1 and config.decode.stop == "first" else beam
