"""Units: words and signs of a text; spans of it where parts are replaced."""

import random

import pytest

from t2t_jax.text.units import inverse, map_span, splice, units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog, can't_x <ph1>!", ["A", "dog", ",", "can", "'", "t_x", "<ph1>", "!"]),
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा", "।"]),
        ("e\u0301a 1,5", ["e\u0301a", "1", ",", "5"]),
        ("我有一只猫。", ["我", "有", "一", "只", "猫", "。"]),
        ("カフェOK", ["カ", "フ", "ェ", "OK"]),
        ("ที่นี่", ["ที่", "นี่"]),
        (" \u2003\n", []),
    ],
)
def test_a_unit_is_a_word_or_a_sign(text, expected):
    spans = units(text)
    assert [text[begin:end] for begin, end in spans] == expected


def test_what_was_replaced_is_found_again():
    rng = random.Random(1)
    for _ in range(300):
        old, ends = "".join(rng.choices("abc", k=12)), sorted(rng.sample(range(13), 6))
        spans = [*zip(ends[::2], ends[1::2], strict=True)]
        new, edits = splice(old, spans, ["X" * rng.randrange(1, 4) for _ in spans])
        back = inverse(edits)
        for n in [n for n, letter in enumerate(new) if letter != "X"]:
            begin, end = map_span((n, n + 1), back)
            assert (end - begin, old[begin:end]) == (1, new[n])
            assert map_span((begin, end), edits) == (n, n + 1)
        for before, after in edits:
            assert map_span(after, back) == before
            assert map_span((after[0], after[0] + 1), back) == before
        assert map_span((0, len(new)), back) == (0, len(old))
