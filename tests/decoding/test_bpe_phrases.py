"""Phrases and prefixes with byte-pair codes, whose pieces end with the space.

Moses decides the spaces beside punctuation, so a phrase is looked for in the text
without them.
"""

import functools
import re
import tempfile
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from t2t_jax.decoding.constraints import Phrases, constraints_for, without_free_spaces
from t2t_jax.decoding.search_options import SearchRequest
from t2t_jax.io.errors import UserError
from t2t_jax.search.rules import advance_states, allowed, start_states
from t2t_jax.tools.bridges.vocabularies.fairseq import (
    fairseq_vocabulary,
    fsmt_vocabulary,
)
from tests.bridges.bpe_folders import fairseq, fsmt
from tests.decoding import test_phrases

PHRASES = [
    *("the", "a", "cat", "the cat", "it's", "a-b", "don't", "(2)", '"A"', "amp", "&"),
    *("[&]", "5,3%", "-", "'", ".", "the the cat", "apos", "a b", "a, b", "s"),
]
PARTS = [*PHRASES, *" .,-'\"()&", "  ", "the", "b", "ab", "2", "x"]
texts = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)


@functools.cache
def vocabulary(kind):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        if kind == "fairseq":
            options = fairseq(path) | {"share_all_embeddings": True}
            (path / "dict.de.txt").write_text((path / "dict.en.txt").read_text())
            return fairseq_vocabulary(path, options)[0]
        return fsmt_vocabulary(path, fsmt(path))


@functools.cache
def phrases(kind):
    return Phrases(vocabulary(kind))


def in_text(phrase, text):
    """The specification: whole words, without spaces beside punctuation."""
    return test_phrases.in_text(*map(without_free_spaces, (phrase, text)))


@pytest.mark.parametrize("kind", ["fairseq", "fsmt"])
@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(st.sampled_from(PHRASES), texts, texts)
def test_an_automaton_finds_what_is_in_the_text(kind, phrase, before, after):
    vocab = vocabulary(kind)
    (ids,) = vocab.encode([before + phrase + after])
    (text,) = vocab.decode([ids])
    ended = [*ids, vocab.eos]
    automata = phrases(kind)
    for automaton in (automata.required(phrase), automata.forbidden((phrase,))):
        assert automaton.matches(ended) == in_text(phrase, text)


@pytest.mark.parametrize("kind", ["fairseq", "fsmt"])
def test_a_phrase_is_found_however_its_words_are_split(kind):
    vocab = vocabulary(kind)
    inside, word_end = ("@@", "") if kind == "fairseq" else ("", "</w>")
    names = ["t" + inside, "h" + inside, "e" + word_end, "c" + inside, "a" + inside]
    ids = [vocab._tokenizer.id_of(name) for name in (*names, "t" + word_end)]
    assert vocab.unknown not in ids
    assert vocab.decode([ids]) == ["the cat"]
    assert phrases(kind).required("the cat").matches(ids)
    assert not phrases(kind).required("the c").matches(ids)
    assert phrases(kind).required("the cat").distance_s[0] == 3
    assert not phrases(kind).forbidden(("cat",)).matches(ids[:-1])


def walk(kind, draw, prefix, must_not=(), room=8):
    """Draws tokens that the rules allow; yields the text before each of them."""
    vocab, automata = vocabulary(kind), phrases(kind)
    constraints = constraints_for(
        1, vocab, automata, SearchRequest(prefix=prefix, must_not=must_not)
    )
    rules = automata.rules(constraints, rows=1, max_length=room)
    state_bnc = start_states(rules, 1, 1)
    ids, limit_b = [], np.array([room + 1])
    for position in range(room):
        may_v = np.array(allowed(rules, state_bnc, position, limit_b, vocab.eos)[0, 0])
        yield vocab.decode([ids])[0]
        may_v[[vocab.eos, vocab.unknown]] = False
        ids.append(int(draw.choice(np.flatnonzero(may_v))))
        token_bn = np.array([[ids[-1]]])
        state_bnc = advance_states(rules, state_bnc, token_bn)


@pytest.mark.parametrize("kind", ["fairseq", "fsmt"])
def test_the_last_word_of_a_prefix_may_go_on(kind):
    draw = np.random.default_rng(0)
    for prefix in ("the ca", "the cat (", "a b-"):
        results = walk(kind, draw, prefix)
        later_rows = [text for text in results if len(text) >= len(prefix)]
        assert later_rows
        assert all(text.startswith(prefix) for text in later_rows)
    # A word that is forbidden goes on; but no piece has "the" and more.
    *_, text = walk(kind, draw, "the a", must_not=["a"])
    assert re.match(r"the a\w", text)
    with pytest.raises(UserError, match="='the' contains a phrase of must_not"):
        next(walk(kind, draw, "the", must_not=["the"]))
