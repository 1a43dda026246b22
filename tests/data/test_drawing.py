"""Random numbers, orders and draws of corpora: functions of their keys, and even."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.config import Config, DataConfig
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.drawing import column_orders, draw, stable_order, tempered
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import open_text
from t2t_jax.text.counter_random import Stream, uniform
from tests.small_run import write_pairs

# ---------------------------------------------------------------------------- numbers


def test_known_answers():
    """The first outputs of SplitMix64 with seed 0, and numbers that must not change."""
    increment = 0x9E3779B97F4A7C15
    outputs = 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4
    expected = [(x >> 11) / 2**53 for x in outputs]
    stream = Stream(0)
    assert [stream.uniform() for _ in outputs] == expected
    assert [uniform(key) for key in (0, increment)] == expected
    pinned = [0.33357203146466263, 0.1588900759943681, 0.6912595630656752]
    for dtype in (np.uint16, np.int64):  # whatever the type of the integers
        np.testing.assert_array_equal(uniform(3, 1, np.arange(3, dtype=dtype)), pinned)


@pytest.mark.parametrize("axis", [0, 3])
def test_numbers_along_any_key_are_uniform_and_independent(axis):
    """Counters are the worst case: neighbours differ in a bit or two."""
    n = 1 << 16
    keys = [0, 0, 0, 0]
    keys[axis] = np.arange(n + 1)
    drawn = uniform(*keys)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    # Chi-squared of 256 x 256 cells of neighbouring pairs: mean 65,535, spread 362.
    cells = (drawn * 256).astype(int)
    counts = np.bincount(cells[:-1] * 256 + cells[1:], minlength=n)
    assert abs(((counts - 1) ** 2).sum() - (n - 1)) < 5 * np.sqrt(2 * n)
    # Neither are they related to those of another epoch.
    keys[(axis + 1) % 4] = 1
    assert abs(np.corrcoef(drawn, uniform(*keys))[0, 1]) < 5 / np.sqrt(n)


@pytest.mark.parametrize("pairs", [0, 1, 1025])
@pytest.mark.parametrize("different", [1, 7, 1 << 64])
def test_fast_sorting_is_numpys_stable_argsort(pairs, different):
    rng = np.random.default_rng(pairs)
    key_p = rng.integers(0, different - 1, pairs, np.uint64, endpoint=True)
    if pairs > 2 and different == 1 << 64:  # equal but for their last bits
        key_p[: pairs // 2] = key_p[0] ^ np.arange(pairs // 2, dtype=np.uint64)[::-1]
    order = np.argsort(key_p, kind="stable")
    np.testing.assert_array_equal(stable_order(key_p), order)
    narrow_p = (key_p % 300).astype(np.int32)
    order = np.argsort(narrow_p, kind="stable")
    np.testing.assert_array_equal(stable_order(narrow_p, bits=32), order)
    key_iw = rng.integers(0, 50, (300, 7))
    order = np.argsort(key_iw, axis=0, kind="stable")
    np.testing.assert_array_equal(column_orders(key_iw), order)


# ---------------------------------------------------------------------------- corpora

CORPORA = st.lists(
    st.tuples(
        st.integers(0, 40), st.sampled_from([0.25, 0.3, 0.5, 0.9, 1, 1.5, 2.7, 3])
    ),
    min_size=1,
    max_size=4,
).filter(lambda corpora: any(size >= 4 for size, _ in corpora))


@given(CORPORA, st.integers(0, 9), st.integers(0, 50), st.integers(1, 9))
def test_corpora_are_drawn_as_often_as_their_weights(corpora, seed, start, epochs):
    sizes, weights = zip(*corpora, strict=True)
    drawn = [draw(sizes, weights, seed, start + epoch) for epoch in range(epochs)]
    counts = np.stack([np.bincount(d, minlength=sum(sizes)) for d in drawn])
    parts = np.split(counts, np.cumsum(sizes)[:-1], axis=1)
    for size, weight, part in zip(sizes, weights, parts, strict=True):
        assert np.all(np.abs(part.sum(1) - weight * size) < 1 + 1e-6)
        assert {*part.flat} <= {int(weight), int(weight) + (weight % 1 > 0)}
        total = part.sum(0)  # in several epochs each pair as often
        if size:
            assert total.max() - total.min() <= 1
        assert abs(total.sum() - epochs * weight * size) < 1 + 1e-6


def test_what_is_drawn_is_random_and_of_a_seed_and_a_corpus_its_own():
    draws = [draw([1000, 1000], [0.5, 0.5], seed, 0) for seed in range(2)]
    halves = [part % 1000 for d in draws for part in (d[:500], d[500:])]
    for half, other_half in itertools.combinations(halves, 2):
        assert 200 < len(np.intersect1d(half, other_half)) < 300


def test_what_is_drawn_is_pinned():
    """A run that resumes with a newer NumPy must draw what it would have drawn."""
    assert draw([2, 5], [2, 0.6], 7, 0).tolist() == [0, 1, 0, 1, 3, 5, 6]
    assert draw([2, 5], [2, 0.6], 7, 1).tolist() == [0, 1, 0, 1, 2, 4, 3]


@given(
    st.lists(
        st.tuples(st.integers(1, 10**8), st.floats(0.01, 50)), min_size=2, max_size=6
    ),
    st.floats(1e-3, 1e6),
)
def test_shares_are_proportional_to_size_to_the_inverse_temperature(corpora, t):
    sizes, weights = zip(*corpora, strict=True)
    read = tempered(sizes, weights, t)
    drawn = [n * times for n, times in zip(sizes, read, strict=True)]
    # An epoch stays as long.
    assert sum(drawn) == pytest.approx(sum(n * w for n, w in corpora))
    assert tempered(sizes, weights, 1.0) == weights  # exactly: plans depend on them
    rows = [(*row, d / sum(drawn)) for row, d in zip(corpora, drawn, strict=True)]
    for (n, w, share), (m, v, share_m) in itertools.combinations(rows, 2):
        if share > 1e-200 and share_m > 1e-200:
            log_ratio = math.log(w / v) + math.log(n / m) / t
            assert math.log(share / share_m) == pytest.approx(log_ratio, abs=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_order_of_corpora_changes_no_pairs_share(
    tmp_path, monkeypatch, temperature
):
    """Each pair is drawn as often as the corpus of its largest weight says."""
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    lines = {"big": range(40), "dom": range(30, 36), "ärzte": (3, 33, 50)}
    pairs = {
        name: [(f"Zeile {i} en", i) for i in numbers] for name, numbers in lines.items()
    }
    write_pairs(tmp_path, **pairs)
    weights = {"big": 1, "dom": 5, "ärzte": 2.5}
    config = DataConfig(vocab_size=300, temperature=temperature)
    vocabulary, times_of = None, []
    for order in itertools.permutations(lines):
        data = dataclasses.replace(
            config,
            dir=str(tmp_path),
            train=",".join(f"{name}@{weights[name]}" for name in order),
            dev="",
            test="",
        )
        task = task_of(dataclasses.replace(Config(), data=data))
        training, _, _ = open_text(task)
        vocabulary = vocabulary or make_tokenizer(training, config)
        pairs = prepare.training_pairs(training, vocabulary, config)
        times = np.repeat(pairs.weights, pairs.sizes).tolist()
        sources = vocabulary.decode([pairs.source[i] for i in range(len(pairs))])
        names = np.repeat([n.partition("@")[0] for n in pairs.names], pairs.sizes)
        for source, name in zip(sources, names, strict=True):
            assert int(source.split()[1]) in lines[name]
        times_of.append(dict(zip(sources, times, strict=True)))
        assert len(times_of[-1]) == len(sources)
    assert all(times == times_of[0] for times in times_of)
    if temperature == 1:
        for i in range(40):
            largest = max(weights[name] for name, has in lines.items() if i in has)
            assert times_of[0][f"Zeile {i} en"] == largest


def test_a_run_finds_the_weights_that_it_was_prepared_with(tmp_path, monkeypatch):
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    pairs = [(f"line {i} en", f"line {i} de") for i in range(68)]
    write_pairs(tmp_path, large=pairs[:64], little=pairs[64:])

    def prepared(places, temperature):
        corpora = open_corpora(places, "en", "de", str(tmp_path), weights=True)
        config = DataConfig(vocab_size=320, temperature=temperature, batch_tokens=512)
        return prepare.training_pairs(corpora, make_tokenizer(corpora, config), config)

    weighted, mixed = (
        prepared("large,little@2", temperature) for temperature in (1, 2)
    )
    assert weighted.weights == (1, 2)
    # sqrt(64) : 2 * sqrt(4) = 2 : 1, of 72 pairs.
    assert mixed.weights == pytest.approx((48 / 64, 24 / 4))
    assert weighted.folder == mixed.folder  # the arrays are shared
    summary, mixed_summary = (prepare.text_summary(p, []) for p in (weighted, mixed))
    assert summary["prepared"] != mixed_summary["prepared"]
    assert prepare.find_prepared(mixed_summary).weights == mixed.weights
    assert tempered((100, 0), (1.0, 1.0), 5.0) == (1.0, 1.0)  # one that was emptied
