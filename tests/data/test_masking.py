"""Masked examples: which pieces are hidden, and that nothing else changes them."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.filling import ragged
from t2t_jax.data.noise import MASK, MASKINGS, Masking, MaskingOptions
from t2t_jax.data.pairs import Pairs, encode_pairs
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError

WORDS = ["unbelievable", "dogs", "chase", "the", "unhappy", "cats,", "in", "gardens"]


@functools.cache
def vocabulary():
    lines = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
    return Vocabulary(train_tokenizer(lines, 330, [MASK]))


def pairs_of(lines, **masking):
    sides = encode_pairs([("", line) for line in lines], vocabulary(), 1, sides=(1,))
    return Pairs(*sides, {}, noise=Masking(vocabulary(), MaskingOptions(**masking)))


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


def plan(pairs, batching, seed=3, epoch=1):
    return plan_epoch(
        *pairs.lengths(),
        batch_tokens=2_048,
        batching=batching,
        row_length=48,
        seed=seed,
        epoch=epoch,
    )


def examples(pairs, batching, seed=3, epoch=1, share=lambda layout: layout):
    """By pair: (what the model reads, the sentence, which pieces are predicted)."""
    found = {}
    for layout in map(share, plan(pairs, batching, seed, epoch)):
        batch = pairs.batch(layout, seed, epoch)
        for name in ("position", "segment"):
            assert batch[f"source_{name}"].shape == batch[f"target_{name}"].shape
        at = batch["source_segment"], batch["source_position"]
        np.testing.assert_array_equal(at[1], batch["target_position"])
        for pair, row, segment in zip(
            layout.pair_p, layout.row_p, layout.segment_p, strict=True
        ):
            mine = at[0][row] == segment
            predicted = batch["target_segment"][row][mine]
            assert set(predicted) <= {0, segment}
            found[int(pair)] = tuple(
                tuple(values.tolist())
                for values in (
                    batch["source"][row][mine],
                    batch["target"][row][mine],
                    predicted > 0,
                )
            )
    return found


@settings(max_examples=40)
@given(LINES, MASKING)
def test_at_least_one_piece_of_every_sentence_is_hidden_and_never_its_end(lines, how):
    pairs = pairs_of(lines, **how)
    found = examples(pairs, "packed")
    assert len(found) == len(lines)
    for pair, (read, sentence, hidden) in found.items():
        assert sentence == tuple(pairs.target[pair].tolist())
        assert any(hidden)
        assert not hidden[-1]
        for i, (was, now) in enumerate(zip(sentence, read, strict=True)):
            assert hidden[i] or was == now
        if how["masking"] != "piece":  # words are hidden as a whole
            begins = [vocabulary().piece(i)[0] in "▁," for i in sentence]
            for i in range(1, len(sentence) - 1):
                assert begins[i] or hidden[i] == hidden[i - 1]


@settings(max_examples=25)
@given(LINES, MASKING, st.integers(0, 9))
def test_an_example_depends_on_seed_epoch_and_number_alone(lines, how, epoch):
    pairs = pairs_of(lines, **how)
    packed = examples(pairs, "packed", epoch=epoch)
    assert packed == examples(pairs, "bucketed", epoch=epoch)
    again = pairs_of(lines, **how)  # as after a restart
    shares = {}
    for part in range(2):  # as two processes feed them
        of_part = functools.partial(_rows, part=part)
        shares |= examples(again, "packed", epoch=epoch, share=of_part)
    assert packed == shares


def _rows(layout, part):
    return layout.only(layout.row_p % 2 == part)


def test_seeds_and_epochs_hide_other_pieces():
    pairs = pairs_of([" ".join(WORDS * 4)] * 2)
    of = [examples(pairs, "bucketed", *key) for key in ((0, 0), (0, 1), (1, 0))]
    patterns = {hidden for found in of for _, _, hidden in found.values()}
    assert len(patterns) == 6


def sampled(**how):
    """Masks a long text of independent pieces; returns read, sentence, hidden."""
    noise = Masking(vocabulary(), MaskingOptions(**how))
    ids = vocabulary().encode([" ".join(WORDS * 20)], end=True)[0]
    text = ragged([ids] * 60)
    read, hidden = noise.masked(text, np.arange(60), 0, 0)
    return read, text.tokens, hidden


@pytest.mark.parametrize("masking", MASKINGS)
def test_rates_are_those_of_the_options(masking):
    read, text, hidden = sampled(masking=masking, mask_rate=0.2)
    assert hidden.mean() == pytest.approx(0.2, abs=0.015)
    masked = read == vocabulary().id_of(MASK)
    assert masked.sum() / hidden.sum() == pytest.approx(0.8, abs=0.02)
    # A random piece may be the right one, but seldom.
    assert (read != text)[~masked].sum() / hidden.sum() == pytest.approx(0.1, abs=0.02)
    read, text, hidden = sampled(masking=masking, as_mask=0.0, as_random=0.0)
    np.testing.assert_array_equal(read, text)
    assert hidden.any()


def test_random_pieces_are_ordinary():
    read, _, hidden = sampled(as_mask=0.0, as_random=1.0, mask_rate=0.5)
    drawn = set(read[hidden].tolist())
    assert len(drawn) > 50
    assert all(vocabulary().spelling(i).strip() for i in drawn)
    assert all(isinstance(vocabulary().spelling(i), str) for i in drawn)
    assert vocabulary().id_of(MASK) not in drawn


def test_spans_have_the_mean_length():
    """Here every piece is a word, so that runs of pieces are runs of words."""
    noise = Masking(vocabulary(), MaskingOptions(masking="span", mean_span=4.0))
    dogs, eos = vocabulary().encode(["the"])[0][0], vocabulary().eos
    text = ragged([[dogs] * 5_000 + [eos]] * 8)
    _, hidden = noise.masked(text, np.arange(8), 0, 0)
    runs = np.sum(hidden[1:] & ~hidden[:-1]) + hidden[0]
    assert hidden.sum() / runs == pytest.approx(4.0, abs=0.2)
    assert hidden.mean() == pytest.approx(0.15, abs=0.01)


def test_an_empty_line_and_an_empty_share_hide_nothing():
    pairs = pairs_of(["", "the cats"])
    (layout,) = plan(pairs, "packed")
    batch = pairs.batch(layout, 0, 0)
    assert (batch["target_segment"] > 0).any()
    nothing = pairs.batch(layout.only(np.zeros(2, bool)), 0, 0)
    assert not any(array.any() for array in nothing.values())
    noise = pairs.noise
    _, hidden = noise.masked(ragged([[vocabulary().eos]]), np.arange(1), 0, 0)
    assert not hidden.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_rate": 0.0}, "want .* 0 < mask_rate < 1"),
        ({"as_mask": 0.8, "as_random": 0.3}, "at most 1 together"),
        ({"masking": "span", "mean_span": 1.0}, "mean_span=1.0; at mask_rate=0.15"),
    ],
)
def test_refuses_rates_out_of_range(options, message):
    with pytest.raises(UserError, match=message):
        MaskingOptions(**options)
