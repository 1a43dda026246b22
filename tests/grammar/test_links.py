"""Gold links of the built-in corpus: between translations, and of every word."""

import collections

import pytest

from t2t_jax.grammar import corpus, lexicon
from t2t_jax.text.units import units

# Drawn by hand, by the number in dev; those in brackets are only possible.
BY_HAND = {
    4: "When-Wenn a-eine cow-Kuh (is-zurückkommt) coming-zurückkommt "
    "back-zurückkommt ,-, this-dieses child-Kind whom-dem they-sie always-immer "
    "explain-erklären her-ihre story-Geschichte (to-dem) will-wird carry-tragen a-eine "
    "bag-Tasche .-.",
    77: "The-Der boy-Junge (does-zieht) not-nicht take-zieht (take-aus) (off-zieht) "
    "off-aus this-diesen scarf-Schal .-.",
    132: "The-Die nurse-Krankenschwester (does-verliert) not-keine lose-verliert "
    "a-keine clean-saubere jacket-Jacke .-.",
    294: "The-des baker-Bäckers ('-Bäckers) (s-Bäckers) (child-Das) child-Kind "
    "feeds-füttert the-den lazy-faulen monkey-Affen .-.",
}


def linked(split, count):
    """Yields the English and German units and the links of sentences."""
    lines, links = corpus.pairs(split, 0, count), corpus.links(split, 0, count)
    for pair, of_pair in zip(lines, links, strict=True):
        yield *([line[a:b] for a, b in units(line)] for line in pair), *of_pair


@pytest.fixture(scope="module")
def translations():
    """All German forms of each English form of content words, in lower case."""
    forms_of, listed = collections.defaultdict(set), corpus._translations()
    words = {*lexicon.names, *lexicon.cities, *lexicon.numerals}
    words |= {adjective.english for adjective in lexicon.adjectives}
    words |= {form for noun in lexicon.nouns for form in noun[:2]}
    for word in map(str.lower, words):
        forms_of[word] |= listed[word] | listed[f"{word}'s"]
    # "have" is an auxiliary, too.
    for verb in (v for v in lexicon.verbs if v.english["base"] != "have"):
        forms = {form.removeprefix("zu ") for form in verb.german.values()}
        forms |= {verb.prefix + form for form in forms} | {verb.prefix}
        for form in verb.english.values():
            forms_of[form] |= forms
    return {word: {form.lower() for form in found} for word, found in forms_of.items()}


@pytest.mark.parametrize("split", corpus.SPLITS)
def test_words_are_linked_to_their_translations(split, translations):
    for english, german, sure, possible in linked(split, 100):
        assert possible == sorted({*possible, *sure})
        for i, word in enumerate(map(str.lower, english)):
            found = {german[j].lower() for k, j in sure if k == i}
            if word in translations:
                assert set() < found <= translations[word], (word, english, german)
        # All words are linked, and the commas that both languages have.
        for side, words in enumerate((english, german)):
            alone = {*range(len(words))} - {link[side] for link in possible}
            assert {words[n] for n in alone} <= ({","} if side else set()), words
            assert max(link[side] for link in possible) == len(words) - 1
        commas = [(i, j) for i, j in possible if "," in (english[i], german[j])]
        assert [english[i] + german[j] for i, j in commas] == [",,"] * len(commas)


def test_links_are_those_drawn_by_hand():
    sentences = [*linked("dev", 300)]
    assert corpus.links("dev", 0, 3) == [(s, p) for *_, s, p in sentences[:3]]
    for number, by_hand in BY_HAND.items():
        english, german, sure, possible = sentences[number]
        drawn = [f"{english[i]}-{german[j]}" for i, j in possible]
        for n, link in enumerate(possible):
            drawn[n] = drawn[n] if link in sure else f"({drawn[n]})"
        assert sorted(drawn) == sorted(by_hand.split())
