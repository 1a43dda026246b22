"""Augmented and noised text: pure for each line, the right side, the right share."""

import dataclasses
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.config import DataConfig
from t2t_jax.data.corpus import Corpus, LowScore
from t2t_jax.extensions.data.variation import (
    TextVariation,
    text_variation_of,
    variation_of,
)
from t2t_jax.extensions.text.damage import AUGMENTATIONS, TRAINABLE
from t2t_jax.extensions.text.word_noise import BLANK, WordNoise, add_noise, parse_noise
from t2t_jax.io.errors import UserError
from t2t_jax.text.units import MARKS, SYMBOLS

ALL = ",".join(f"{name}@0.5" for name in AUGMENTATIONS)
WORDS = ["A", "man's", "“dog”", "barks", "loudly,", "Über", "1,000", "IBM", "{line}"]
LINES = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
SIDES = st.tuples(LINES, LINES.map(str.swapcase))
CHUNKS = st.lists(SIDES, min_size=1, max_size=30)
PAIRS = [(f"The dog number {n} barks.", f"Hund {n} bellt.") for n in range(1_000)]


OWN = *SYMBOLS, *MARKS
LEXICON = {"dog": ["DOG", "Hund"], "barks": ["BARKS"], "one": ["eins"]}


def vary(pairs, numbers=None, augment=ALL, seed=3, epoch=1, symbols=()):
    numbers = np.arange(len(pairs)) if numbers is None else np.asarray(numbers)
    variation = text_variation_of(augment, [*symbols, *OWN])
    variation = dataclasses.replace(variation, learned={"terms": LEXICON})
    return variation(pairs, numbers, seed, epoch)


@given(CHUNKS, st.integers(0, 9), st.integers(0, 9), st.data())
@settings(max_examples=20)
def test_a_line_depends_on_its_number_and_the_next_lines_alone(
    pairs, seed, epoch, data
):
    varied = vary(pairs, seed=seed, epoch=epoch)
    assert len(varied) == len(pairs)
    begin = data.draw(st.integers(0, len(pairs) - 1))
    part = vary(pairs[begin:], range(begin, len(pairs)), seed=seed, epoch=epoch)
    assert part == varied[begin:]
    # Without neighbours a line needs no other line, and order means nothing.
    order = data.draw(st.permutations(range(len(pairs))))
    alone = ALL.replace("neighbours@0.5,", "")
    varied = vary(pairs, augment=alone, seed=seed, epoch=epoch)
    shuffled = vary([pairs[i] for i in order], order, alone, seed, epoch)
    assert shuffled == [varied[i] for i in order]
    for line in (line for pair in varied for line in pair):
        assert "\n" not in line


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_each_changes_its_share_of_lines_and_its_side(name):
    varied, other_epoch = (vary(PAIRS, augment=f"{name}@0.2", epoch=e) for e in (1, 2))
    changed = [i for i, pair in enumerate(varied) if pair is not PAIRS[i]]
    # Five standard deviations of a binomial count; `case` may find nothing to change.
    assert len(changed) == pytest.approx(200, abs=5 * 13)
    assert all(varied[i][0] != PAIRS[i][0] for i in changed)
    targets = {i for i in changed if varied[i][1] != PAIRS[i][1]}
    assert bool(targets) == AUGMENTATIONS[name].changes_target
    changed_twice = [i for i in changed if other_epoch[i] is not PAIRS[i]]
    assert len(changed_twice) == pytest.approx(len(changed) / 5, abs=5 * 6)


def test_neighbours_join_consecutive_lines_of_both_sides():
    pairs = [(f"s{n}", f"t{n}") for n in range(300)]
    numbers = np.arange(300) + 50 * (np.arange(300) >= 100)  # a gap after s99
    joined = vary(pairs, numbers, "neighbours@1")
    counts = set()
    for n, (source, target) in enumerate(joined):
        count = len(source.split())
        counts.add(count)
        assert source == " ".join(f"s{i}" for i in range(n, n + count))
        assert target == source.replace("s", "t")
        assert count > 1 or n in (99, 299)
        assert not n <= 99 < n + count - 1
    assert counts == {1, 2, 3}


