"""Each rule finds what it is for, and leaves alone what only looks like it."""

import os
import subprocess
import sys

import numpy as np
import pytest

from t2t_jax.data.corpus import LowScore
from t2t_jax.text.view import View
from t2t_jax.tools.doctor import relatedness
from t2t_jax.tools.doctor.knowledge import Knowledge
from t2t_jax.tools.doctor.rules import RULES, dropping, with_limits

GOOD = ("A baker should drive to the office.", "Ein Bäcker sollte ins Büro fahren.")
S, T = GOOD
# Rule -> (pairs that it accuses, pairs that it does not).
CASES = {
    "low_score": ([LowScore(GOOD)], [GOOD]),
    "empty": (
        [("", T), (S, " \u200b\t"), (S, "@@")],
        [GOOD, ("%s", "%s"), ("OK", "–")],
    ),
    "copied": (
        [(S, S), (T, T), ("The old man is in the house", "The old man is in house")],
        [GOOD, ("Access2Base", "Access2Base"), ("Plateau de Bure",) * 2],
    ),
    "swapped": ([(T, S)], [GOOD, (S, S), ("GIMP 2.10", "GIMP 2.10")]),
    "wrong_side": (
        [(S, "The men heard their dogs."), ("Die Männer hörten das Kind.", T)],
        [GOOD, (S, S), (S, "Der Film The Boy ist neu."), ("Sky and I", "Sky and Jo")],
    ),
    "foreign_script": (
        [(S, "Пекарь едет на работу."), ("パン屋は事務所に行く", T)],
        [GOOD, (S, "Ein Bäcker sollte ins Büro fahren (Ω, 5 µm)."), ("1", "2")],
    ),
    "third_language": (
        [(S, "Le boulanger est dans une maison pour les enfants.")],
        [GOOD, (S, "Der Film heißt Le Voyage, und das ist schön.")],
    ),
    "unlike_side": ([(S, "xq zvk jqx wvvk qqzx xkcd zzyx vkq")], [GOOD, ("%s", "qqx")]),
    "unrelated": (
        [("Did Peter visit nurses last year?", "Die Männer hörten ihre Hunde.")],
        [GOOD, ("Yes.", "Ein Hund.")],
    ),
    "truncated": (
        [("The men heard their dogs, and the mothers bake a cake.", "Die Männer")],
        [GOOD, ("The men heard their dogs.", "Die Männer hörten sie.")],
    ),
    "ratio": ([(S, T + " " + T + " Und so geht es immer weiter."), (S * 3, T)], [GOOD]),
    "length": ([(S * 40, T * 40)], [GOOD]),
    "numbers": (
        [("It costs 25 or 30.", "Es kostet 25 oder 31."), ("In 1984.", "Damals.")],
        [("1,000.50 on 2001-02-28", "1.000,50 am 28.02.2001"), ("10,000", "10 000")]
        + [("in 2000", "２０００年に"), ("in 1999", "عام ١٩٩٩")]
        + [("Two cats", "2 Katzen")],
    ),
    "markup": (
        [("%s of %d", "%s von"), ("<b>x</b>", "x"), ("See https://a.org", "Siehe")],
        [("%1$s of %2$d", "%2$d von %1$s"), ("100 % of it", "100 % davon")]
        + [('<a href="en">x</a>', '<a href="de">x</a>')]
        + [("See https://a.org.", "Siehe https://a.org")],
    ),
    "punctuation": (
        [("Is he here?", "Er ist da."), ("He is here (now).", "Er ist jetzt da.")],
        [('He said "no."', "Er sagte „nein“."), GOOD, ("OK", "Gut.")]
        + [("Is he here?", "彼 は ここ に いますか。")],
    ),
    "repetition": (
        [(S, "Ein Bäcker Bäcker Bäcker Bäcker fährt."), ("in the in the in the", T)],
        [GOOD, ("No, no, no!", "Nein, nein, nein!"), ("very very", "sehr")]
        + [("1 1 1 1", "")],
    ),
    "mojibake": (
        [(S, T.encode().decode("cp1252")), ("donâ€™t", "nicht")],
        [GOOD, (S, "„Spaß“ ließ… Ã"), ("Ångström", "ÂÊ")],
    ),
    "lost_letters": (
        [(S, "Ein B�cker"), (S, "Ein B?cker")],
        [GOOD, ("Who?", "Wer?"), ("https://a.org/x?y", "a?b=c")],
    ),
    "double_escapes": ([("&amp;quot;a&amp;quot;", "a")], [("&amp; &quot;", "&")]),
    "entities": ([("&quot;a&quot;", "a")], [("a & b;", "R&D; x"), GOOD]),
    "odd_characters": (
        [("a\u200bb", "x"), ("a", "x\x07"), ("\ue001", "")],
        [GOOD, ("a\tb", "‌می‌خواهم"), ("👩‍👧", "é")],
    ),
    "decomposed": (
        [("Gru\u0308n", "x"), ("a", "cafe\u0301")],
        [
            GOOD,
            ("Grün", "café"),
            ("हिन्दी \u0958", "한국어 日本が"),
            ("x\u0301", "👩‍👧"),
        ],
    ),
    "mixed_scripts": ([("genieβen", "x"), (S, "Вäcker")], [("y = Σi", "Δx"), GOOD]),
}


