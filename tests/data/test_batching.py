"""Laws of the batch plan: every pair once, nothing overlaps, budgets hold."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data import batching as planning
from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.drawing import draw
from t2t_jax.data.filling import fill, ragged
from t2t_jax.data.shapes import Shape, _cut, static_shapes

# With sources, and without them, as for a language model.
LENGTHS = st.one_of(
    st.lists(st.tuples(lengths, st.integers(1, 45)), min_size=1, max_size=120)
    for lengths in (st.integers(1, 60), st.just(0))
)
OPTIONS = st.fixed_dictionaries(
    {
        "batching": st.sampled_from(["packed", "bucketed"]),
        "batch_tokens": st.integers(8 * 80, 3000),
        "row_length": st.sampled_from([8, 30, 64]),
        "buckets": st.integers(1, 12),
        "rows_multiple": st.sampled_from([1, 3, 8]),
    }
)
ARRAYS = ("pair_p", "row_p", "source_start_p", "target_start_p", "segment_p")
REAL = {name: getattr(planning, name) for name in ("WINDOW", "OPEN_ROWS")}
BOTH = pytest.mark.parametrize("batching", ["packed", "bucketed"])


@pytest.fixture(scope="module", autouse=True)
def small_windows():
    """Windows so small that little data needs many, in several groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "WINDOW", 16)
        patch.setattr(planning, "OPEN_ROWS", 24)
        yield


def lognormal(pairs, seed=0, longest=100):
    rng = np.random.default_rng(seed)
    lengths_2 = rng.lognormal(0, 0.5, (pairs, 1)) * rng.lognormal(0, 0.1, (pairs, 2))
    return np.clip(np.rint(lengths_2 * [20, 22]), 1, longest).astype(np.int32).T


def same(plan, twin):
    return len(plan) == len(twin) and all(
        a.shape == b.shape
        and all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ARRAYS)
        for a, b in zip(plan, twin, strict=True)
    )


def slow_fill(layout, source, target):
    """`fill`, a token at a time."""
    shape = layout.shape
    arrays = {}
    for side, sentences, length, start_p in (
        ("source", source, shape.source, layout.source_start_p),
        ("target", target, shape.target, layout.target_start_p),
    ):
        names = (side, f"{side}_segment", f"{side}_position")
        for name in names:
            arrays[name] = np.zeros((shape.rows, length), np.int32)
        for pair, row, start, segment in zip(
            layout.pair_p, layout.row_p, start_p, layout.segment_p, strict=True
        ):
            for position, token in enumerate(sentences[pair]):
                values = (token, segment, position)
                for name, value in zip(names, values, strict=True):
                    arrays[name][row, start + position] = value
    return arrays


@given(LENGTHS, OPTIONS, st.integers(0, 99), st.integers(0, 3), st.booleans())
def test_a_plan_obeys_its_laws(lengths, options, seed, epoch, shuffle):
    source, target = np.array(lengths).T
    shapes = static_shapes(source, target, **options)
    assert static_shapes(*np.array(lengths[::-1]).T, **options) == shapes
    check_shapes(shapes, source, target, options)
    options = options | {"seed": seed, "epoch": epoch, "shuffle": shuffle}
    plan = plan_epoch(source, target, **options)
    assert plan.shapes == shapes
    cut = len(lengths) // 2  # weights of one change nothing, nor does another try
    options |= {"sizes": [cut, len(lengths) - cut], "weights": [1.0, 1.0]}
    assert same(plan, plan_epoch(source, target, **options))
    pairs = np.concatenate([layout.pair_p for layout in plan])
    np.testing.assert_array_equal(np.sort(pairs), np.arange(len(lengths)))
    incomplete = computed = 0
    for i, layout in enumerate(plan):
        assert len(layout.pair_p)
        assert layout.shape == plan.shape(i)
        assert layout.shape in shapes
        incomplete += len(np.unique(layout.row_p)) < layout.shape.rows
        computed += layout.shape.rows * (layout.shape.source + layout.shape.target)
        check_rows(layout, source, target)
    assert incomplete <= 1
    assert (plan.real_source, plan.real_target) == (source.sum(), target.sum())
    assert plan.computed_source + plan.computed_target == computed
    assert plan.efficiency == (source.sum() + target.sum()) / computed


