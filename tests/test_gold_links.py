"""Gold links of the built-in corpus, and scores of alignments against such links."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.alignment import MEASURES
from benchmarks.gold_links import gold_links
from t2t_jax.extensions.grammar import corpus, lexicon
from t2t_jax.metrics.measures import measured
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
    lines, links = corpus.pairs(split, 0, count), gold_links(split, count)
    for pair, pair_links in zip(lines, links, strict=True):
        yield *([line[a:b] for a, b in units(line)] for line in pair), *pair_links


@pytest.mark.parametrize("split", [s for s in corpus.SPLITS if "hard" not in s])
def test_every_word_is_linked_and_names_and_nouns_to_their_translations(split):
    forms = [form for noun in lexicon.EASY.nouns for form in noun[:2]]
    names, listed = (
        {*map(str.lower, [*forms, *lexicon.EASY.all_names])},
        corpus._translations(),
    )
    for english, german, sure, possible in linked(split, 50):
        assert possible == sorted({*possible, *sure})
        for i, word in enumerate(map(str.lower, english)):
            words_linked = {german[j] for k, j in sure if k == i}
            if word in names:
                assert set() < words_linked <= listed[word] | listed[f"{word}'s"], (
                    english
                )
        # All words are linked, and the commas that both languages have.
        for side, words in enumerate((english, german)):
            alone = {*range(len(words))} - {link[side] for link in possible}
            assert {words[n] for n in alone} <= ({","} if side else set()), words
            assert max(link[side] for link in possible) == len(words) - 1
        commas = [(i, j) for i, j in possible if "," in (english[i], german[j])]
        assert [english[i] + german[j] for i, j in commas] == [",,"] * len(commas)


def test_links_are_those_drawn_by_hand():
    sentences = [*linked("dev", 300)]
    for number, by_hand in BY_HAND.items():
        english, german, sure, possible = sentences[number]
        drawn = [f"{english[i]}-{german[j]}" for i, j in sure]
        drawn += [f"({english[i]}-{german[j]})" for i, j in {*possible} - {*sure}]
        assert sorted(drawn) == sorted(by_hand.split())


links = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6)


@settings(max_examples=40)
@given(st.lists(st.tuples(links, links, links), min_size=1, max_size=3))
def test_scores_are_those_of_the_formulas(sentences):
    predicted, gold = [a for a, *_ in sentences], [(s, s | p) for _, s, p in sentences]
    a, s, p = (
        {(n, link) for n, sentence_links in enumerate(side) for link in sentence_links}
        for side in (predicted, *zip(*gold, strict=True))
    )
    wrong = len(a) + len(s) - len(a & s) - len(a & p)
    right = wrong / (len(a) + len(s) or 1), len(a & p) / (len(a) or 1)
    shares = [*right, len(a & s) / (len(s) or 1)]
    for share, measure in zip(shares, MEASURES.values(), strict=True):
        score = measured(measure, measure.statistics(predicted, gold))
        assert score == pytest.approx(100 * share)
