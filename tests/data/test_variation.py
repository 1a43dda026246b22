"""Text that varies from epoch to epoch: a function of seed, epoch and line alone."""

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_jax.config import DataConfig
from t2t_jax.data import feeding, prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.feeding import feed
from t2t_jax.data.filling import ragged
from t2t_jax.data.prepare import varied
from t2t_jax.data.shapes import STRETCH, Shape, shapes_of_epochs, static_shapes
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.extensions.data import variation
from t2t_jax.extensions.data.variation import Variation
from t2t_jax.io.errors import UserError
from t2t_jax.text.counter_random import uniform
from tests.data.test_feeding import assert_same, take

CONFIG = DataConfig(
    train="x,y",
    vocab_size=320,
    max_length=40,
    max_ratio=0.0,
    batch_tokens=512,
    row_length=48,
    buckets=3,
    feeder="numpy",
)
SEED = 5


def louder(pairs, numbers, seed, epoch):
    """Half of the lines in capitals; few also empty, or far too long."""
    changed = []
    for pair, number in zip(pairs, numbers.tolist(), strict=True):
        draw = uniform(seed, epoch, number)
        if draw < 0.5:
            pair = pair[0].upper(), pair[1]
        if draw < 0.04:
            pair = pair[0], " \u200b"
        elif draw < 0.08:
            pair = pair[0] * 9, pair[1]
        changed.append(pair)
    return changed


class Letters:
    """Encodes a line letter by letter, by chance; else as ever."""

    def __init__(self, vocabulary, share=0.3):
        self.vocabulary, self.share = vocabulary, share

    def encode(self, lines, numbers, seed, epoch, side):
        rows = self.vocabulary.encode(lines, end=True)
        split = uniform(seed, epoch, numbers, side) < self.share
        return ragged(
            [
                [*itertools.chain(*self.vocabulary.encode([*line])), row[-1]]
                if is_split
                else row
                for line, row, is_split in zip(lines, rows, split, strict=True)
            ]
        )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("T2T_JAX_CACHE", str(folder / "cache"))
        for name, count in (("x", 130), ("y", 70)):
            for language in ("en", "de"):
                lines = [
                    # Some lines are dropped: empty, repeated, or too long.
                    "" if i % 17 == 3 else f"{name} {language} {i % 60} ab" * (i % 5)
                    for i in range(count)
                ]
                text = "".join(f"{line}\n" for line in lines)
                (folder / f"{name}.{language}").write_text(text)
        corpora = open_corpora("x,y", "en", "de", str(folder))
        vocabulary = make_tokenizer(corpora, CONFIG)
        pairs = prepare.training_pairs(corpora, vocabulary, CONFIG)
    assert 60 < len(pairs) < 150
    return folder, tuple(corpora), vocabulary, pairs


def vary(prepared, text=louder, subwords=True, **fields):
    _, corpora, vocabulary, pairs = prepared
    sampling = Letters(vocabulary) if subwords else None
    config = dataclasses.replace(CONFIG, **fields)
    return varied(pairs, Variation(corpora, vocabulary, config, text, sampling))


def tokens(pairs):
    return [
        (pairs.source[i].tolist(), pairs.target[i].tolist()) for i in range(len(pairs))
    ]


@pytest.mark.parametrize(
    ("text", "subwords", "limited"),
    [(louder, False, True), (None, True, True), (louder, True, False)],
)
def test_an_epoch_is_what_each_line_by_itself_becomes(
    prepared, text, subwords, limited, monkeypatch
):
    monkeypatch.setattr(variation, "LINES", 16)
    _, corpora, vocabulary, stored = prepared
    pairs = vary(prepared, text, subwords)
    assert stored.epoch_pairs(SEED, 3) is stored  # without a variation
    encode = Letters(vocabulary, 0.3 * subwords).encode
    within, limits = None, (40, 40)
    if limited:  # by one token less than some pairs have
        epoch_zero = pairs.epoch_pairs(SEED, 0)
        limits = [
            int(np.unique(side.lengths)[-2]) - 1
            for side in (epoch_zero.source, epoch_zero.target)
        ]
        within = Shape(8, *limits)
    epochs = [pairs.epoch_pairs(SEED, epoch, within) for epoch in range(2)]
    lines = [list(corpus.pairs()) for corpus in corpora]
    counts = {"kept": 0, "changed": 0}
    for epoch, varied_pairs in enumerate(epochs):
        expected = []
        for i, stored_tokens in enumerate(tokens(stored)):
            corpus = int(i >= stored.sizes[0])
            number = np.array([(corpus << 40) + int(stored.line[i])])
            pair = lines[corpus][stored.line[i] - 1]
            if text:
                (pair,) = text([pair], number, SEED, epoch)
            own_tokens = tuple(
                encode([line], number, SEED, epoch, side)[0].tolist()
                for side, line in enumerate(pair)
            )
            fits = pair[1] != " \u200b" and all(
                len(row) <= limit for row, limit in zip(own_tokens, limits, strict=True)
            )
            expected.append(own_tokens if fits else stored_tokens)
            counts["kept"] += not fits
            counts["changed"] += expected[-1] != stored_tokens
        assert tokens(varied_pairs) == expected
        assert varied_pairs.source.tokens.dtype == stored.source.tokens.dtype
        assert (varied_pairs.sizes, varied_pairs.key) == (stored.sizes, stored.key)
    # All branches were taken.
    assert counts["kept"] or text is None
    assert bool(counts["changed"]) == (text is not None or subwords)
    if counts["changed"]:
        assert tokens(epochs[0]) != tokens(epochs[1])


