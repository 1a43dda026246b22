"""Automata over tokens, held against regular expressions over text.

However tokens split a text, what an automaton finds in them is what the regular
expression finds in the text; where bytes stand in for a character that makes a word
begin or end, it may differ, in one direction only.
"""

import functools
import io
import re

import hypothesis
import numpy as np
import pytest
import sentencepiece
from hypothesis import strategies as st

from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.constraints import KEPT, Constraints, Phrases
from t2t_jax.io.errors import UserError

TEXT = [
    f"Der {a} {b} sieht den {b}, und „die {b}“ geht (2 km) nach Köln."
    for a in ("alte", "junge", "große")
    for b in ("Hund", "Hunde", "Hündin", "Katze")
]
PLAIN = [
    f"The {a} {b} sees  the {b}." for a in ("old", "young") for b in ("cat", "dog")
]

PHRASES = [
    *("Hund", "der Hund", "der der Hund", "d", "ü", "Köln", "große Hündin", "cat."),
    *("„die Hunde“", "“", ",", "(2 km)", "2", "ab", "aab", "a, a", "a_b", "😀"),
    *("e\u0301", "▁", "a▁b", "日本", "the cat", "<x>", "ß", "Ähre"),
]
# Parts of texts: the phrases, what they nearly are, and what stands around words.
PARTS = [
    *PHRASES,
    *("der", "Hunde", "Hun", "Hündin", "a", "b", "aa", "Ä", "ö", "_", "é", "e", "km"),
    *(" ", " ", " ", "  ", ".", ",", "-", "„", "\u2581", "\x00", "\t", "\xa0", "x"),
]
texts = st.lists(st.sampled_from(PARTS) | st.text(max_size=2), max_size=8).map("".join)
# U+F8FE and U+F8FD spell U+2581; a text with them is not told from one with that.
texts = texts.filter(lambda text: not re.search("[\n\uf8fd\uf8fe]", text))
phrases = st.sampled_from(PHRASES)
around = st.tuples(phrases, texts, texts).map(
    lambda p: (p[0], "".join((p[1], p[0], p[2])))
)
few_letters = st.text("ab, ä“", min_size=1, max_size=4).filter(
    lambda phrase: phrase == phrase.strip()
)
pairs = around | st.tuples(phrases, texts) | st.tuples(few_letters, st.text("ab, ä“"))


@functools.cache
def vocabulary(name):
    symbols = ["<x>", "Hun", "ü"]
    trained_on = {
        "words": (TEXT * 5, 380),
        "symbols": ([*TEXT * 5, "<x> a"], 360, symbols),
        "few": (PLAIN * 10, 310),  # spells every umlaut in bytes
    }
    return Vocabulary(train_tokenizer(*trained_on[name]))


@functools.cache
def makes(name):
    return Phrases(vocabulary(name))


@functools.cache
def spellings(name):
    """The ordinary pieces by what they spell."""
    model = vocabulary(name)
    results = {}
    for token in range(len(model)):
        spelling = model.spelling(token)
        if spelling and token != model._tokenizer.unknown:
            results[spelling] = token
    return results


NAMES = ["words", "symbols", "few"]


def in_text(phrase, text):
    """The specification, as whole words."""
    word = [bool(re.match(r"\w", phrase[0])), bool(re.match(r"\w", phrase[-1]))]
    previous, later_rows = r"(?<!\w)" * word[0], r"(?!\w)" * word[1]
    return bool(re.search(previous + re.escape(phrase) + later_rows, text))


def as_bytes(name, text):
    pieces = spellings(name)
    return [pieces[bytes([byte])] for byte in text.encode()]


def split_at_random(name, text, draw, whole):
    """Tokens that spell a text, none of them as the tokenizer would choose it.

    Args:
      whole: characters that have a piece are never spelled in bytes.
    """
    model, pieces = vocabulary(name), spellings(name)
    spelled = " " + model.spelled(text)
    tokens, place = [], 0
    while place < len(spelled):
        ends = range(place + 1, min(len(spelled), place + 12) + 1)
        results = [end for end in ends if spelled[place:end] in pieces]
        is_start = place == 0  # A byte would be a space of the text.
        if results and (is_start or whole or draw.random() < 0.8):
            end = int(draw.choice(results))
            tokens.append(pieces[spelled[place:end]])
        else:
            end = place + 1
            tokens += as_bytes(name, spelled[place])
        place = end
    return tokens


@pytest.mark.parametrize("name", NAMES)
@hypothesis.settings(max_examples=80)
@hypothesis.given(
    pair=pairs, others=st.lists(phrases, max_size=3), seed=st.integers(0, 2**32)
)
def test_an_automaton_finds_what_the_regular_expression_finds(name, pair, others, seed):
    phrase, text = pair
    model, draw = vocabulary(name), np.random.default_rng(seed)
    (file_text,) = model.encode([text])
    for tokens in (
        file_text,
        split_at_random(name, text, draw, whole=True),
        split_at_random(name, text, draw, whole=False),
    ):
        assert model.decode([tokens]) == [text]
        ended = [*tokens, model.eos]
        forbidden = makes(name).forbidden((phrase,)).matches(ended)
        required = makes(name).required(phrase).matches(ended)
        # The promises, whatever the bytes; and both exactly where there are none.
        assert forbidden >= in_text(phrase, text) >= required
        odd = [isinstance(s, bytes) and s[0] > 127 for s in map(model.spelling, tokens)]
        if not any(odd):
            assert forbidden == required
    # One automaton forbids many phrases.
    any_of = makes(name).forbidden((phrase, *others)).matches(ended)
    assert any_of == any(
        makes(name).forbidden((p,)).matches(ended) for p in (phrase, *others)
    )


