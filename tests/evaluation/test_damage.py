"""Damaged test sets: what each damage does, where scores go, what is measured."""

import html

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax import UserError
from t2t_jax.data.corpus import Corpus, open_corpus
from t2t_jax.extensions.data.one_sided_text import tagged
from t2t_jax.extensions.evaluation import robustness
from t2t_jax.extensions.evaluation.robustness import damaged, damages_named
from t2t_jax.extensions.text.damage import DAMAGES
from tests.small_run import write_pairs

OF_BOTH = {"capitals", "codes", "joined"}
WORDS = ["Über", "don't", "3.5", "“well”", "naïve,", "{x}", "walking", "B&B", "-", "Я"]
LINES = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
SETS = st.lists(st.tuples(LINES, LINES), min_size=1, max_size=9)


def damaged_pairs(name, pairs):
    corpus = Corpus("a set", "set", "en", "de", lambda: iter(pairs), str)
    return [*damaged(corpus, name).pairs()]


def changed(name, *lines):
    """Damaged sources."""
    pairs = damaged_pairs(name, [(line, "Ein Satz.") for line in lines])
    return [source for source, _ in pairs]


@given(pairs=SETS)
@settings(max_examples=20)
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_keeps_lines_and_depends_on_the_line_alone(name, pairs):
    damaged_set = damaged_pairs(name, pairs)
    assert len(damaged_set) == len(pairs)
    for n, (pair, damaged_pair) in enumerate(zip(pairs, damaged_set, strict=True)):
        assert "\n" not in "".join(damaged_pair)
        if not all(map(str.strip, pair)):
            assert damaged_pair == pair
        if name not in OF_BOTH:
            assert damaged_pair[1] == pair[1]
        if name != "joined":  # other lines mean nothing
            assert damaged_pairs(name, [("x", "y")] * n + [pair])[n] == damaged_pair


def test_each_damage_is_what_it_is_called():
    line = "“Don't,” said the well-known man - 3.5 times, for 50% more, no?"
    (bare,) = changed("no_punctuation", line)
    assert bare == "Don't said the well-known man 3.5 times for 50% more no"
    (missing,) = changed("missing_spaces", line)
    assert missing.replace(" ", "") == line.replace(" ", "")
    assert len(missing) < len(line)
    (extra,) = changed("extra_spaces", line)
    assert " ".join(extra.split()).replace(" ,", ",").replace(" ?", "?") == line
    lines = [f"walking number {n} through Überlingen" for n in range(40)]
    for before, after in zip(lines, changed("scrambled", *lines), strict=True):
        for word, damaged_word in zip(before.split(), after.split(), strict=True):
            assert sorted(word) == sorted(damaged_word)
            assert (word[0], word[-1]) == (damaged_word[0], damaged_word[-1])
    for before, after in zip(lines, changed("homoglyphs", *lines), strict=True):
        differ = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert differ
        assert all(a.isascii() and not b.isascii() for a, b in differ)
    assert changed("no_diacritics", "Größe Über naïve Señor Å") == [
        "Groesse Ueber naive Senor A"
    ]


def test_encodings_can_be_undone():
    line = "Die Katze “schläft” & don't — €5 für Ārija"
    (escaped,) = changed("entities", line)
    assert "&auml;" in escaped
    assert html.unescape(escaped).replace("\u00a0", " ") == line
    (wrong,) = changed("mojibake", line)
    assert "schlÃ¤ft" in wrong
    undone = b"".join(
        c.encode("latin-1" if "\x7f" < c < "\xa0" else "cp1252") for c in wrong
    )
    assert undone.decode().replace("\u00a0", " ").replace("’", "'") == line


def test_both_sides():
    pairs = [(f"Source {n}.", f"Ziel {n} ß.") for n in range(60)]
    assert damaged_pairs("capitals", pairs)[3] == ("SOURCE 3.", "ZIEL 3 SS.")
    joined = damaged_pairs("joined", pairs)
    assert joined[3] == ("Source 3. Source 4.", "Ziel 3 ß. Ziel 4 ß.")
    assert joined[-1] == pairs[-1]
    added = set()
    for pair, damaged_pair in zip(pairs, damaged_pairs("codes", pairs), strict=True):
        parts = [
            o.replace(line, "") for line, o in zip(pair, damaged_pair, strict=True)
        ]
        assert parts[0] == parts[1] != ""
        added.add(parts[0])
    assert len(added) == 60


def test_a_copy_has_a_name_of_its_own_and_keeps_its_tag(tmp_path):
    write_pairs(tmp_path, some=[("A dog.", "Ein Hund.")])
    corpus = open_corpus("some", "en", "de", str(tmp_path))
    with_tag = tagged(corpus, "en-de", "<2de>")
    copy = damaged(with_tag, "capitals")
    assert [*copy.pairs()] == [("<2de> A DOG.", "EIN HUND.")]
    assert (copy.name, copy.subtask) == ("en-de.some+capitals", "en-de")
    lower_case = damaged(corpus, "lower_case")
    assert len({c.fingerprint() for c in (corpus, with_tag, copy, lower_case)}) == 4
    assert "same damage" in copy.compare_with
    with pytest.raises(UserError, match="no damage 'typos'; did you mean 'key_typos'"):
        damages_named("typos,codes")
    # What is copied on both sides is counted.
    pairs = [("See B-52 (at www.a.org), 7 7.", "Siehe B-52 bei www.a.org: 7.")]
    assert robustness.copied_share(["[B-52] und 7 und 7, www.a.org."], pairs) == 1
    assert robustness.copied_share(["B-53 7"], pairs) == pytest.approx(1 / 3)
