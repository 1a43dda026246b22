"""BPE-dropout: SentencePiece's pieces without it, its distribution with it."""

import collections
import io

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.tokenizers.table import pack
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.extensions.data.tokenizers.subword_sampling import SubwordSampling
from t2t_jax.io.errors import UserError
from tests.test_nasty_lines import NASTY

TEXT = [
    *(f"The {a} {b} sees  the {b}." for a in ("old", "young") for b in ("cat", "dog")),
    "Straßenmusikanten stehen an Straßenecken, sehen Straßenbahnen und musizieren.",
    "bananas and bandanas; a banana is not a bandana, nor an ananas",
    "aaaaaaaa aaaa aa a bbbb bababa",
    "猫は猫を見る。犬は猫を見る。",
]


def foreign(lines=TEXT, **options):
    """A model trained by SentencePiece with other options than ours."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 10),
        model_writer=model,
        minloglevel=2,
        hard_vocab_limit=False,
        **{"vocab_size": 120, "model_type": "bpe", "unk_id": 3} | options,
    )
    return Vocabulary(model.getvalue(), "foreign.model")


MODELS = {
    "ours": lambda: Vocabulary(train_tokenizer(TEXT * 10, 400)),
    "ours with symbols": lambda: Vocabulary(
        train_tokenizer(TEXT * 10, 400, ["<bt>", "<b", "the", "a.b", "▁x"])
    ),
    "normalizes, joins unknown characters": lambda: foreign(),
    "merges across words": lambda: foreign(
        split_by_whitespace=False, user_defined_symbols=["▁x", "▁", "old"]
    ),
    "space after a word, bytes": lambda: foreign(
        treat_whitespace_as_suffix=True, byte_fallback=True, vocab_size=400
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def vocabulary(request):
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def trained():
    return MODELS["ours"]()


def sampled(vocabulary, dropout, lines, numbers=None, epoch=1, side=1):
    numbers = np.arange(len(lines)) if numbers is None else numbers
    ragged = SubwordSampling(vocabulary, dropout).encode(lines, numbers, 7, epoch, side)
    assert ragged.tokens.dtype == np.int32
    return [ragged[i].tolist() for i in range(len(lines))]


special = st.sampled_from(
    [*NASTY.values(), " ", "  ", "the", "<bt>", "<b", "a.b", "a.", "▁x", "\uf8fe"]
    + ["Straßen", "bandana", "猫", "日本", "😀", "x", "\ud7ff", "e\u0301", "\t", "ﬁ"]
)
line = st.lists(special.filter(lambda s: len(s) < 40) | st.text(max_size=4)).map(
    "".join
)


@settings(max_examples=15)
@given(st.lists(line, max_size=5))
def test_without_dropout_it_is_the_encoding_of_sentencepiece(vocabulary, lines):
    lines = [*TEXT, *lines]
    assert sampled(vocabulary, 0.0, lines) == vocabulary.encode(lines, end=True)
    assert sampled(vocabulary, 0.0, []) == []


@settings(max_examples=15)
@given(st.lists(line, max_size=5), st.sampled_from([1e-300, 0.1, 0.5, 0.999]))
def test_sampled_pieces_decode_to_the_same_text(vocabulary, lines, dropout):
    lines = [*TEXT, *lines]
    decoded = vocabulary.decode(sampled(vocabulary, dropout, lines))
    assert decoded == vocabulary.decode(vocabulary.encode(lines))


def test_pieces_have_the_distribution_of_sentencepiece(trained):
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained.model)
    sentencepiece.set_random_generator_seed(1)
    scores = []
    # The merges of "aaaaaa" have equal scores: the leftmost comes first.
    for text, dropout in (("bandanas", 0.1), ("aaaaaa", 0.4), ("Straße banana", 0.4)):
        options = {"enable_sampling": True, "alpha": dropout, "nbest_size": -1}
        lines = [text] * 4000
        reference = processor.encode(lines, num_threads=1, **options)
        expected = collections.Counter(map(tuple, reference))
        rows = sampled(trained, dropout, lines)
        counts = collections.Counter(tuple(row[:-1]) for row in rows)
        cells = [(expected[k], counts[k]) for k in expected | counts]
        often = [(a, b) for a, b in cells if a + b >= 40]
        scores += [(a - b) / (a + b) ** 0.5 for a, b in often]
    # Numbers of the standard normal distribution, if the two are the same.
    assert len(scores) > 20
    assert np.max(np.abs(scores)) < 5
    assert np.sum(np.square(scores)) < len(scores) + 5 * (2 * len(scores)) ** 0.5


def test_a_line_is_a_pure_function_of_its_number_epoch_and_side(trained, monkeypatch):
    lines = TEXT * 3
    numbers = np.arange(len(lines)) + (1 << 40)
    together = sampled(trained, 0.3, lines, numbers)
    order = np.random.default_rng(0).permutation(len(lines))
    shuffled = sampled(trained, 0.3, [lines[i] for i in order], numbers[order])
    assert shuffled == [together[i] for i in order]
    with monkeypatch.context() as patch:  # as many as are encoded at a time
        patch.setattr("t2t_jax.extensions.data.tokenizers.subword_sampling.LINES", 4)
        assert sampled(trained, 0.3, lines, numbers) == together
    assert sampled(trained, 0.3, lines, numbers, epoch=2) != together
    assert sampled(trained, 0.3, lines, numbers, side=0) != together
    # Equal lines, and equal words of a line, are split independently.
    assert together[: len(TEXT)] != together[len(TEXT) : 2 * len(TEXT)]
    (row,) = sampled(trained, 0.4, [" ".join(["bandanas"] * 50)])
    words = " ".join(trained.piece(i) for i in row).replace("▁", "|▁").split("|")
    assert len({*words}) > 5


def test_each_side_has_its_own_merges_and_a_label_is_one_token(trained):
    source = Vocabulary(train_tokenizer(["the cat sat on the mat"] * 20, 290))
    separate = Vocabulary(trained.model, source=source)
    text = ["the cat sees bananas"]
    assert sampled(separate, 0.0, text, side=0) == source.encode(text, end=True)
    assert sampled(separate, 0.0, text, side=1) == trained.encode(text, end=True)
    assert source.encode(text) != trained.encode(text)
    labels = Vocabulary(pack("labels", labels=["bad", "good"]), source=trained)
    assert sampled(labels, 0.5, ["good", "bad"], side=1) == [[1], [0]]
    assert trained.decode(sampled(labels, 0.5, TEXT, side=0)) == TEXT


def test_refuses_tokenizers_without_known_merges_and_other_probabilities(trained):
    unigram = foreign(model_type="unigram", vocab_size=60)
    with pytest.raises(UserError, match="foreign.model .* not a byte-pair encoding"):
        SubwordSampling(unigram, 0.1)
    with pytest.raises(UserError, match=r"subword_dropout=.*at least 0 and less"):
        SubwordSampling(trained, 1.0)