# Distances


@pytest.mark.parametrize("name", NAMES)
def test_search_can_always_come_closer(name):
    model = vocabulary(name)
    for phrase in PHRASES:
        automaton = makes(name).required(phrase)
        distance_s, next_sv = automaton.distance_s, automaton.next_sv
        after_sv = distance_s[next_sv]
        # By a token that search may choose: the end only where it says the phrase.
        usable_sv = np.ones(next_sv.shape, bool)
        usable_sv[:, [model.pad, model.bos]] = False
        usable_sv[:, model.eos] = next_sv[:, model.eos] == automaton.matched
        nearest_s = np.where(usable_sv, after_sv, 10**6).min(axis=1)
        np.testing.assert_array_equal(nearest_s, np.maximum(distance_s - 1, 0))
        # Following it says the phrase, in as many tokens as were promised.
        state, tokens = 0, []
        while state != automaton.matched:
            closer_v = usable_sv[state] & (after_sv[state] < distance_s[state])
            tokens.append(int(np.flatnonzero(closer_v)[-1]))
            state = next_sv[state, tokens[-1]]
        assert len(tokens) == distance_s[0]
        assert in_text(phrase, model.decode([tokens])[0])


def test_what_cannot_be_spelled_cannot_be_required():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PLAIN * 10),
        model_writer=model,
        vocab_size=40,
        model_type="bpe",
        **{"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "minloglevel": 2},
    )
    vocabulary = Vocabulary(model.getvalue(), "plain.model")
    vocab = Phrases(vocabulary)
    with pytest.raises(UserError, match="must='Hündin': plain.model has no"):
        vocab.required("Hündin")
    automaton = vocab.forbidden(("Hündin",))
    assert not automaton.matches(vocabulary.encode(["the cat"], end=True)[0])


# Rules of a batch


def run(rules, sentence, tokens):
    """Returns if each token is refused, and the final distances, of one sentence."""
    states, refused = rules.start_bc[sentence], []
    for token in tokens:
        refused.append(bool(rules.refused_sv[states, token].any()))
        states = rules.next_sv[states, token]
    return refused, rules.distance_s[states].tolist()


def test_rules_of_a_batch():
    model = vocabulary("words")
    (prefix,) = model.encode(["Der"])
    constraints = [
        Constraints(tuple(prefix), ("Hund", "der Hund"), ("Katze", "Köln")),
        Constraints(must_not=("Hund",)),
        Constraints(must=("Hund",)),
    ]
    rules = makes("words").rules(constraints, rows=4, max_length=8)
    none, n = [-1] * len(prefix), len(prefix)
    assert rules.prefix_bt[:, :n].tolist() == [prefix, none, none, none]
    assert (rules.prefix_bt[:, n:] == -1).all()
    assert makes("words").rules([Constraints()], 4, 8) is None
    closer_sv = rules.distance_s[rules.next_sv] < rules.distance_s[:, None]
    np.testing.assert_array_equal(rules.closer_sv, closer_sv)
    for sentence, line, expected in (  # if it is refused, and if nothing is missing
        (0, "der Hund", (False, True)),
        (0, "ein Hund", (True, False)),
        (0, "der Hund Katze", (True, True)),
        (0, "der Hund Kölns", (False, True)),
        (1, "Hund", (True, True)),
        (2, "Katze", (True, False)),
        (3, "der Hund Katze", (False, True)),
    ):
        refused, distances = run(rules, sentence, model.encode([line], end=True)[0])
        assert (any(refused), not any(distances)) == expected, (sentence, line)
        if not expected[1]:  # It is the end that is refused while something is missing.
            assert refused.index(True) == len(refused) - 1


# What tokens spell

NASTY = ["", " ", "  a", "a  ", "<s>", "<unk>", "<0x41>", "\uf8fe▁", "\x00", "ü<x> ü"]


@pytest.mark.parametrize("name", ["symbols", "few"])
@hypothesis.settings(max_examples=60)
@hypothesis.given(text=texts | st.sampled_from(NASTY), seed=st.integers(0, 2**32))
def test_spellings_are_the_text(name, text, seed):
    model = vocabulary(name)
    draw = np.random.default_rng(seed)
    for ids in (
        model.encode([text], end=True)[0],
        split_at_random(name, text, draw, whole=False),
    ):
        spelled = b"".join(
            s if isinstance(s, bytes) else s.encode() for s in map(model.spelling, ids)
        ).decode()
        assert spelled.removeprefix(" ") == model.spelled(text)
        assert text == model.decode([ids])[0]


def test_ever_new_phrases_take_no_more_memory_and_one_is_in_the_table_once():
    phrases = Phrases(vocabulary("words"))
    # More than are kept, in turns.
    constraints = [Constraints(must=(f"a{n % 99}",)) for n in range(3 * 99)]
    rules = phrases.rules(constraints, len(constraints), 8)
    assert phrases.required.cache_info().currsize == KEPT < 99
    starts = rules.start_bc[:, 0].reshape(3, 99)
    assert (starts == starts[0]).all()
    assert len({*starts[0]}) == 99