def test_symbols_stay_and_lines_of_different_tags_are_not_joined():
    tags = ["<2de>", "<bt>"]
    pairs = [
        ("<2de> <bt>one two three", "eins zwei drei"),
        ("<2de> <bt>four", "vier"),
        ("<bt> five", "fünf"),
        ("six <bt> seven", "sechs sieben"),
    ]
    every = ALL.replace("0.5", "1")
    for seed in range(10):
        varied = vary(pairs, augment=every, seed=seed, symbols=tags)
        assert varied[0][0].startswith("<2de> <bt>")
        assert varied[3:] == pairs[3:]
        for (source, _), (original, _) in zip(varied, pairs, strict=True):
            symbols = [s for s in re.findall("<.*?>", source) if s not in OWN]
            assert symbols == re.findall("<.*?>", original)
        joined = vary(pairs, augment="neighbours@1", seed=seed, symbols=tags)
        assert joined[0] == ("<2de> <bt>one two three four", "eins zwei drei vier")
        assert joined[1:] == pairs[1:]
    one_sided = [("", "Ein Hund bellt."), (" ", "x"), ("A dog", "")]
    assert vary(one_sided, augment=every) == one_sided


def test_a_line_may_have_placeholders_and_terms_and_no_other_symbols():
    pairs = [
        ("<bt> {a}: one dog", "{a}: eins Hund"),
        ("one <bt> {a}", "eins {a}"),
        ("one <ph1> {a}", "eins <ph1> {a}"),
    ]
    varied = vary(pairs, augment="placeholders@1,terms@1", symbols=["<bt>"])
    source, target = varied[0]
    symbol, _, target_text = target.partition(":")
    assert symbol in SYMBOLS
    assert re.fullmatch(" (eins|BARKS) (Hund|DOG|BARKS|eins)", target_text)
    assert source.startswith(f"<bt> {symbol}:")
    assert "<is> " in source
    assert varied[1] is pairs[1]
    # Those of the text are not mixed with new ones.
    assert varied[2] == ("<term> one<is> eins</term> <ph1> {a}", "eins <ph1> {a}")
    # Every other augmentation keeps away from them, as from all symbols.
    assert vary(pairs[2:], augment="typos@1,case@1") == pairs[2:]


def test_what_terms_need_is_learned_once_for_a_text(tmp_path, monkeypatch):
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    lines = [f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(676)] * 3
    corpus = Corpus(
        *("x", "x", "en", "de"),
        # What training leaves out for its score teaches nothing.
        lambda: (
            [LowScore((f"low{line}", f"LOW{line}")) for line in lines]
            + [(line, line.upper()) for line in lines]
        ),
        lambda: "text",
    )
    config = DataConfig(augment="terms@0.5", symbols=",".join(MARKS))
    learned = variation_of(config, [corpus], None).text
    assert learned.learned["terms"]["wordaz"] == ["WORDAZ"]
    assert "lowwordaz" not in learned.learned["terms"]
    lines.clear()  # its fingerprint is the same, so it is not read again
    assert variation_of(config, [corpus], None).text == learned
    # Another function, of the user's, may have the name.
    own_terms = dataclasses.replace(TRAINABLE["terms"], learn=lambda _: {"a": ["b"]})
    monkeypatch.setitem(TRAINABLE, "terms", own_terms)
    relearned = variation_of(config, [corpus], None).text
    assert relearned.learned["terms"] == {"a": ["b"]}


def test_lines_are_pinned():
    """A run that is continued by a later version has to see the same text."""
    source = "The old man's dog barks at 1,000 cats, loudly."
    pairs = [(source, "x"), ("Next.", "y")]
    copied = [("One dog of Anna has {n} cats.", "Anna hat {n} Hund, eins Katzen.")]
    texts = {"placeholders": copied, "terms": copied}
    lines = {
        name: vary(texts.get(name, pairs), augment=f"{name}@1")[0]
        for name in AUGMENTATIONS
    }
    assert lines == {
        "placeholders": (
            "One dog of Anna has <ph6> cats.",
            "Anna hat <ph6> Hund, eins Katzen.",
        ),
        "terms": (
            "One<term> dog<is> DOG</term> of Anna has {n} cats.",
            "Anna hat {n} DOG, eins Katzen.",
        ),
        "neighbours": ("The old man's dog barks at 1,000 cats, loudly. Next.", "x y"),
        "case": ("The Old Man's Dog Barks At 1,000 Cats, Loudly.", "x"),
        "typos": ("The old man's fog bbarks at 1,000 cats, loudly.", "x"),
        "punctuation": ("The old man's dog barks at 1,000 cats loudly.", "x"),
        "white_space": ("\xa0The old man's dog barks at 1,000 cats, loudly.", "x"),
        "copy": ("Kovorba The old man's dog barks at 1,000 cats, loudly.", "Kovorba x"),
    }


