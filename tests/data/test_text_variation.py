"""Augmented training text: pure for each line, the right side, the right share."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.variation import TextVariation, text_variation_of
from t2t_jax.io.errors import UserError
from t2t_jax.text.counter_random import Stream, hashed
from t2t_jax.text.damage import AUGMENTATIONS, case, neighbours, typos

ALL = ",".join(f"{name}@0.5" for name in AUGMENTATIONS)
WORDS = ["A", "man's", "“dog”", "barks", "loudly,", "Über", "1,000", "IBM", "{line}"]
LINES = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
SIDES = st.tuples(LINES, LINES.map(str.swapcase))
CHUNKS = st.lists(SIDES, min_size=1, max_size=30)
PAIRS = [(f"The dog number {n} barks.", f"Hund {n} bellt.") for n in range(1_000)]


def vary(pairs, numbers=None, augment=ALL, seed=3, epoch=1, **options):
    numbers = np.arange(len(pairs)) if numbers is None else np.asarray(numbers)
    return text_variation_of(augment, **options)(pairs, numbers, seed, epoch)


def draws(n):
    return Stream(int(hashed(n)))


@given(CHUNKS, st.integers(0, 9), st.integers(0, 9), st.data())
@settings(max_examples=20)
def test_a_line_depends_on_its_number_and_the_next_lines_alone(
    pairs, seed, epoch, data
):
    whole = vary(pairs, seed=seed, epoch=epoch)
    assert len(whole) == len(pairs)
    begin = data.draw(st.integers(0, len(pairs) - 1))
    part = vary(pairs[begin:], range(begin, len(pairs)), seed=seed, epoch=epoch)
    assert part == whole[begin:]
    # Without neighbours a line needs no other line, and order means nothing.
    some = data.draw(st.permutations(range(len(pairs))))
    alone = ALL.replace("neighbours@0.5,", "")
    whole = vary(pairs, augment=alone, seed=seed, epoch=epoch)
    shuffled = vary([pairs[i] for i in some], some, alone, seed, epoch)
    assert shuffled == [whole[i] for i in some]
    for line in (line for pair in whole for line in pair):
        assert "\n" not in line


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_each_changes_its_share_of_lines_and_its_side(name):
    varied, other = (vary(PAIRS, augment=f"{name}@0.2", epoch=e) for e in (1, 2))
    changed = [i for i, pair in enumerate(varied) if pair is not PAIRS[i]]
    # Five standard deviations of a binomial count; `case` may find nothing to change.
    assert len(changed) == pytest.approx(200, abs=5 * 13)
    assert all(varied[i][0] != PAIRS[i][0] for i in changed)
    targets = {i for i in changed if varied[i][1] != PAIRS[i][1]}
    assert bool(targets) == AUGMENTATIONS[name].changes_target
    again = [i for i in changed if other[i] is not PAIRS[i]]
    assert len(again) == pytest.approx(len(changed) / 5, abs=5 * 6)


def test_one_augmentation_does_not_move_the_choice_of_another():
    alone, beside = (
        [a[1] != b[1] for a, b in zip(vary(PAIRS, augment=names), PAIRS, strict=True)]
        for names in ("copy@0.2", "copy@0.2,typos@0.5,white_space@0.3")
    )
    assert alone == beside
    assert sum(alone) > 125


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
    pair = ("a", "b")
    assert neighbours(pair, draws(0), [("", "x")]) is pair


def test_capitals_are_of_both_sides_and_other_cases_of_the_source():
    pair = ("A dog doesn't bark.", "Ein Hund bellt nicht.")
    seen = {case(pair, draws(n), ()) for n in range(40)}
    assert seen == {
        ("A DOG DOESN'T BARK.", "EIN HUND BELLT NICHT."),
        ("a dog doesn't bark.", pair[1]),
        ("A Dog Doesn't Bark.", pair[1]),
    }


def test_what_is_copied_stands_on_both_sides_and_only_words_get_typos():
    line = ("See www.a.org/x or B-52 on 24.12.2024 (maybe).", "Siehe dort.")
    for n in range(60):
        ((source, target),) = vary([line], [n], "copy@1")
        (added,) = re.findall(r"[^\s():]\S*[^\s():.]", target.replace("Siehe dort", ""))
        assert added not in line[0]
        assert added in source
        without = re.sub(r"[\s():]", "", source.replace(added, ""))
        assert without == re.sub(r"[\s():]", "", line[0])
        mistyped = typos(line[0], draws(n))
        assert mistyped != line[0]
        for kept in ("www.a.org/x", "B-52", "24.12.2024", "on", "or"):
            assert kept in mistyped.split()


def test_symbols_stay_and_lines_of_different_tags_are_not_joined():
    tags = ["<2de>", "<bt>"]
    pairs = [
        ("<2de> <bt>one two three", "eins zwei drei"),
        ("<2de> <bt>four", "vier"),
        ("<bt> five", "fünf"),
        ("six <bt> seven", "sechs sieben"),
        ("<2de>", "x"),
    ]
    for seed in range(10):
        every = ALL.replace("0.5", "1")
        varied = vary(pairs, augment=every, seed=seed, symbols=tags)
        assert varied[0][0].startswith("<2de> <bt>")
        assert varied[2][0].startswith("<bt> ")
        assert varied[3:] == pairs[3:]
        for (source, _), (before, _) in zip(varied, pairs, strict=True):
            assert re.findall("<.*?>", source) == re.findall("<.*?>", before)
        one_sided = [("", "Ein Hund bellt."), (" ", "x"), ("A dog", "")]
        assert vary(one_sided, augment=every, seed=seed) == one_sided
        joined = vary(pairs, augment="neighbours@1", seed=seed, symbols=tags)
        assert joined[0] == ("<2de> <bt>one two three four", "eins zwei drei vier")
        assert joined[1:] == pairs[1:]


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        ("typo@0.1", "no augmentation 'typo'; did you mean 'typos'"),
        ("typos@", "typos@ has no valid share; want typos@SHARE"),
        ("typos@0", "above 0"),
        ("typos@1.5", "at most 1"),
        ("typos@nan", "no valid share"),
        ("typos,typos@0.2", "names typos twice"),
    ],
)
def test_the_field_is_read_and_mistakes_are_named(augment, message):
    wanted = TextVariation({"case": 0.05, "typos": 0.1})
    assert text_variation_of("typos, case@0.05") == wanted
    assert text_variation_of("typos,case").changing_target == ["case"]
    assert text_variation_of("") is None
    with pytest.raises(UserError, match=re.escape(message)):
        text_variation_of(augment)


def test_lines_are_pinned():
    """A run that is continued by a later version has to see the same text."""
    source = "The old man's dog barks at 1,000 cats, loudly."
    pairs = [(source, "x"), ("Next.", "y")]
    lines = {name: vary(pairs, augment=f"{name}@1")[0] for name in AUGMENTATIONS}
    assert lines == {
        "neighbours": ("The old man's dog barks at 1,000 cats, loudly. Next.", "x y"),
        "case": ("The Old Man's Dog Barks At 1,000 Cats, Loudly.", "x"),
        "typos": ("The old man's fog bbarks at 1,000 cats, loudly.", "x"),
        "punctuation": ("The old man's dog barks at 1,000 cats loudly.", "x"),
        "white_space": ("\xa0The old man's dog barks at 1,000 cats, loudly.", "x"),
        "copy": ("Kovorba The old man's dog barks at 1,000 cats, loudly.", "Kovorba x"),
    }
