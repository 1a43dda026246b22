"""Laws of the batch plan: every pair once, nothing overlaps, budgets hold."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data import batching, shapes
from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.drawing import draw
from t2t_jax.data.filling import Ragged, fill
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
BOTH = pytest.mark.parametrize("way", ["packed", "bucketed"])


@pytest.fixture(scope="module", autouse=True)
def small_windows():
    """Windows so small that little data needs many, in several groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "WINDOW", 16)
        patch.setattr(batching, "OPEN_ROWS", 24)
        yield


def sides(lengths):
    return np.array(lengths).T


def lognormal(pairs, seed=0, longest=100):
    rng = np.random.default_rng(seed)
    both = rng.lognormal(0, 0.5, (pairs, 1)) * rng.lognormal(0, 0.1, (pairs, 2))
    return np.clip(np.rint(both * [20, 22]), 1, longest).astype(np.int32).T


def ragged(lengths, rng):
    offsets = np.append(0, np.cumsum(lengths, dtype=np.int64))
    return Ragged(rng.integers(1, 60_000, offsets[-1]).astype(np.uint16), offsets)


def same(plan, other):
    return len(plan) == len(other) and all(
        a.shape == b.shape
        and all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ARRAYS)
        for a, b in zip(plan, other, strict=True)
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
    source, target = sides(lengths)
    shapes = static_shapes(source, target, **options)
    assert static_shapes(*sides(lengths[::-1]), **options) == shapes
    plan = plan_epoch(
        source, target, **options, seed=seed, epoch=epoch, shuffle=shuffle
    )
    assert plan.shapes == shapes
    cut = len(lengths) // 2  # weights of one change nothing, nor does another try
    again = plan_epoch(
        list(source),
        list(target),
        **options,
        seed=seed,
        epoch=epoch,
        shuffle=shuffle,
        sizes=[cut, len(lengths) - cut],
        weights=[1.0, 1.0],
    )
    assert same(plan, again)
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
        taken = np.zeros((layout.shape.rows, length), int)
        for row, start, n in zip(layout.row_p, start_p, length_p, strict=True):
            assert 0 <= start <= start + n <= length
            taken[row, start : start + n] += 1
        assert not taken.size or taken.max() == 1
        assert np.all(np.diff(taken, axis=1) <= 0)  # padding is at the end


CORPORA = st.lists(
    st.tuples(
        st.integers(0, 40), st.sampled_from([0.25, 0.3, 0.5, 0.9, 1, 1.5, 2.7, 3])
    ),
    min_size=1,
    max_size=4,
).filter(lambda corpora: any(size >= 4 for size, _ in corpora))


def drawn_of_each(corpora, seed, epoch):
    """How often an epoch has each pair, an array for each corpus."""
    sizes, weights = zip(*corpora, strict=True)
    drawn = draw(sizes, weights, seed, epoch)
    assert drawn.dtype == np.int32
    counts = np.bincount(drawn, minlength=sum(sizes))
    assert len(counts) == sum(sizes)
    return np.split(counts, np.cumsum(sizes)[:-1])


@given(CORPORA, st.integers(0, 9), st.integers(0, 50), st.integers(1, 9))
def test_corpora_are_drawn_as_often_as_their_weights(corpora, seed, first, epochs):
    every = [drawn_of_each(corpora, seed, first + epoch) for epoch in range(epochs)]
    for (size, weight), counts in zip(corpora, zip(*every, strict=True), strict=True):
        for count in counts:
            assert abs(count.sum() - weight * size) < 1 + 1e-6
            assert set(count.tolist()) <= {int(weight), int(weight) + (weight % 1 > 0)}
        total = sum(counts)  # in several epochs each pair as often
        if size:
            assert total.max() - total.min() <= 1
        assert abs(total.sum() - epochs * weight * size) < 1 + 1e-6