def accused(name, pairs, knowledge):
    view = View(pairs)
    view.log_odds_p = knowledge.relatedness.log_odds_p(view)
    return {*RULES[name].accuse(view, knowledge, RULES[name].limits)}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_finds_what_it_is_for(name, knowledge):
    bad, good = CASES[name]
    assert accused(name, [*bad, *good], knowledge) == {*range(len(bad))}


def test_hardly_a_pair_of_a_clean_text_is_accused(text, knowledge):
    limits = {"duplicate", "near_duplicate", "other_target", "overlap", "near_overlap"}
    view = View(text)
    view.log_odds_p = knowledge.relatedness.log_odds_p(view)
    for name, rule in RULES.items():
        if rule.check and name not in limits:
            accusations = rule.accuse(view, knowledge, rule.limits)
            assert len(accusations) <= len(text) * 0.01, (name, accusations)


def test_lines_without_a_language_are_none_of_another(text):
    numbers = [("7 12345 67", "8 12345 678")] * 40
    pairs = [*text, *numbers]
    knowledge = Knowledge([pairs[at : at + 4] for at in range(0, len(pairs), 4)], [])
    assert not accused("third_language", numbers, knowledge)


def test_overlap_counts_a_short_line_only_with_both_sides(knowledge):
    line = "the OLD captain has sold the green boat, to a friend"
    pairs = [(line, "Anders."), ("Yes!", "Nein"), ("yes", "ja")]
    assert accused("overlap", pairs, knowledge) == {0, 2}


def test_related_pairs_have_higher_odds_than_crossed_ones(text, knowledge):
    odds = knowledge.relatedness.log_odds_p(View(text))
    crossed = [(s, text[n - 7][1]) for n, (s, _) in enumerate(text)]
    wrong = knowledge.relatedness.log_odds_p(View(crossed))
    assert np.mean(odds > 0) > 0.95
    assert np.mean(wrong < 0) > 0.85


def test_limits_and_drops_are_changed_by_name():
    assert with_limits(["ratio.z=8"])["ratio"] == RULES["ratio"].limits | {"z": 8.0}
    assert RULES["ratio"].limits["z"] != 8
    default = dropping("")
    assert dropping("numbers,-duplicate") == default - {"duplicate"} | {"numbers"}
    assert dropping("none, numbers") == {"numbers"}


def test_a_lexicon_has_words_of_the_whole_sample(monkeypatch):
    # The second half is of another domain, and there are more cells than fit.
    half_a = [(["red", f"a{n % 50}"], ["rot", f"b{n % 50}"]) for n in range(300)]
    half_b = [(["blue", f"c{n % 50}"], ["blau", f"d{n % 50}"]) for n in range(300)]
    monkeypatch.setattr(relatedness, "CELLS", 500)
    learnt = relatedness.Lexicon(half_a + half_b)
    assert "b8" in learnt.translations[0]["a8"]
    assert "d8" in learnt.translations[0]["c8"]
    assert "d8" not in learnt.translations[0]["a8"]


def test_evidence_does_not_depend_on_the_order_of_sets():
    """It is the same in all digits, whatever the hashes of words are."""
    program = (
        "from t2t_jax.tools.doctor.relatedness import Lexicon\n"
        "line = [f'w{n}' for n in range(40)]\n"
        "pairs = [(line[:n], line[:n]) for n in range(1, 41)] * 2 + [([], [])] * 9\n"
        "print(Lexicon(pairs).evidence(line, line))"
    )
    command = [sys.executable, "-c", program]
    evidence = {
        subprocess.check_output(command, env=os.environ | {"PYTHONHASHSEED": seed})
        for seed in "12"
    }
    assert len(evidence) == 1