@pytest.mark.parametrize("batching", ["packed", "bucketed"])
def test_batches_hold_each_epochs_own_tokens_in_shapes_of_all(prepared, batching):
    pairs = vary(prepared)
    config = dataclasses.replace(CONFIG, batching=batching)
    plans = [feeding.plan_for(pairs, config, SEED, epoch) for epoch in range(3)]
    expected = feeding.typical_plan(pairs, config, SEED)
    assert {plan.shapes for plan in plans} == {expected.shapes}
    assert all(s.rows * max(s.source, s.target) <= 512 for s in expected.shapes)
    total = sum(map(len, plans))
    assert abs(len(expected) - total / 3) <= 2
    batches_fed, alive = [], 0
    with contextlib.closing(feed(pairs, config, SEED)) as stream:
        for fed in itertools.islice(stream, total):
            batches_fed.append(fed)
            alive = max(alive, len(pairs.variation._alive))
    assert 1 <= alive <= 2  # memory holds two epochs
    # Another run, begun in the middle of the second epoch, with a variation of its own.
    start = len(plans[0]) + 1
    resumed = take(
        total - start, feed(vary(prepared), config, SEED, batches_fed[start - 1][0])
    )
    assert_same(resumed, batches_fed[start:])
    fed = iter(batches_fed)
    for epoch, plan in enumerate(plans):
        batches = [batch for _, batch in itertools.islice(fed, len(plan))]
        epoch_pairs = pairs.epoch_pairs(SEED, epoch, plan.shapes[-1])
        for side, ragged_side in (
            ("source", epoch_pairs.source),
            ("target", epoch_pairs.target),
        ):
            real = np.concatenate([b[side][b[f"{side}_segment"] > 0] for b in batches])
            assert np.array_equal(np.sort(real), np.sort(ragged_side.tokens))


def test_text_that_changed_is_not_varied(prepared, tmp_path):
    folder, _, vocabulary, _ = prepared
    for file in folder.glob("?.??"):
        (tmp_path / file.name).write_text(file.read_text())
    corpora = tuple(open_corpora("x,y", "en", "de", str(tmp_path)))
    pairs = vary((tmp_path, corpora, vocabulary, prepared[3]))
    (tmp_path / "y.de").write_text((tmp_path / "y.de").read_text().upper())
    with pytest.raises(UserError, match=r"y has changed since it was prepared.*back"):
        take(1, feed(pairs, CONFIG, SEED))


lengths = st.lists(st.tuples(*[st.integers(1, 60)] * 4), min_size=1, max_size=30)


@settings(max_examples=10)
@given(lengths, st.sampled_from(["packed", "bucketed"]), st.integers(64, 200))
@example([(60, 3, 1, 60)], "packed", 64)
def test_shapes_hold_every_stored_pair_within_the_budget(rows, batching, budget):
    *sides, _, _ = rows_t = np.array(rows).T
    options = {"batch_tokens": 8 * budget, "batching": batching, "row_length": 16}
    # Where stored pairs fit, longer varied ones are no reason to fail.
    typical = rows_t[2:] * np.array([[3], [1]])
    shapes = shapes_of_epochs(sides, typical, **options, weights=[0.5])
    for shape in shapes:
        assert shape.rows % 8 == 0
        assert shape.rows * max(shape.source, shape.target) <= 8 * budget
    assert shapes[-1].source >= sides[0].max()
    assert shapes[-1].target >= sides[1].max()
    if batching == "packed":  # rows of a length as of the stored pairs
        (row,) = static_shapes(*sides, **options)
        longest = max(row.source, row.target)
        assert max(shapes[0].source, shapes[0].target) <= longest * STRETCH
