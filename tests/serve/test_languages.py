"""Languages of texts, among those that are served."""

from types import SimpleNamespace

import pytest

from t2t_jax.grammar import corpus
from t2t_jax.tools.serve.languages import Guesser


def guesser(*codes):
    return Guesser({str(n): SimpleNamespace(source=x) for n, x in enumerate(codes)})


def test_the_one_language_is_the_answer_to_everything():
    for text in ("", "Der Hund.", "犬"):
        assert guesser("en", "en").guess(text) == ("en", 1.0)


def test_sure_guesses_are_right_in_any_order_of_directions():
    first, second = guesser("en", "de"), guesser("de", "en")
    sure = 0
    for pair in corpus.pairs("dev")[:200]:
        for line, code in zip(pair, ("en", "de"), strict=True):
            guess, confidence = first.guess(line)
            assert second.guess(line) == (guess, pytest.approx(confidence))
            if confidence > 0.9:
                assert guess == code, line
                sure += 1
    assert sure > 380


def test_scripts_and_letters_tell_languages_apart():
    guess = guesser("en", "ru", "uk", "zh", "ja", "el", "fr").guess
    for text, code in (
        ("Это мой дом, мы здесь.", "ru"),
        ("Це мій дім, і її теж.", "uk"),
        ("我们明天去北京。", "zh"),
        ("私は明日東京に行きます。", "ja"),
        ("Καλημέρα", "el"),
        ("Il n’est pas là.", "fr"),
    ):
        assert guess(text)[0] == code, text


def test_confidence_is_that_of_chance_without_evidence():
    guess = guesser("en", "de", "fr", "es").guess
    for text in ("", "123 %", "🙂"):
        assert guess(text) == ("en", pytest.approx(0.25))
    assert guess("The dog is in the house, and you know it.")[1] > 0.999
    assert guess("Tom")[1] < 0.7