def test_what_is_drawn_is_random_and_of_a_seed_and_a_corpus_its_own():
    draws = [draw([1000, 1000], [0.5, 0.5], seed, 0) for seed in range(3)]
    halves = [part % 1000 for d in draws for part in (d[:500], d[500:])]
    for half, other in itertools.combinations(halves, 2):
        assert 200 < len(np.intersect1d(half, other)) < 300
    for half in halves:  # spread over the corpus, not a run of it
        assert np.abs(np.bincount(half // 100) - 50).max() < 25


def test_what_is_drawn_is_pinned():
    """A run that resumes with a newer NumPy must draw what it would have drawn."""
    assert draw([2, 5], [2, 0.6], 7, 0).tolist() == [0, 1, 0, 1, 3, 5, 6]
    assert draw([2, 5], [2, 0.6], 7, 1).tolist() == [0, 1, 0, 1, 2, 4, 3]
    assert [len(draw([5], [0.55], 0, epoch)) for epoch in range(4)] == [3, 3, 2, 3]


WEIGHTED = {"sizes": [300, 100, 200], "weights": [0.3, 2, 1.5]}


@BOTH
def test_a_weighted_plan_has_what_is_drawn(way):
    source, target = lognormal(600)
    options = {"batch_tokens": 1200, "batching": way, "row_length": 64, "seed": 3}
    for epoch in range(3):
        plan = plan_epoch(source, target, **options, epoch=epoch, **WEIGHTED)
        drawn = draw(**WEIGHTED, seed=3, epoch=epoch)
        found = np.concatenate([layout.pair_p for layout in plan])
        np.testing.assert_array_equal(np.sort(found), np.sort(drawn))
        assert plan.real_source == source[drawn].sum()
        assert plan.real_target == target[drawn].sum()
        # Copies are shuffled: most of the 300 are not in one batch.
        twice = [len(layout.pair_p) - len(set(layout.pair_p)) for layout in plan]
        assert sum(twice) < 120


@BOTH
def test_every_weighted_epoch_has_the_same_shapes(way):
    source, target = lognormal(600, longest=80)
    one, other = np.setdiff1d(np.arange(300), draw(**WEIGHTED, seed=0, epoch=0))[:2]
    source[one], target[other] = 90, 99
    options = {"batch_tokens": 1200, "batching": way, "row_length": 64, **WEIGHTED}
    plans = [
        plan_epoch(source, target, **options, seed=seed, epoch=epoch)
        for seed, epoch in itertools.product(range(2), range(4))
    ]
    assert len({plan.shapes for plan in plans}) == 1
    assert any(one in plan.arrays[0] for plan in plans)
    without = plan_epoch(source, target, **options, seed=1, epoch=1, shuffle=False)
    again = plan_epoch(source, target, **options, seed=2, epoch=3, shuffle=False)
    assert same(without, again)


def test_shapes_are_made_for_what_is_drawn():
    """A large corpus that is hardly used does not decide the shapes."""
    lengths = np.repeat([8, 16, 32, 64], 500)
    options = {"batch_tokens": 4096, "batching": "bucketed", "buckets": 3}
    options |= {"seed": 0, "epoch": 0, "sizes": [1000, 1000]}
    for weights, wanted in (([1, 1], [16, 32, 64]), ([20, 0.1], [8, 16, 64])):
        plan = plan_epoch(lengths, lengths, **options, weights=weights)
        assert [shape.source for shape in plan.shapes] == wanted


@given(LENGTHS, OPTIONS)
def test_shapes_keep_to_the_budget(lengths, options):
    source, target = sides(lengths)
    shapes = static_shapes(source, target, **options)
    for shape in shapes:
        assert shape.rows > 0
        assert shape.rows % options["rows_multiple"] == 0
        assert shape.rows * max(shape.source, shape.target) <= options["batch_tokens"]
        more = shape.rows + options["rows_multiple"]
        assert more * max(shape.source, shape.target) > options["batch_tokens"]
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
def test_every_seed_and_epoch_has_its_own_order(way):
    options = {"batch_tokens": 1200, "batching": way, "rows_multiple": 1}
    plans = [
        plan_epoch(*lognormal(500), **options, seed=seed, epoch=epoch)
        for seed, epoch in itertools.product(range(3), range(3))
    ]
    for a, b in itertools.combinations(plans, 2):
        assert not same(a, b)
        # Batches have other members, not only another order.
        assert not set(map(tuple, map(np.sort, (p.pair_p for p in a)))) & set(
            map(tuple, map(np.sort, (p.pair_p for p in b)))
        )


@BOTH
def test_batches_come_in_no_order_of_length(way):
    source, target = lognormal(4000)
    options = {"batch_tokens": 1600, "batching": way, "epoch": 0, "seed": 0}
    plan = plan_epoch(source, target, **options)
    mean_b = [source[layout.pair_p].mean() for layout in plan]
    trend = np.corrcoef(mean_b, np.arange(len(plan)))[0, 1]
    assert abs(trend) < 4 / np.sqrt(len(plan))


@pytest.mark.parametrize(
    ("way", "pairs"),
    [
        ("bucketed", [[2, 8, 11, 10, 9], [6, 7], [0, 3, 5, 1, 4]]),
        ("packed", [[8, 6, 3, 11, 4, 10, 0, 1, 2, 7], [5, 9]]),
    ],
)
def test_the_order_is_pinned(way, pairs):
    """A run that resumes with a newer NumPy must see the batches it would have seen."""
    lengths = np.arange(1, 13)
    options = {"batching": way, "row_length": 16, "buckets": 2, "rows_multiple": 1}
    plan = plan_epoch(lengths, lengths, batch_tokens=64, seed=7, epoch=2, **options)
    assert [layout.pair_p.tolist() for layout in plan] == pairs


@settings(max_examples=40)
@given(LENGTHS, OPTIONS)
def test_fill_equals_its_slow_twin(lengths, options):
    rng = np.random.default_rng(0)
    source, target = (ragged(side, rng) for side in sides(lengths))
    for layout in plan_epoch(*sides(lengths), **options, seed=0, epoch=0):
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


def test_bucket_bounds_are_multiples_of_eight_where_that_is_cheap():
    long = lognormal(3000) * 8  # All lengths are multiples of 8 already.
    options = {"batch_tokens": 20_000, "batching": "bucketed", "buckets": 8}
    for shape in static_shapes(*long, **options):
        assert shape.source % 8 == shape.target % 8 == 0
    short = np.arange(3, 30, 4)
    assert [s.source for s in static_shapes(short, short, **options)] == short.tolist()


@pytest.fixture
def large_windows(monkeypatch):
    monkeypatch.setattr(batching, "WINDOW", 4096)
    monkeypatch.setattr(batching, "OPEN_ROWS", 1 << 17)


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"batching": "packed", "row_length": 64}, 0.96),
        ({"batching": "packed", "row_length": 256}, 0.965),
        ({"batching": "bucketed", "buckets": 20}, 0.89),
    ],
)
def test_few_computed_tokens_are_padding(large_windows, options, least):
    lengths = lognormal(40_000)
    plan = plan_epoch(*lengths, batch_tokens=4096, seed=0, epoch=0, **options)
    assert plan.efficiency >= least