# -------------------------------------------------------------------- noise on words

# Different words, so that a word's place is known wherever it goes.
NUMBERED = st.integers(0, 30).map(lambda n: [f"w{i}" for i in range(n)])


@settings(max_examples=60)
@given(
    NUMBERED,
    st.tuples(st.integers(0, 1 << 40), st.integers(1, 1 << 40)),
    st.sampled_from([0.01, 0.3, 0.99]),
    st.integers(1, 5),
)
def test_each_noise_obeys_its_law(words, keys, share, distance):
    def noised(name, amount):
        return add_noise(" ".join(words), [WordNoise(name, amount)], *keys).split()

    moved = noised("swap", distance)
    assert Counter(moved) == Counter(words)
    assert all(abs(words.index(w) - i) <= distance for i, w in enumerate(moved))
    dropped = noised("drop", share)
    assert dropped == [word for word in words if word in dropped]
    assert bool(dropped) == bool(words)
    blanked = noised("blank", share)
    assert all(new in (old, BLANK) for old, new in zip(words, blanked, strict=True))


def test_noise_comes_as_often_as_it_should():
    """Of 20,000 words; five standard deviations of a share of 0.1 are 0.011."""
    lines = [" ".join(f"w{i}" for i in range(20))] * 1_000

    def all_of(noise):
        return [add_noise(w, [noise], 3, n).split() for n, w in enumerate(lines, 1)]

    dropped = sum(map(len, all_of(WordNoise("drop", 0.1))))
    assert dropped / 20_000 == pytest.approx(0.9, abs=0.011)
    blanks = sum(words.count(BLANK) for words in all_of(WordNoise("blank", 0.1)))
    assert blanks / 20_000 == pytest.approx(0.1, abs=0.011)
    moved = all_of(WordNoise("swap", 3))
    shifts = {int(w[1:]) - i for words in moved for i, w in enumerate(words)}
    assert shifts == {*range(-3, 4)}


def test_noise_is_of_the_seed_and_the_line_alone():
    noises = parse_noise("drop@0.2,blank@0.2,swap@3")
    line = " ".join(f"w{i}" for i in range(15))
    noisy = {(s, n): add_noise(line, noises, s, n) for s in (0, 1) for n in (1, 2, 3)}
    assert len(set(noisy.values())) == 6
    assert noisy == {key: add_noise(line, noises, *key) for key in reversed(noisy)}
    other_order = parse_noise("swap@3,blank@0.2,drop@0.2")
    assert any(add_noise(line, other_order, *key) != noisy[key] for key in noisy)


@pytest.mark.parametrize(
    ("parse", "written", "message"),
    [
        (text_variation_of, "typo@0.1", "no augmentation 'typo'; did you mean 'typos'"),
        (text_variation_of, "typos@nan", "no valid share; want typos@SHARE"),
        (text_variation_of, "typos@1.5", "at most 1"),
        (text_variation_of, "typos,typos@0.2", "names typos twice"),
        (
            text_variation_of,
            "terms@0.1",
            "terms writes <term>, <is>, </term>, and config.data.symbols='' does not "
            "have them: the tokenizer would split them; want --config.data.symbols="
            "'<term>,<is>,</term>'",
        ),
        (parse_noise, "dorp@0.1", "did you mean 'drop'"),
        (parse_noise, "drop", "want drop@AMOUNT, the share of words, above 0"),
        (parse_noise, "swap@0", "want swap@AMOUNT, a number of places, at least 1"),
    ],
)
def test_fields_are_read_and_mistakes_are_named(parse, written, message):
    expected = TextVariation({"case": 0.05, "typos": 0.1})
    assert text_variation_of("typos, case@0.05") == expected
    assert text_variation_of("") is None
    with pytest.raises(UserError, match=re.escape(message)):
        parse(written)
