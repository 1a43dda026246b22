"""Guesses of the language of a text, among those that are served."""

import pytest

from t2t_jax.extensions.grammar import corpus
from t2t_jax.extensions.text.language_identification import Guesser

# By the code of a model, whose spelling does not matter.
TEXTS = {
    "eng_Latn": "The weather is fine today.",
    "deu_Latn": "Das Wetter ist heute schön.",
    "fr": "Il n’est pas là, je ne sais pas pourquoi.",
    "rus_Cyrl": "Это мой дом, мы здесь живём.",
    "uk": "Це мій дім, і її теж.",
    "zho_Hans": "我们明天去北京。",
    "ja": "私は明日東京に行きます。",
    "ell_Grek": "Καλημέρα, τι κάνεις;",
    "ar": "الطقس جميل اليوم.",
}


def test_a_text_is_in_its_language_whatever_else_is_served():
    for codes in ([*TEXTS], [*TEXTS][::-1]):
        guesser = Guesser(codes)
        for code, text in TEXTS.items():
            assert guesser.guess(text).code == code
    for code, text in TEXTS.items():
        assert Guesser([code]).guess(text).confidence > 0.5, text


def test_a_language_of_two_scripts_is_guessed_in_that_of_the_text():
    guess = Guesser(["sr_Latn", "en", "sr_Cyrl"]).guess
    for code, text in (("Cyrl", "Ово је моја кућа."), ("Latn", "Ovo je moja kuća.")):
        assert guess(text).code == f"sr_{code}"
        assert guess(text).confidence > 0.7


def test_a_text_in_no_served_language_is_none():
    for served in TEXTS:
        guess = Guesser([served]).guess
        for code, text in TEXTS.items():
            if code != served:
                assert guess(text).among < 0.1, (served, text)
        for text in ("", "123 %", "🙂", "…"):
            assert guess(text) == (served, 0, 0)


def test_sure_guesses_are_right_in_any_order():
    forward, backward = Guesser(["en", "de"]), Guesser(["de", "en"])
    sure = 0
    for pair in corpus.pairs("dev")[:200]:
        for line, code in zip(pair, ("en", "de"), strict=True):
            guess = forward.guess(line)
            assert backward.guess(line) == pytest.approx(guess)
            assert guess.among > 0.1
            if guess.confidence > 0.7:
                assert guess.code == code, line
                sure += 1
    assert sure > 360


def test_names_say_nothing_and_are_translated():
    guess = Guesser(["en", "de", "fr", "es"]).guess("Tom")
    assert guess.confidence < 0.25
    assert guess.among > 0.1


def test_a_private_code_takes_what_no_other_language_does():
    assert Guesser(["src"]).guess(TEXTS["rus_Cyrl"]) == ("src", 1, 1)
    for text, code in (("The dog is in the house.", "en"), (TEXTS["deu_Latn"], "src")):
        assert Guesser(["src", "en"]).guess(text).code == code