def test_long_sentences_raise_and_balance_the_rows(large_windows):
    lengths = lognormal(20_000)
    lengths[:, 0] = 250
    plan = plan_epoch(*lengths, batch_tokens=25_000, batching="packed", seed=0, epoch=0)
    (shape,) = plan.shapes
    assert shape.source == 256 < shape.target <= 256 * shapes.STRETCH
    # The same rows without the stretch would waste a twentieth of the source side.
    assert plan.efficiency > 0.95
    # A stretch that would cost a small budget half of its rows is not made.
    (small,) = static_shapes(*lengths, batch_tokens=2048, batching="packed")
    assert small == Shape(8, 256, 256)


def test_packing_equals_its_slow_twin(monkeypatch):
    monkeypatch.setattr(batching, "WINDOW", 100)
    monkeypatch.setattr(batching, "OPEN_ROWS", 80)  # two windows side by side
    source, target = lognormal(300, longest=60)
    shape = Shape(8, 64, 72)
    row_p, rows = batching._pack(source, target, shape)
    wanted_p, taken = np.empty(300, int), 0
    for window in range(3):  # pairs are dealt to three windows
        free = []  # [source, target] tokens left in each row
        largest = sorted(
            range(window, 300, 3), key=lambda p: -(source[p] * 72 + target[p] * 64)
        )
        for p in largest:
            left = [(s - source[p], t - target[p]) for s, t in free]
            fits = [row for row, both in enumerate(left) if min(both) >= 0]
            if not fits:
                fits, free = [len(free)], [*free, (64, 72)]
                left.append((64 - source[p], 72 - target[p]))
            row = min(fits, key=lambda row: max(left[row]))
            free[row], wanted_p[p] = left[row], taken + row
        taken += len(free)
    np.testing.assert_array_equal(row_p, wanted_p)
    assert rows == taken