def check_rows(layout, source, target):
    """Pairs do not overlap; segments count from one, and leave no holes."""
    assert np.all(np.diff(layout.row_p) >= 0)
    assert 0 <= layout.row_p[0] <= layout.row_p[-1] < layout.shape.rows
    for row in np.unique(layout.row_p):
        segments = layout.segment_p[layout.row_p == row]
        np.testing.assert_array_equal(segments, np.arange(1, len(segments) + 1))
    for start_p, length_p, length in (
        (layout.source_start_p, source[layout.pair_p], layout.shape.source),
        (layout.target_start_p, target[layout.pair_p], layout.shape.target),
    ):
        filled = np.zeros((layout.shape.rows, length), int)
        for row, start, n in zip(layout.row_p, start_p, length_p, strict=True):
            assert 0 <= start <= start + n <= length
            filled[row, start : start + n] += 1
        assert not filled.size or filled.max() == 1
        assert np.all(np.diff(filled, axis=1) <= 0)  # padding is at the end


WEIGHTED = {"sizes": [300, 100, 200], "weights": [0.3, 2, 1.5]}


@BOTH
def test_weighted_epochs_have_what_is_drawn_in_the_same_shapes(batching):
    source, target = lognormal(600, longest=80)
    # The longest are not drawn in the first epoch.
    longest, other = np.setdiff1d(np.arange(300), draw(**WEIGHTED, seed=0, epoch=0))[:2]
    source[longest], target[other] = 90, 99
    planned = functools.partial(
        plan_epoch, source, target, batch_tokens=1200, batching=batching, row_length=64
    )
    plans = []
    for seed, epoch in itertools.product(range(2), range(4)):
        plan = planned(seed=seed, epoch=epoch, **WEIGHTED)
        drawn = draw(**WEIGHTED, seed=seed, epoch=epoch)
        pairs = np.concatenate([layout.pair_p for layout in plan])
        np.testing.assert_array_equal(np.sort(pairs), np.sort(drawn))
        assert plan.real_source == source[drawn].sum()
        # Copies are shuffled: most of the 300 are not in one batch.
        assert sum(len(b.pair_p) - len({*b.pair_p}) for b in plan) < 120
        plans.append(plan)
    assert len({plan.shapes for plan in plans}) == 1
    assert any(longest in plan.arrays[0] for plan in plans)


def check_shapes(shapes, source, target, options):
    """The budget holds no further rows; any pair fits; shapes are nested."""
    for shape in shapes:
        row = max(shape.source, shape.target)
        assert shape.rows > 0
        assert shape.rows % options["rows_multiple"] == 0
        assert shape.rows * row <= options["batch_tokens"]
        assert (shape.rows + options["rows_multiple"]) * row > options["batch_tokens"]
    assert shapes[-1].source >= source.max()
    assert shapes[-1].target >= target.max()
    if options["batching"] == "packed":
        (shape,) = shapes
        assert shape.source % 8 == 0
        assert shape.target % 8 == 0
        assert max(shape.source, shape.target) >= options["row_length"]
    else:
        assert len(set(shapes)) == len(shapes) <= options["buckets"]
        for small, large in itertools.pairwise(shapes):
            assert small.source <= large.source
            assert small.target <= large.target


@BOTH
def test_every_seed_and_epoch_has_its_own_order(batching):
    planned = functools.partial(
        plan_epoch, *lognormal(500), batch_tokens=1200, batching=batching
    )
    plans = [
        planned(seed=seed, epoch=epoch, rows_multiple=1)
        for seed, epoch in itertools.product(range(2), range(2))
    ]
    for a, b in itertools.combinations(plans, 2):
        assert not same(a, b)
        # Batches have other members, not only another order.
        assert not set(map(tuple, map(np.sort, (p.pair_p for p in a)))) & set(
            map(tuple, map(np.sort, (p.pair_p for p in b)))
        )


@pytest.mark.parametrize(
    ("batching", "pairs"),
    [
        ("bucketed", [[2, 8, 11, 10, 9], [6, 7], [0, 3, 5, 1, 4]]),
        ("packed", [[8, 6, 3, 11, 4, 10, 0, 1, 2, 7], [5, 9]]),
    ],
)
def test_the_order_is_pinned(batching, pairs):
    """A run that resumes with a newer NumPy must see the batches it would have seen."""
    lengths = np.arange(1, 13)
    options = {"batching": batching, "row_length": 16, "buckets": 2, "rows_multiple": 1}
    plan = plan_epoch(lengths, lengths, batch_tokens=64, seed=7, epoch=2, **options)
    assert [layout.pair_p.tolist() for layout in plan] == pairs


