"""One definition of a word: what a line's tokens say agrees with the line itself."""

import functools
import tempfile
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_jax.data.filling import ragged
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.extensions.data.links import WordFinder
from t2t_jax.text.units import units
from t2t_jax.text.words import token_words
from t2t_jax.tools.explain.words import explained_words
from tests.bridges.published_tokenizers import new_vocabulary
from tests.decoding import test_bpe_phrases

TEXT = [
    "The big  dog, sees the cat's 10\u00a0000 dogs.",
    "日本の犬 \u3000",
    "é ü — «x»",
]
OURS = "few characters", "all characters"
KINDS = *OURS, "nllb", "pegasus", "marian", "m2m100", "fairseq", "fsmt"
# Some separate words for Python, none of these for aligners; and what joins characters.
ODD = "\u00a0\u2009\u3000\u2028\x1f\x85\u200d\u0301\ufe0f\u2581\uf8fe😀👩日—«."
lines = st.text(st.sampled_from(f"{ODD}{ODD}ab'é  \t") | st.characters(codec="utf-8"))
lines = lines.map(lambda line: line.replace("\n", " "))
SPOKEN = "10\u00a0000 dogs see the\u3000cat."


@functools.cache
def vocabulary(kind):
    if kind in OURS:
        lines, size = (["ab ba"] * 9, 264) if kind == OURS[0] else (TEXT * 9, 330)
        return Vocabulary(train_tokenizer(lines, size))
    if kind in ("fairseq", "fsmt"):
        return test_bpe_phrases.vocabulary(kind)
    with tempfile.TemporaryDirectory() as folder:
        return new_vocabulary(kind, Path(folder))


def link_words(side, ids, mode):
    """Numbers from 0, of a sentence between others."""
    (neighbour,) = side.encode(["a b"], end=True)
    sentences = ragged([neighbour, ids, neighbour])
    number, hashes = WordFinder(side, mode)(sentences)
    begin, end = sentences.offsets[1:3]
    return (number[begin:end] - 1).tolist(), len(hashes[1])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@example(SPOKEN)
@example("  a  ☃b \u00a0")
@example("0\x0bA\u00af")  # of which some tokenizers remove a space, and make another
@given(lines)
def test_links_alignments_explanations_and_heads_agree(kind, line):
    side = vocabulary(kind).source
    (ids,) = side.encode([line], end=True)
    side_words = side.words(ids)
    assert link_words(side, ids, "spaces") == (
        side_words.of_token,
        len(side_words.spans),
    )
    unit_words = side.words(ids, "units")
    assert link_words(side, ids, "units") == (
        unit_words.of_token,
        len(unit_words.spans),
    )
    # Numbers are those of the line's own words, whatever the tokenizer made of them.
    words = [word.decode() for word in line.encode().split()]
    in_line = side.words(ids, line=line)
    assert len(in_line.spans) == len(words)
    explained = explained_words(side, ids, line)
    if explained.spans != side.words(ids, "tokens").spans:
        assert explained.of_token == in_line.of_token
    for token, number in zip(side.spellings(ids), in_line.of_token, strict=True):
        if number >= 0 and token.strip().isalpha():
            assert token.strip().decode() in normalize("NFKC", words[number])
    if kind not in OURS:
        return
    assert [*map(side.spelled, words)] == side_words.texts == in_line.texts
    for mode, parts in (("spaces", side_words), ("units", unit_words)):
        spelled = [b""] * len(parts.spans)
        for token, number in zip(side.spellings(ids), parts.of_token, strict=True):
            if number >= 0:
                spelled[number] += token
        if mode == "spaces" or kind == OURS[0]:  # no token of several units
            assert [s.decode().strip() for s in spelled] == [
                text.strip() for text in parts.texts
            ]
    assert len(unit_words.spans) == len(units(side.spelled(line)))


@pytest.mark.parametrize("count", [1, 5, 400])  # tries of all places would not end
def test_an_unknown_token_stands_for_some_characters(count):
    text_words = token_words([b"a\xe2\x81\x87b ", "\u2047".encode() * count, b"c"])
    for line, stands in (("aüb xc", count == 1), (f"ab {'x' * 500}c", False)):
        assert (text_words.of_line(line).of_token == text_words.of_token) == stands
    assert text_words.of_line(f"aüb {'x' * 500}c").of_token == text_words.of_token


@pytest.mark.parametrize("kind", KINDS)
def test_a_no_break_space_separates_no_words(kind):
    side = vocabulary(kind).source
    (ids,) = side.encode(["the\u00a0cat the cat"], end=True)
    numbers = side.words(ids, line="the\u00a0cat the cat").of_token
    assert {*numbers} - {-1} == {0, 1, 2}
    assert [n for n in numbers if n >= 0] == sorted(n for n in numbers if n >= 0)
