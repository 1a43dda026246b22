"""Corrupted spans: nothing of a sentence is lost, and lengths are known beforehand."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.filling import ragged
from t2t_jax.data.noise import SENTINELS, SpanCorruption
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError

EOS, TAG = 2, 77


@functools.cache
def vocabulary():
    return Vocabulary(train_tokenizer(["some text to train on"], 313, SENTINELS))


@functools.cache
def sentinels():
    return [vocabulary().id_of(symbol) for symbol in SENTINELS]


# Words have ids that no sentinel has. Ids differ, so that an order shows.
SENTENCES = st.lists(st.integers(0, 150), min_size=1, max_size=12)
OPTIONS = st.fixed_dictionaries(
    {
        "mask_rate": st.sampled_from([0.05, 0.15, 0.5, 0.9]),
        "mean_span": st.sampled_from([1.0, 1.5, 3.0, 20.0]),
    }
)


def pairs_of(lengths, tagged=False, **options):
    targets = [[*range(1_000, 1_000 + n), EOS] for n in lengths]
    sources = [[TAG, EOS] if tagged else [] for _ in lengths]
    noise = SpanCorruption(vocabulary(), **options)
    return Pairs(ragged(sources), ragged(targets), {}, noise=noise)


def examples(pairs, batching="packed", seed=1, epoch=2, part=None):
    """By pair: (source, target)."""
    plan = plan_epoch(
        *pairs.lengths(),
        batch_tokens=8 * 400,
        batching=batching,
        seed=seed,
        epoch=epoch,
    )
    found = {}
    for layout in plan:
        if part is not None:
            layout = layout.only(layout.row_p % 2 == part)
        batch = pairs.batch(layout, seed, epoch)
        for pair, row, segment in zip(
            layout.pair_p, layout.row_p, layout.segment_p, strict=True
        ):
            found[int(pair)] = tuple(
                batch[side][row][batch[f"{side}_segment"][row] == segment].tolist()
                for side in ("source", "target")
            )
    return found


def restored(source, target):
    """Puts the spans back in the places of their sentinels."""
    spans, sentinel = {}, None
    for token in target[:-1]:
        if token in sentinels():
            sentinel = token
            assert sentinel not in spans
        spans.setdefault(sentinel, []).append(token)
    whole = []
    for token in source:
        whole += spans.pop(token)[1:] if token in sentinels() else [token]
    assert not spans
    return whole


@settings(max_examples=60)
@given(SENTENCES, OPTIONS, st.booleans())
def test_nothing_is_lost_and_lengths_are_those_foretold(lengths, options, tagged):
    pairs = pairs_of(lengths, tagged, **options)
    foretold = np.transpose(pairs.lengths()).tolist()
    found = examples(pairs)
    assert sorted(found) == [*range(len(lengths))]
    for pair, (source, target) in found.items():
        assert [len(source), len(target)] == foretold[pair]
        assert source[-1] == target[-1] == EOS
        whole = [TAG] * tagged + pairs.target[pair].tolist()
        assert restored(source, target) == whole
        spans = [token for token in source if token in sentinels()]
        # In order, none of them empty, and no two adjoin.
        assert spans == sentinels()[: len(spans)]
        assert bool(spans) == (lengths[pair] > 0)
        if spans:
            assert target[0] == spans[0]
        for side in (source, target):
            at = [i for i, token in enumerate(side) if token in sentinels()]
            assert all(b - a > 1 for a, b in itertools.pairwise(at))


@settings(max_examples=20)
@given(SENTENCES, OPTIONS, st.integers(0, 9))
def test_an_example_depends_on_seed_epoch_and_number_alone(lengths, options, epoch):
    pairs, again = (pairs_of(lengths, **options) for _ in range(2))
    packed = examples(pairs, epoch=epoch)
    assert packed == examples(again, "bucketed", epoch=epoch)
    of_processes = [examples(again, epoch=epoch, part=part) for part in range(2)]
    assert packed == of_processes[0] | of_processes[1]


def test_seeds_and_epochs_cut_out_other_spans():
    pairs = pairs_of([100, 100])
    of = [examples(pairs, seed=s, epoch=e) for s, e in ((0, 0), (0, 1), (1, 0))]
    assert len({tuple(source) for found in of for source, _ in found.values()}) == 6


def test_counts_are_those_of_the_formula_and_all_places_are_as_probable():
    pairs = pairs_of([100] * 4_000)
    assert {(*both,) for both in np.transpose(pairs.lengths())} == {(91, 21)}
    source, target = pairs.noise.corrupted(
        pairs.source, pairs.target, np.arange(4_000), 0, 0
    )
    cut = target.tokens[(target.tokens >= 1_000)] - 1_000
    # A piece in the middle is cut out 600 times in 4,000, with a spread of about 23.
    middle = np.bincount(cut, minlength=100)[5:-5]
    assert np.all(np.abs(middle - middle.mean()) < 5 * 23)
    assert middle.mean() == pytest.approx(600, rel=0.05)
    # The 5 lengths that add up to 15 pieces are as often long in any place.
    begins = np.flatnonzero(np.isin(target.tokens, sentinels()))
    spans = np.diff(np.append(begins, len(target.tokens))).reshape(4_000, 5)
    spans[:, -1] -= 1  # EOS
    np.testing.assert_allclose(spans.mean(0) - 1, 3.0, atol=0.2)
    assert len(source) == 4_000


def test_other_pairs_of_a_mixture_are_left_as_they_are():
    sources, targets = [[TAG, EOS]] * 3, [[*range(1_000, 1_020), EOS]] * 3
    noise = SpanCorruption(vocabulary(), applies_p=np.array([False, True, False]))
    pairs = Pairs(ragged(sources), ragged(targets), {}, noise=noise)
    found = examples(pairs)
    assert found[0] == found[2] == (sources[0], targets[0])
    assert found[1][0][0] == TAG
    assert sentinels()[0] in found[1][0]
    nothing = pairs.batch(
        next(iter(plan_epoch(*pairs.lengths(), batch_tokens=3_200, batching="packed",
                             seed=0, epoch=0))).only(np.zeros(3, bool)), 0, 0
    )  # fmt: skip
    assert not any(array.any() for array in nothing.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mask_rate": 1.0}, "want 0 < mask_rate"), ({"mean_span": 0.5}, "at least 1")],
)
def test_refuses_options_out_of_range(options, message):
    with pytest.raises(UserError, match=message):
        SpanCorruption(vocabulary(), **options)
    model = vocabulary().model
    apart = Vocabulary(model, source=Vocabulary(model))
    with pytest.raises(UserError, match="the same vocabulary"):
        SpanCorruption(apart)
