"""Texts are taken apart without a loss; long ones at the best places."""

import sys
import textwrap
import types
import zlib

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_jax.extensions.text import sentences
from t2t_jax.extensions.text.sentences import split, split_long
from t2t_jax.io.errors import UserError

TEXTS = st.text(
    st.sampled_from(list("ab M.19!?。…”\"' \t\n\r-—,;:日本é̈\u200d👩🏽\ud83d\ude00")),
    max_size=60,
)


def parts_of(text, spans):
    """The texts of spans, which are checked to leave out nothing but white space."""
    ends = [0, *(end for _, end in spans)]
    begins = [*(begin for begin, _ in spans), len(text)]
    assert not "".join(text[e:b] for e, b in zip(ends, begins, strict=True)).strip()
    parts = [text[begin:end] for begin, end in spans]
    assert all(part and part == part.strip() for part in parts)
    return parts


@pytest.mark.parametrize(
    ("language", "marked"),
    [
        ("en", "Mr. Smith paid $3.50 to the U.S. Steel Inc. on Monday.|Did he?  |No!"),
        ("en", "“Is it?” he asked.|Wait... what?|See Fig. 3. |It is e.g. here."),
        ("de", "Dr. Müller kam am 3. Oktober, z. B. um 5 Uhr.|\tDas war's."),
        ("de-AT", "Ende des 19. Jahrhunderts war das so.|Im 20. Jahrhundert nicht."),
        ("fr", "Hier, M. Dupont a parlé.|« Oui ! » dit-il.|Et toi ?"),
        ("ja", "お元気ですか？|はい。|元気です！"),
        ("zh", "你好。|你怎么样？"),
        ("xx", "One of an unknown language.|Another one."),
    ],
)
def test_sentences_end_where_a_reader_ends_them(language, marked):
    joint = "" if language in ("ja", "zh") else " "
    text = marked.replace("|", joint)
    expected = [part.strip() for part in marked.split("|")]
    assert parts_of(text, [*split(text, language)]) == expected


@given(TEXTS, st.integers(1, 30), st.integers(0, 3))
@example("a—\u0308b。\u0308", 2, 0)  # a mark after a sign to split at
@settings(max_examples=150)
def test_each_part_of_a_long_text_fits_and_nothing_is_lost(text, limit, seed):
    def fits(part):
        if seed == 0:
            return len(part) <= limit
        return len(part) < 5 or zlib.crc32(repr((seed, part)).encode()) % 3 == 0

    characters = regex.compile("[\ud800-\udbff][\udc00-\udfff]̈*|\\X")
    starts = {match.start() for match in characters.finditer(text)}
    spans = split_long(text, fits)
    for part, (begin, _) in zip(parts_of(text, spans), spans, strict=True):
        assert fits(part) or len(characters.findall(part)) == 1
        assert begin in starts or text[begin - 1].isspace()


def test_a_text_is_split_at_the_best_place():
    text = "One two three four five, six seven eight; nine ten eleven twelve. Now rest."
    for limit, expected in [
        (99, [text]),
        (70, [text[:65], text[66:]]),
        (45, [text[:41], text[42:65], text[66:]]),
        (30, [text[:24], text[25:41], text[42:65], text[66:]]),
    ]:
        spans = split_long(text, lambda part, limit=limit: len(part) <= limit)
        assert parts_of(text, spans) == expected
    halves = split_long("aaaa bbbb cccc dddd", lambda part: len(part) <= 15)
    assert halves == [(0, 9), (10, 19)]
    assert split_long("日本語の文。次の文", lambda part: len(part) <= 6) == [
        (0, 6),
        (6, 9),
    ]
    assert split_long("", lambda part: False) == []


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(9, 40))
@settings(max_examples=50)
def test_parts_are_as_few_and_as_similar_as_can_be(lengths, limit):
    text = " ".join("a" * length for length in lengths)
    parts = parts_of(text, split_long(text, lambda part: len(part) <= limit))

    def fewest(limit):
        return len(textwrap.wrap(text, limit, break_long_words=False))

    assert len(parts) == fewest(limit)
    longest = max(map(len, parts))
    assert longest == max(lengths) or fewest(longest - 1) > len(parts)


@pytest.mark.parametrize("window", [40, 90])
def test_long_texts_are_split_in_windows(window, monkeypatch):
    text = "Mr. Smith saw 3.50 dogs. Did he? 你好。你怎么样？ “Oh!” he said. " * 5
    unsplit = [*split(text, "en")]
    monkeypatch.setattr(sentences, "WINDOW", window)
    assert [*split(text, "en")] == unsplit


HOSTILE = ["a", "A. ", "中", "中文。", ".", "“A. ", "(A) ", "\n", "e\u0301", "a,"]


@pytest.mark.parametrize("part", HOSTILE)
def test_the_work_grows_with_the_length_of_a_text(part, monkeypatch):
    module, work = sentences.library("sentencex", ""), 0

    def find(language, text):
        nonlocal work
        boundaries = module.get_sentence_boundaries(language, text)
        work += len(text) * len(boundaries)  # the library's, at worst
        return boundaries

    def fits(text):
        nonlocal work
        work += len(text)
        return len(text) < 200

    counts = []
    fake = types.SimpleNamespace(get_sentence_boundaries=find)
    monkeypatch.setattr(sentences, "library", lambda *_: fake)
    for size in (2_500, 10_000):
        work = 0
        spans = [*sentences.sentences((part * size)[:size], "en", fits)]
        assert len(spans) <= size
        counts.append(work)
    assert counts[1] <= 6 * counts[0]


def test_without_the_library_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(UserError, match=r"pip install 't2t_jax\[text\]'"):
        [*split("One. Two.", "en")]