def test_a_row_longer_than_sixteen_bits_is_packed():
    lengths = np.array([40_000, 30_000, 9_000, 1_000])
    plan = plan_epoch(
        lengths, lengths, batch_tokens=80_000, batching="packed", rows_multiple=1,
        seed=0, epoch=0,
    )  # fmt: skip
    assert plan.shapes == (Shape(2, 40_000, 40_000),)
    assert len(plan) == 1
    assert plan.efficiency == 1


def test_plans_and_sentences_are_read_like_lists():
    plan = plan_epoch(
        *lognormal(300), batch_tokens=1200, batching="packed", seed=0, epoch=0
    )
    sentences = Ragged(np.array([5, 6, 7, 8]), np.array([0, 1, 4]))
    assert [s.tolist() for s in sentences] == [[5], [6, 7, 8]]
    np.testing.assert_array_equal(plan[-1].pair_p, [*plan][-1].pair_p)
    np.testing.assert_array_equal(sentences[-1], sentences[1])
    for items in (plan, sentences):
        for outside in (len(items), -len(items) - 1):
            with pytest.raises(IndexError):
                items[outside]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_lengths": [], "target_lengths": []}, "no pairs"),
        ({"source_lengths": [1, 2, 3]}, r"\(3,\) and \(2,\)"),
        ({"source_lengths": [1.0, 2.0]}, "source lengths must be integers"),
        ({"target_lengths": [3, 0]}, "target lengths.*got 0 for pair 1"),
        ({"batching": "sorted"}, "'sorted'"),
        ({"batch_tokens": 0}, "batch_tokens"),
        ({"rows_multiple": 0}, "rows_multiple"),
        ({"row_length": 0}, "row_length"),
        ({"buckets": 0}, "buckets"),
        ({"seed": -1}, "seed and epoch"),
        ({"epoch": -1}, "seed and epoch"),
        ({"batch_tokens": 1000}, "1000 .* 8 rows .* 128 tokens.*1024"),
        ({"batch_tokens": 200, "batching": "bucketed"}, "8 rows .* 32 tokens.*256"),
        ({"sizes": [3]}, "corpora of 3 pairs, but 2 lengths"),
        ({"sizes": [1, 1], "weights": [1, -0.5]}, "weight -0.5"),
        ({"weights": [float("nan")]}, "weight nan"),
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


@BOTH
def test_sentences_other_than_the_planned_ones_are_refused(way):
    rng = np.random.default_rng(0)
    lengths = np.full((2, 40), 8)
    plan = plan_epoch(
        *lengths, batch_tokens=128, batching=way, row_length=16, seed=0, epoch=0
    )
    first = plan[0].pair_p[0]
    for side in (0, 1):
        longer, fewer = lengths.copy(), list(lengths)
        longer[side] += 1
        fewer[side] = fewer[side][:2]
        cases = [(longer, "does not fit"), (fewer, "only 2")]
        if way == "packed":  # there is room in the row, but its neighbour is there
            into = lengths.copy()
            into[side, first] = 9
            cases.append((into, f"{('source', 'target')[side]} sentence {first} .* 9"))
        for others, message in cases:
            source, target = (ragged(other, rng) for other in others)
            with pytest.raises(ValueError, match=message):
                [fill(layout, source, target) for layout in plan]