@settings(max_examples=40)
@given(LENGTHS, OPTIONS)
def test_fill_equals_its_slow_twin(lengths, options):
    rng = np.random.default_rng(0)
    source, target = (
        ragged([rng.integers(1, 60_000, n) for n in side])
        for side in np.array(lengths).T
    )
    for layout in plan_epoch(*np.array(lengths).T, **options, seed=0, epoch=0):
        arrays = fill(layout, source, target)
        slow = slow_fill(layout, source, target)
        assert arrays.keys() == slow.keys()
        for name, array in arrays.items():
            assert array.dtype == np.int32
            np.testing.assert_array_equal(array, slow[name])


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=7)
)
def test_buckets_are_cut_where_it_costs_least(histogram):
    counts, steps = np.array(histogram).T
    widths = np.cumsum(steps)
    for parts in range(1, len(counts) + 2):
        ends, cost = _cut(counts, widths, parts)
        runs = list(itertools.pairwise([0, *ends]))
        assert ends[-1] == len(counts)
        assert 1 <= len(runs) <= parts
        assert cost == sum(counts[a:b].sum() * widths[b - 1] for a, b in runs)
        best = min(
            sum(counts[a:b].sum() * widths[b - 1] for a, b in itertools.pairwise(cuts))
            for size in range(min(parts, len(counts)))
            for inner in itertools.combinations(range(1, len(counts)), size)
            for cuts in [(0, *inner, len(counts))]
        )
        assert cost == best


@BOTH
def test_few_computed_tokens_are_padding(batching, monkeypatch):
    for name, value in REAL.items():
        monkeypatch.setattr(planning, name, value)
    plan = plan_epoch(
        *lognormal(20_000),
        batch_tokens=4096,
        batching=batching,
        row_length=64,
        buckets=20,
        seed=0,
        epoch=0,
    )
    assert plan.efficiency >= {"packed": 0.95, "bucketed": 0.88}[batching]


def test_packing_equals_its_slow_twin(monkeypatch):
    monkeypatch.setattr(planning, "WINDOW", 100)
    monkeypatch.setattr(planning, "OPEN_ROWS", 80)  # two windows side by side
    source, target = lognormal(300, longest=60)
    shape = Shape(8, 64, 72)
    row_p, rows = planning._pack(source, target, shape)
    wanted_p, rows_before = np.empty(300, int), 0
    for window in range(3):  # pairs are dealt to three windows
        free = []  # [source, target] tokens left in each row
        largest = sorted(
            range(window, 300, 3), key=lambda p: -(source[p] * 72 + target[p] * 64)
        )
        for p in largest:
            free_after = [(s - source[p], t - target[p]) for s, t in free]
            fits = [row for row, sides in enumerate(free_after) if min(sides) >= 0]
            if not fits:
                fits, free = [len(free)], [*free, (64, 72)]
                free_after.append((64 - source[p], 72 - target[p]))
            row = min(fits, key=lambda row: max(free_after[row]))
            free[row], wanted_p[p] = free_after[row], rows_before + row
        rows_before += len(free)
    np.testing.assert_array_equal(row_p, wanted_p)
    assert rows == rows_before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_lengths": [], "target_lengths": []}, "no pairs"),
        ({"source_lengths": [1, 2, 3]}, r"\(3,\) and \(2,\)"),
        ({"target_lengths": [3, 0]}, "target lengths.*got 0 for pair 1"),
        ({"batch_tokens": 0}, "batch_tokens"),
        ({"seed": -1}, "seed and epoch"),
        ({"batch_tokens": 1000}, "1000 .* 8 rows .* 128 tokens.*1024"),
        ({"batch_tokens": 200, "batching": "bucketed"}, "8 rows .* 32 tokens.*256"),
        ({"sizes": [3]}, "corpora of 3 pairs, but 2 lengths"),
        ({"sizes": [1, 1], "weights": [1, -0.5]}, "weight -0.5"),
        ({"sizes": [1, 1], "weights": [0.1, 0]}, "1, 1 .* 0.1, 0 .* no pair in epoch"),
    ],
)
def test_what_cannot_be_planned_is_refused(change, message):
    arguments = {
        "source_lengths": [3, 32], "target_lengths": [4, 20], "batch_tokens": 4096,
        "batching": "packed", "seed": 0, "epoch": 0,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        plan_epoch(**arguments | change)
