"""Subwords lose nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.data import vocab
from t2t_jax.errors import UserError

TEXT = [f"The {a} {b} sees  the {b}." for a in ("old", "young") for b in ("cat", "dog")]


@pytest.fixture(scope="module")
def vocabulary():
    return vocab.Vocabulary(vocab.train(TEXT * 10, 310))


# Any text, and more often what is special to SentencePiece or to this program.
special = st.sampled_from(
    [
        "\u2581",
        "\uf8fe",
        "\uf8fd",
        " ",
        "  ",
        "\t",
        "\r",
        "\x00",
        "<s>",
        "</s>",
        "<pad>",
    ]
    + [
        "<unk>",
        "<0x41>",
        "\u2028",
        "\x85",
        "\ufeff",
        "e\u0301",
        "😀",
        "日本",
        "the cat",
    ]
)
line = (
    st.lists(special | st.text(max_size=4)).map("".join).filter(lambda s: "\n" not in s)
)


@given(st.lists(line, max_size=5))
def test_decoding_undoes_encoding(vocabulary, lines):
    assert vocabulary.decode(vocabulary.encode(lines)) == lines


def test_known_words_are_short_and_strange_ones_are_bytes(vocabulary):
    assert len(vocabulary.encode(["the cat"])[0]) <= 4
    assert vocabulary.pieces("日")[-3:] == ["<0xE6>", "<0x97>", "<0xA5>"]


def test_special_pieces_are_left_out_of_text(vocabulary):
    ids = vocabulary.encode(["the cat"])[0]
    padded = [vocabulary.bos, *ids, vocabulary.eos, vocabulary.pad]
    assert vocabulary.decode([padded]) == ["the cat"]
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos) == (0, 1, 2)


def test_training_is_deterministic():
    assert vocab.train(TEXT * 10, 310) == vocab.train(TEXT * 10, 310)


@pytest.mark.parametrize("size", [100, 30_000])
def test_a_size_that_does_not_fit_is_told(size):
    with pytest.raises(UserError, match=f"vocab_size={size} does not fit"):
        vocab.train(TEXT, size)


def test_files_that_are_no_tokenizer_are_told(tmp_path):
    (tmp_path / "x.model").write_text("no model")
    with pytest.raises(UserError, match="x.model is not a SentencePiece model"):
        vocab.Vocabulary.load(tmp_path / "x.model")
    with pytest.raises(UserError, match="does not exist"):
        vocab.Vocabulary.load(tmp_path / "y.model")
