"""Noise on text: what is hidden or cut out, and that nothing else changes it."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.filling import ragged
from t2t_jax.data.pairs import Pairs, encode_pairs
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.extensions.data.noise import (
    MASK,
    MASKINGS,
    SENTINELS,
    Masking,
    MaskingOptions,
    SpanCorruption,
)
from t2t_jax.io.errors import UserError

WORDS = ["unbelievable", "dogs", "chase", "the", "unhappy", "cats,", "in", "gardens"]
EOS, TAG = 2, 77


@functools.cache
def vocabulary(*symbols):
    lines = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
    return Vocabulary(train_tokenizer(lines, 330 + len(symbols), symbols))


def examples(pairs, batching="packed", seed=1, epoch=2, part=None):
    """By pair: the tokens of source and target, and which targets are predicted."""
    by_pair = {}
    options = {"batch_tokens": 8 * 400, "batching": batching}
    for layout in plan_epoch(*pairs.lengths(), **options, seed=seed, epoch=epoch):
        if part is not None:
            layout = layout.only(layout.row_p % 2 == part)
        batch = pairs.batch(layout, seed, epoch)
        for pair, row, segment in zip(
            layout.pair_p, layout.row_p, layout.segment_p, strict=True
        ):
            source, target = (
                batch[f"{side}_segment"][row] == segment
                for side in ("source", "target")
            )
            sentence = source if pairs.noise.__class__ is Masking else target
            by_pair[int(pair)] = (
                (*batch["source"][row][source].tolist(),),
                (*batch["target"][row][sentence].tolist(),),
                (*target[sentence].tolist(),),
            )
    return by_pair


def check_dependences(make, epoch, long_pairs):
    """Examples depend on seed, epoch and number alone, and on each of them."""
    packed = examples(make(), epoch=epoch)
    restarted = make()  # as after a restart
    assert packed == examples(restarted, "bucketed", epoch=epoch)
    parts = [examples(restarted, epoch=epoch, part=part) for part in range(2)]
    assert packed == parts[0] | parts[1]
    others = [
        examples(long_pairs, seed=s, epoch=e) for s, e in ((0, 0), (0, 1), (1, 0))
    ]
    assert len({example for by_pair in others for example in by_pair.values()}) == 6


# ----------------------------------------------------------------------------- masking


def masked_pairs(lines, **masking):
    tokens = vocabulary(MASK)
    sides = encode_pairs([("", line) for line in lines], tokens, 1, sides=(1,))
    return Pairs(*sides, {}, noise=Masking(tokens, MaskingOptions(**masking)))


LINES = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
    min_size=1,
    max_size=40,
)
MASKING = st.fixed_dictionaries(
    {
        "masking": st.sampled_from(MASKINGS),
        "mask_rate": st.sampled_from([0.02, 0.15, 0.5]),
    }
)


@settings(max_examples=25)
@given(LINES, MASKING)
def test_at_least_one_piece_of_every_sentence_is_hidden_and_never_its_end(
    lines, options
):
    pairs = masked_pairs(lines, **options)
    by_pair = examples(pairs)
    assert len(by_pair) == len(lines)
    for pair, (read, sentence, masked) in by_pair.items():
        assert sentence == tuple(pairs.target[pair].tolist())
        assert any(masked)
        assert not masked[-1]
        for i, (was, shown) in enumerate(zip(sentence, read, strict=True)):
            assert masked[i] or was == shown
        if options["masking"] != "piece":  # words are hidden as a whole
            begins = [vocabulary(MASK).piece(i)[0] in "▁," for i in sentence]
            for i in range(1, len(sentence) - 1):
                assert begins[i] or masked[i] == masked[i - 1]


@settings(max_examples=10)
@given(LINES, MASKING, st.integers(0, 9))
def test_masking_depends_on_seed_epoch_and_number_alone(lines, options, epoch):
    long_pairs = masked_pairs([" ".join(WORDS * 4)] * 2)
    check_dependences(lambda: masked_pairs(lines, **options), epoch, long_pairs)


@pytest.mark.parametrize("masking", MASKINGS)
def test_rates_are_those_of_the_options(masking):
    noise = Masking(vocabulary(MASK), MaskingOptions(masking=masking, mask_rate=0.2))
    ids = vocabulary(MASK).encode([" ".join(WORDS * 20)], end=True)[0]
    read, masked = noise.masked(ragged([ids] * 60), np.arange(60), 0, 0)
    text = np.array(ids * 60)
    assert masked.mean() == pytest.approx(0.2, abs=0.015)
    is_mask = read == vocabulary(MASK).id_of(MASK)
    assert is_mask.sum() / masked.sum() == pytest.approx(0.8, abs=0.02)
    # A random piece may be the right one, but seldom.
    assert (read != text)[~is_mask].sum() / masked.sum() == pytest.approx(0.1, abs=0.02)


def test_masked_spans_have_the_mean_length():
    """Here every piece is a word, so that runs of pieces are runs of words."""
    noise = Masking(vocabulary(MASK), MaskingOptions(masking="span", mean_span=4.0))
    (word,) = vocabulary(MASK).encode(["the"])[0]
    _, masked = noise.masked(ragged([[word] * 40_000 + [EOS]]), np.arange(1), 0, 0)
    runs = np.sum(masked[1:] & ~masked[:-1]) + masked[0]
    assert masked.sum() / runs == pytest.approx(4.0, abs=0.2)
    assert masked.mean() == pytest.approx(0.15, abs=0.01)


# ----------------------------------------------------------------------- cut-out spans


@functools.cache
def sentinels():
    return [vocabulary(*SENTINELS).id_of(symbol) for symbol in SENTINELS]


# Words have ids that no sentinel has. Ids differ, so that an order shows.
SENTENCES = st.lists(st.integers(0, 150), min_size=1, max_size=12)
OPTIONS = st.fixed_dictionaries(
    {
        "mask_rate": st.sampled_from([0.05, 0.15, 0.5, 0.9]),
        "mean_span": st.sampled_from([1.0, 1.5, 3.0, 20.0]),
    }
)


def cut_pairs(lengths, tagged=False, **options):
    targets = [[*range(5_000, 5_000 + n), EOS] for n in lengths]
    sources = [[TAG, EOS] if tagged else [] for _ in lengths]
    noise = SpanCorruption(vocabulary(*SENTINELS), **options)
    return Pairs(ragged(sources), ragged(targets), {}, noise=noise)


def restored(source, target):
    """Puts the spans back in the places of their sentinels."""
    spans, sentinel = {}, None
    for token in target[:-1]:
        if token in sentinels():
            sentinel = token
            assert sentinel not in spans
        spans.setdefault(sentinel, []).append(token)
    tokens = []
    for token in source:
        tokens += spans.pop(token)[1:] if token in sentinels() else [token]
    assert not spans
    return tokens


@settings(max_examples=40)
@given(SENTENCES, OPTIONS, st.booleans())
def test_nothing_is_lost_and_lengths_are_those_foretold(lengths, options, tagged):
    pairs = cut_pairs(lengths, tagged, **options)
    foretold = np.transpose(pairs.lengths()).tolist()
    by_pair = examples(pairs)
    assert sorted(by_pair) == [*range(len(lengths))]
    for pair, (source, target, _) in by_pair.items():
        assert [len(source), len(target)] == foretold[pair]
        assert source[-1] == target[-1] == EOS
        uncut = [TAG] * tagged + pairs.target[pair].tolist()
        assert restored(source, target) == uncut
        spans = [token for token in source if token in sentinels()]
        # In order, none of them empty, and no two adjoin.
        assert spans == sentinels()[: len(spans)]
        assert bool(spans) == (lengths[pair] > 0)
        assert not spans or target[0] == spans[0]
        for side in (source, target):
            places = [i for i, token in enumerate(side) if token in sentinels()]
            assert all(b - a > 1 for a, b in itertools.pairwise(places))


@settings(max_examples=10)
@given(SENTENCES, OPTIONS, st.integers(0, 9))
def test_cutting_depends_on_seed_epoch_and_number_alone(lengths, options, epoch):
    long_pairs = cut_pairs([100, 100])
    check_dependences(lambda: cut_pairs(lengths, **options), epoch, long_pairs)


def test_counts_are_those_of_the_formula_and_all_places_are_as_probable():
    pairs = cut_pairs([100] * 4_000)
    assert {(*lengths,) for lengths in np.transpose(pairs.lengths())} == {(91, 21)}
    _, target = pairs.noise.corrupted(
        pairs.source, pairs.target, np.arange(4_000), 0, 0
    )
    cut = target.tokens[(target.tokens >= 5_000)] - 5_000
    # A piece in the middle is cut out 600 times in 4,000, with a spread of about 23.
    middle = np.bincount(cut, minlength=100)[5:-5]
    assert np.all(np.abs(middle - middle.mean()) < 5 * 23)
    assert middle.mean() == pytest.approx(600, rel=0.05)
    # The 5 lengths that add up to 15 pieces are as often long in any place.
    begins = np.flatnonzero(np.isin(target.tokens, sentinels()))
    spans = np.diff(np.append(begins, len(target.tokens))).reshape(4_000, 5)
    spans[:, -1] -= 1  # EOS
    np.testing.assert_allclose(spans.mean(0) - 1, 3.0, atol=0.2)


def test_refuses_options_out_of_range():
    with pytest.raises(UserError, match="want .* 0 < mask_rate < 1"):
        MaskingOptions(mask_rate=0.0)
    with pytest.raises(UserError, match="at most 1 together"):
        MaskingOptions(as_mask=0.8, as_random=0.3)
    with pytest.raises(UserError, match="want 0 < mask_rate"):
        SpanCorruption(vocabulary(*SENTINELS), mask_rate=1.0)
    model = vocabulary(*SENTINELS).model
    with pytest.raises(UserError, match="the same vocabulary"):
        SpanCorruption(Vocabulary(model, source=Vocabulary(model)))
