"""Subwords lose nothing."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.data.tokenizers.training import sample, train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, parse_symbols
from t2t_jax.io.errors import UserError
from tests.data.test_subword_sampling import TEXT, foreign, line

TEXT = TEXT[:4]
line = line.filter(lambda text: "\n" not in text)


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(train_tokenizer(TEXT * 10, 310))


@given(st.lists(line, max_size=5))
def test_decoding_undoes_encoding(vocabulary, lines):
    assert vocabulary.decode(vocabulary.encode(lines)) == lines


def test_pieces_of_known_words_strange_ones_and_special_ones(vocabulary):
    ids = vocabulary.encode(["the cat"])[0]
    assert len(ids) <= 4
    assert vocabulary.pieces("日")[-3:] == ["<0xE6>", "<0x97>", "<0xA5>"]
    padded = [vocabulary.bos, *ids, vocabulary.eos, vocabulary.pad]
    assert vocabulary.decode([padded]) == ["the cat"]
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos) == (0, 1, 2)


@pytest.mark.parametrize(
    ("size", "message"), [(100, "already"), (30_000, "no more than")]
)
def test_a_size_that_does_not_fit_is_told_with_the_nearest_that_does(size, message):
    with pytest.raises(UserError, match=f"vocab_size={size} does not.* {message}") as e:
        train_tokenizer(TEXT, size)
    nearest = int(re.search(r"--config.data.vocab_size=(\d+)", str(e.value))[1])
    model = train_tokenizer(TEXT, nearest)
    assert len(Vocabulary(model)) == nearest
    assert model == train_tokenizer(TEXT, nearest)  # training is deterministic
    beyond = nearest + (1 if size > nearest else -1)
    with pytest.raises(UserError, match=f"vocab_size={nearest} or (less|more)"):
        train_tokenizer(TEXT, beyond)
    with pytest.raises(UserError, match="no text for a tokenizer: all is empty"):
        train_tokenizer(["", ""], 300)


SYMBOLS = ["<bt>", "<2de>", "<2de_AT>", '[a"b]', "the"]


@pytest.fixture(scope="module")
def with_symbols():
    return Vocabulary(train_tokenizer(TEXT * 10, 310, SYMBOLS))


@given(st.lists(line | st.sampled_from(SYMBOLS), max_size=9).map("".join))
def test_symbols_are_one_piece_wherever_they_stand(with_symbols, text):
    symbols = re.findall("|".join(sorted(map(re.escape, SYMBOLS), key=len)[::-1]), text)
    pieces = with_symbols.pieces(text)
    assert [piece for piece in pieces if piece in SYMBOLS] == symbols
    assert with_symbols.decode(with_symbols.encode([text])) == [text]
    with_symbols.check_symbols(SYMBOLS, "")


def test_without_symbols_they_are_ordinary_text(vocabulary):
    # "dog" is a piece inside a word, but not behind a space.
    for symbol in ("<bt>", "dog"):
        message = f"'{symbol}', which the tokenizer splits.*; mend it"
        with pytest.raises(UserError, match=message):
            vocabulary.check_symbols([symbol], "mend it")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("<bt>,,<2de>", "empty symbol"),
        ("<b\u3000t>", "white space"),
        ("<bt>,<s>", "'<s>', a piece that every tokenizer has"),
        ("\u2581a", "U\\+2581"),
        ("<bt>,<2de>,<bt>", "'<bt>' twice"),
    ],
)
def test_symbols_that_cannot_be_are_told(written, message):
    assert parse_symbols("<bt>, <2de>") == ("<bt>", "<2de>")
    with pytest.raises(UserError, match=f"config.data.symbols=.* {message}"):
        parse_symbols(written)


def with_ids(pad, bos, eos, unk):
    return foreign(vocab_size=40, pad_id=pad, bos_id=bos, eos_id=eos, unk_id=unk)


@pytest.mark.parametrize(
    ("ids", "pad_bos"),
    [
        ((0, -1, 1, 2), (0, 0)),  # T5
        ((-1, 1, 2, 0), (1, 1)),  # XLM-R
        ((-1, -1, 0, 1), (1, 1)),  # Marian
    ],
)
def test_pad_and_begin_stand_in_for_each_other(ids, pad_bos):
    vocabulary = with_ids(*ids)
    assert (vocabulary.pad, vocabulary.bos) == pad_bos
    assert vocabulary.eos == ids[2] not in pad_bos
    encoded = vocabulary.encode(["The old cat"], end=True)
    assert encoded[0][-1] == vocabulary.eos
    assert vocabulary.decode(encoded) == ["The old cat"]


def test_files_that_are_no_tokenizer_are_told(tmp_path):
    with pytest.raises(UserError, match="foreign.model has no piece .*--eos_id=2"):
        with_ids(0, 1, -1, 2)
    with pytest.raises(UserError, match="does not exist"):
        Vocabulary.load(tmp_path / "x.model")
    (tmp_path / "x.model").write_text("no model")
    with pytest.raises(UserError, match="x.model is not a SentencePiece model"):
        Vocabulary.load(tmp_path / "x.model")


def test_a_sample_is_in_order_as_large_as_it_may_be_and_even():
    for count, size in ((0, 5), (5, 5), (3_000, 7), (3_000, 900)):
        sampled = sample(iter(range(count)), size)
        assert len(sampled) == min(count, size)
        assert sampled == sorted({*sampled} & {*range(count)})
        assert sampled == sample(iter(range(count)), size)
    sampled = sample(iter(range(100_000)), 10_000)  # cut many times on the way
    assert len(sampled) == 10_000
    tenths = np.histogram(sampled, 10, (0, 100_000))[0]
    assert np.abs(tenths - 1000).max() < 5 * np.sqrt(1000 * 0.9)
    for period in (2, 3, 7):  # and has no rhythm
        counts = np.bincount(np.array(sampled) % period)
        assert np.abs(counts - 10_000 / period).max() < 5 * np.sqrt(10_000 / period)
