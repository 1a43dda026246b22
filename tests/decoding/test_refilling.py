"""Places of finished lines go to others, and nobody's translation notices."""

import types

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from t2t_jax.config import DecodeConfig
from t2t_jax.decoding import batch_decoding, programs
from t2t_jax.decoding.batch_decoding import search_lines
from t2t_jax.decoding.batches import block_rows, bucket_for, groups
from tests.decoding.test_devices import SHORT, on

pytestmark = pytest.mark.usefixtures("eight_devices")

DECODE = DecodeConfig(batch_tokens=256, extra_length=5)  # 8 rows of 32 positions


# Scheduling, without a model: a line's state is its number and what it was led through.


class Counted:
    """Searches whose lines stop at lengths that are told, and what they cost."""

    def __init__(self, lengths, ends, blocks, ruled=()):
        self.lengths, self.ends, self.blocks, self.ruled = lengths, ends, blocks, ruled
        self.steps = self.merges = 0

    def make(self, group):
        rules = [line for line in group.lines if line in self.ruled]
        return types.SimpleNamespace(group=group, rules=rules or None)

    def begin(self, block, room, max_length):
        lines, (count, _) = block.group.lines, block.group.shape
        line_b = np.full(count, -1)
        line_b[: len(lines)] = lines
        device_b = np.arange(count) // (count // self.blocks)
        assert max_length == block.group.bucket + DECODE.extra_length
        return types.SimpleNamespace(
            line_b=line_b, device_b=device_b, done_b=0 * line_b, room=room
        )

    def advance(self, state, position, until, there_b, rules):
        assert state.room >= until
        assert 0 < until - position <= batch_decoding.STRIDE
        bucket = {bucket_for(self.lengths[n]) for n in state.line_b[there_b]}
        assert len(bucket) == 1
        assert len(there_b) == self.blocks * block_rows(bucket.pop(), DECODE)
        assert (state.done_b[there_b] == position).all(), "a line is at another place"
        assert rules is None or {*rules} <= {*state.line_b[there_b]} | {*self.over}
        self.steps += int(until - position)
        state.done_b[there_b] = until
        stopped_b = np.array([n < 0 or self.ends[n] <= until for n in state.line_b])
        self.over += state.line_b[stopped_b & there_b].tolist()
        return programs.Advanced(
            state, stopped_b, (state.line_b.copy(), state.device_b.copy())
        )

    def grow_caches(self, state, room, mesh):
        assert room > state.room
        return types.SimpleNamespace(**vars(state) | {"room": room})

    def merge_rows(self, state, other, from_b, mesh):
        self.merges += 1
        assert state.room == other.room
        (into,) = np.nonzero(from_b >= 0)
        size = len(from_b) // self.blocks
        source = into // size * size + from_b[into]
        mixed = {}
        for name in ("line_b", "device_b", "done_b"):
            mixed[name] = getattr(state, name).copy()
            mixed[name][into] = getattr(other, name)[source]
        return types.SimpleNamespace(**mixed, room=state.room)

    def run(self):
        self.over = []
        self.mesh = types.SimpleNamespace(size=self.blocks)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch_decoding, "grow_caches", self.grow_caches)
            patch.setattr(batch_decoding, "merge_rows", self.merge_rows)
            patch.setattr(batch_decoding, "place_blocks", lambda block, mesh: block)
            return list(search_lines(self.make, self, self.lengths, DECODE))

    def in_one_piece(self) -> int:
        """Steps if every group is searched until its last line has stopped."""
        all_groups = groups(self.lengths, DECODE, self.blocks)
        return sum(max(self.ends[n] for n in group.lines) for group in all_groups)


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    strategies.integers(0, 2**32),
    strategies.integers(0, 150),
    strategies.sampled_from([1, 2, 8]),
    strategies.booleans(),
)
def test_every_line_is_found_once_where_it_began(seed, count, blocks, some_ruled):
    draw = np.random.default_rng(seed)
    lengths = draw.choice([0, 3, 20, 40, 100], count, p=[0.1, 0.3, 0.3, 0.2, 0.1])
    ends = draw.integers(1, lengths + 6)
    ruled = {*draw.choice(count, 3)} if some_ruled and count else {}
    counted = Counted(lengths.tolist(), ends.tolist(), blocks, ruled)
    results = [line for lines, _ in counted.run() for line in lines]
    assert sorted(results) == np.flatnonzero(lengths).tolist()
    all_groups = groups(lengths.tolist(), DECODE, blocks)
    home = {
        line: block
        for group in all_groups
        for block, part in enumerate(group.split(group.lines))
        for line in part
    }
    for lines, (line_b, device_b) in counted.run():
        assert line_b.tolist() == lines, "what was found is another line's"
        assert [home[line] for line in lines] == device_b.tolist()


@pytest.mark.parametrize("rules", [False, True])
def test_searches_in_several_threads_find_what_one_finds(monkeypatch, rules):
    wishes = {"must": [["ein"] * (n % 2) for n in range(len(SHORT))]} if rules else {}
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(batch_decoding, "searches_at_once", lambda _, n=threads: n)
        results.append(on(1).translate(SHORT, beam=2, nbest=2, **wishes, warn=False))
    assert results[0] == results[1]


def test_an_error_in_one_thread_ends_the_others(monkeypatch):
    monkeypatch.setattr(batch_decoding, "searches_at_once", lambda _: 3)
    counted = Counted([20] * 2_000, [25] * 2_000, blocks=1)
    make = counted.make

    def fails(group):
        if 0 in group.lines:
            raise MemoryError("no room for line 0")
        return make(group)

    counted.make = fails
    with pytest.raises(MemoryError, match="line 0"):
        counted.run()
    assert counted.steps < counted.in_one_piece() / 3, "the others searched on"


def test_finished_lines_stop_costing():
    """One line in eight is long: in one piece all others would wait for it."""
    lengths, blocks = [20] * 800, 4
    ends = [25 if n % 8 == 0 else 1 + n % 7 for n in range(800)]
    counted = Counted(lengths, ends, blocks)
    counted.run()
    assert counted.merges
    # Of 100 blocks one stretch each; what is left are the lines of an eighth of them.
    ideal = 8 * (100 + 3 * 13) / blocks
    assert counted.in_one_piece() == 25 * 100 / blocks
    assert counted.steps <= 1.15 * ideal
