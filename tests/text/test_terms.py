"""Terms: found by words, files that contradict themselves, what became of them."""

import itertools
import random
import re
from collections import Counter, defaultdict

import pytest

from t2t_jax.extensions.text.terms import (
    Terms,
    annotate,
    annotated,
    check,
    report_lines,
)
from t2t_jax.extensions.text.terms import learn_lexicon as learn
from t2t_jax.io.errors import UserError
from t2t_jax.text.counter_random import Stream
from t2t_jax.text.units import inverse, map_span, splice

FILE = "cat\tKatze\ncat food\tKatzenfutter\n\nfood\tEssen\nC++\tC++\nBank\tBank AG\n"


@pytest.fixture
def read(tmp_path):
    def read(content):
        (tmp_path / "t.tsv").write_bytes(content.encode())
        return Terms(str(tmp_path / "t.tsv"))

    return read


def test_terms_are_whole_words_the_longest_first_in_their_case(read):
    terms = read("\ufeff" + FILE.replace("\n", "\r\n"))
    assert terms.count == 5
    for line, expected in {
        "a cat, cats concat": ["cat"],
        "cat  food or food": ["cat  food", "food"],
        "I know C++.": ["C++"],
        # A capital may be a small letter where a sentence begins, and only there.
        "Cat food! “Cat” Cat": ["Cat food", "Cat"],
        "my bank, the Bank": ["Bank"],
        "<ph1>cat<ph2> CAT": ["cat"],
        "": [],
    }.items():
        matches = terms.matches(line)
        assert [line[m.begin : m.end] for m in matches] == expected
    assert terms.phrases("cat food, cat, cat") == ("Katzenfutter", "Katze")
    assert read("a\tb\na\tb\n").count == 1  # twice alike does no harm
    assert read("a\u2028b\tc\n").matches("x a b") != []  # one line, not two


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\nc\n", "line 2: got 0 tabs, want 1: SOURCE<TAB>TARGET"),
        ("a\tb\t\n", "line 1: got 2 tabs"),
        ("\n\tb\n", "line 2: the source is empty"),
        ("a\t \n", "line 1: the target is empty; want both"),
        (
            "a b\tc\nx\ty\na  b\td\n",
            "line 3: 'a  b' is there before, too: 'c' in line 1",
        ),
        ("\n \n", "has no term; want SOURCE<TAB>TARGET"),
        ("a\tb <is> c\n", "line 1: has <is>, which is reserved; leave it out"),
    ],
)
def test_a_mistake_is_named_with_its_lines(read, content, message):
    with pytest.raises(UserError, match=re.escape(f"t.tsv, {message}")) as error:
        read(content)
    assert "--terms: " in str(error.value)


@pytest.mark.parametrize(
    ("target", "translation", "outcome"),
    [
        ("Hund", "Der Hund bellt.", "exact"),
        ("neuer Hund", "Neuer Hund da.", "exact"),  # at the beginning
        ("neuer Hund", "Ein Neuer Hund.", "inflected"),
        ("Hund", "Die Hunde bellen.", "inflected"),
        ("Haus", "zwei Häuser", "inflected"),
        ("rote Katze", "mit roten Katzen", "inflected"),
        ("rote Katze", "rote, Katze", "missing"),
        ("Hund", "Hundehütte", "missing"),  # 4 letters of 10
        ("neu", "neue", "missing"),  # too short a word for the rule
        ("Hund", "Hunter", "missing"),
        ("Katze", "", "missing"),
    ],
)
def test_what_became_of_a_term(read, target, translation, outcome):
    [checked] = check(read(f"x\t{target}\n").matches("x"), translation)
    assert checked.outcome == outcome
    assert (checked.span is None) == (outcome == "missing")


def test_each_term_needs_a_place_of_its_own_and_the_report_counts_them(read):
    matches = read("x\tHund\ny\tHunde\n").matches("x y x")
    checked = check(matches, "Hunde, Hunden.")
    # `y` is exact, so the first `x` has to be the other word.
    assert [term.outcome for term in checked] == ["inflected", "exact", "missing"]
    assert [term.span for term in checked] == [(7, 13), (0, 5), None]
    outcomes = defaultdict(Counter)
    for term in (*checked, *check(matches[:1], "Hund")):
        outcomes[term.match.source, term.match.target][term.outcome] += 1
    assert report_lines(outcomes) == [
        "term  target  asked  exact  inflected  missing",
        "x     Hund        3      1          1        1",
        "y     Hunde       1      1          0        0",
        "all               4      2          1        1",
    ]


def test_an_annotation_can_be_traced_back(read):
    terms, draws = read(FILE), random.Random(1)
    line = "Cat food (cat) is food."
    assert annotate(line, terms.matches(line))[0] == (
        "<term> Cat food<is> Katzenfutter</term> (<term> cat<is> Katze</term>) is"
        "<term> food<is> Essen</term>."
    )
    for _ in range(300):
        line = "".join(draws.choices(["cat", "food", " ", " ", "(", "C++"], k=9))
        text, edits = annotate(line, terms.matches(line))
        back = [line[begin:end] for (begin, end), _ in edits]
        assert splice(text, [after for _, after in edits], back)[0] == line
        assert text.count("<term>") == len(edits)
        for term in re.finditer("<term> ([^<]*)<is> [^<]*</term>", text):
            begin, end = map_span(term.span(), inverse(edits))
            assert line[begin:end].strip() == term[1]


ENGLISH = ["".join(letters) for letters in itertools.product("aeiou", "bdfg", "klmnp")]
GERMAN = [word.title() for word in ENGLISH]


def made_up_pairs(count):
    """Each word is in 2 of 100 lines; the others, which are frequent, in all."""
    for n in range(count):
        picked = n % 100, (n + 1 + n // 100) % 100
        english, german = ([words[k] for k in picked] for words in (ENGLISH, GERMAN))
        yield f"the {' '.join(english)} one", f"{' '.join(german)} eine die"


def test_training_annotates_what_the_target_has():
    pairs = [*made_up_pairs(2_000)]
    lexicon = learn(pairs)
    assert lexicon == {word: [word.title()] for word in ENGLISH}
    assert lexicon == learn(pairs)
    assert learn([]) == learn([("", "Hund")]) == {}
    counts, exchanged = Counter(), 0
    for start, pair in enumerate(pairs):
        source, target = annotated(lexicon, pair, Stream(start), ())
        terms = re.findall(r"<term> (\w+)<is> (\w+)</term>", source)
        assert re.sub(r"<term>|<is>.*?</term>", "", source) == pair[0]
        # The target has what the source shows, in place of the word's translation.
        for word, translation in terms:
            assert target.split().count(translation) == 1
            exchanged += translation != word.title()
            target = target.replace(translation, word.title())
        assert target == pair[1]
        counts[len(terms)] += 1
    assert counts.keys() == {1, 2}
    assert 0.4 < exchanged / (counts[1] + 2 * counts[2]) < 0.6
    for same in [("a abk", "x"), ("abk", "Abk Abk"), ("abk <is>", "Abk")]:
        assert annotated(lexicon, same, Stream(1), ()) is same
