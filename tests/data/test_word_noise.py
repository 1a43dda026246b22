"""Laws of noise on words."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.io.errors import UserError
from t2t_jax.text.word_noise import BLANK, NOISES, WordNoise, add_noise, parse_noise

# Different words, so that a word's place is known wherever it goes.
WORDS = st.integers(0, 30).map(lambda n: [f"w{i}" for i in range(n)])
KEYS = st.tuples(st.integers(0, 1 << 40), st.integers(1, 1 << 40))
SHARES = st.sampled_from([0.01, 0.3, 0.99])


def noised(words, name, amount, keys):
    return add_noise(" ".join(words), [WordNoise(name, amount)], *keys).split()


@settings(max_examples=60)
@given(WORDS, KEYS, SHARES, st.integers(1, 5))
def test_each_noise_obeys_its_law(words, keys, share, distance):
    moved = noised(words, "swap", distance, keys)
    assert Counter(moved) == Counter(words)
    assert all(abs(words.index(w) - i) <= distance for i, w in enumerate(moved))
    left = noised(words, "drop", share, keys)
    assert left == [word for word in words if word in left]
    assert bool(left) == bool(words)
    blanked = noised(words, "blank", share, keys)
    assert all(new in (old, BLANK) for old, new in zip(words, blanked, strict=True))


def test_noise_comes_as_often_as_it_should():
    """Of 20,000 words; five standard deviations of a share of 0.1 are 0.011."""
    lines = [" ".join(f"w{i}" for i in range(20))] * 1_000

    def all_of(noise):
        return [add_noise(w, [noise], 3, n).split() for n, w in enumerate(lines, 1)]

    left = sum(map(len, all_of(WordNoise("drop", 0.1))))
    assert left / 20_000 == pytest.approx(0.9, abs=0.011)
    blanks = sum(words.count(BLANK) for words in all_of(WordNoise("blank", 0.1)))
    assert blanks / 20_000 == pytest.approx(0.1, abs=0.011)
    moved = all_of(WordNoise("swap", 3))
    shifts = {int(w[1:]) - i for words in moved for i, w in enumerate(words)}
    assert shifts == {*range(-3, 4)}


def test_noise_is_of_the_seed_and_the_line_alone():
    noises = parse_noise("drop@0.2,blank@0.2,swap@3")
    line = " ".join(f"w{i}" for i in range(15))
    found = {(s, n): add_noise(line, noises, s, n) for s in (0, 1) for n in (1, 2, 3)}
    assert len(set(found.values())) == 6
    backwards = {key: add_noise(line, noises, *key) for key in reversed(found)}
    assert found == backwards
    streams = [kind.stream for kind in NOISES.values()]
    assert len({*streams}) == len(streams)  # no kind tells what another draws


def test_the_order_is_that_of_writing():
    one, other = (
        [add_noise("a b c d e f", parse_noise(written), 0, n) for n in range(9)]
        for written in ("swap@3,drop@0.5", "drop@0.5,swap@3")
    )
    assert one != other
    noises = parse_noise("blank@0.99, drop@0.5")
    assert [str(noise) for noise in noises] == ["blank@0.99", "drop@0.5"]


def test_no_noise_changes_no_character():
    assert add_noise(" a  b\t", (), 0, 1) == " a  b\t"
    assert add_noise(" \t ", parse_noise("drop@0.1"), 0, 1) == ""


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("dorp@0.1", "did you mean 'drop'"),
        ("drop", "noise 'drop': want drop@AMOUNT, the share of words, above 0"),
        ("drop@1.0", "noise 'drop@1.0': want drop@AMOUNT"),
        ("blank@0.0", "want blank@AMOUNT"),
        ("swap@1.5", "want swap@AMOUNT, a number of places, at least 1"),
        ("swap@0", "want swap@AMOUNT"),
        ("swap@3,drop@.1,swap@2", "names swap twice"),
        ("swap@3,,drop@.1", "no noise ''"),
    ],
)
def test_what_is_no_noise(written, told):
    with pytest.raises(UserError) as error:
        parse_noise(written)
    assert told in str(error.value)
