"""Units: words and signs of a text."""

import pytest

from t2t_jax.text.units import units


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
    found = units(text, ["<ph1>"])
    assert [text[begin:end] for begin, end in found] == expected
