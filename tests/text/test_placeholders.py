"""Placeholders: what is one, that each comes back once, how a model learns it."""

import random
import re
from collections import Counter

import pytest

from t2t_jax.extensions.text import placeholders
from t2t_jax.extensions.text.placeholders import find, protect, replaced, restore
from t2t_jax.text.counter_random import Stream
from t2t_jax.text.units import MARKS, SYMBOLS, inverse

# What each line of the table finds, in brackets; and ordinary text that is like it.
FOUND = {
    "symbol": "a [<ph1>] b [<term>]x[</term>]",
    "icu": "[{n, plural, one {# of {d}} other {#}}]! [{g,select,f {{n, plural, one {x "
    "{x}} other {y}}} other {z}}]",
    "code": "run [`git add -A`], or [`x`]",
    "url": "[https://en.wikipedia.org/wiki/Foo_(bar)]. ([www.a-b.org]) "
    "„[ftp://x.org/a,b]“ ([https://a.org/{id}/%s?q=1])",
    "mail": "Mail [a.b+c@d-e.co.uk].",
    "printf": "[%s][%1$s] [%(name)s]: [%05.2f] [%d]x[%d] 1 [%s] [%-9lu] [%+qD] [%02X]",
    "percent": "100[%%] [%d][%%]",
    "numbered": "'[%1]' and [%L2]",
    "variable": "[%PRODUCTNAME] [${VAR}] [$(ls -l)] [$path]. [%{key}]+x",
    "braces": "[{}][{name}]word ([{0}]) [{x:.2f}] [{{ name }}]",
    "entity": "[&amp;] [&#228;] [&appName;]",
    "path": "in [/etc/apt/sources.list]. [~/.config]",
}
ORDINARY = [
    *("100% sure", "5 % of", "10%d", "100%sure", "50 %ige", "eine 11%-ige", "a %-sign"),
    *(
        "{",
        "} {",
        "{ a, b }",
        '{"a": 1}',
        "{a b}",
        "`quoted' and `this'",
        "`a",
        "$5.10",
    ),
    *(
        "a $ b",
        "US$ 3",
        "and/or",
        "km/h",
        "1/2",
        "me@home",
        "@you",
        "R&D; so",
        "A & B;",
    ),
    *("http://", "www.", "%", "a <b> c", "<ph9>", "{n, plural, one {a b}"),
]


def marked(text):
    """The text with brackets around its placeholders; none overlap."""
    for place in reversed(find(text)):
        begin, end, _ = place
        text = f"{text[:begin]}[{text[begin:end]}]{text[end:]}"
    return text


def test_the_table_finds_placeholders_and_not_what_is_like_them():
    assert FOUND.keys() == placeholders.PATTERNS.keys()
    for kind, example in FOUND.items():
        text = re.sub(r"[\[\]]", "", example)
        assert marked(text) == example
        assert kind in {place.kind for place in find(text)}
    assert [text for text in ORDINARY if find(text)] == []


PIECES = [*SYMBOLS, *MARKS, *"<>{}%$`()/@&;., aß1\n", "<ph", "1>", "%s", "{0}", "ph1"]
PIECES += [
    "`x y`",
    "{n, plural, one {",
    "}}",
    "http://",
    "a.b@c.de",
    "www.x.de",
    "<ph9>",
]


def made_up(seed, most=60):
    draws = random.Random(seed)
    return "".join(draws.choices(PIECES, k=draws.randrange(most)))


def test_everything_comes_back_and_nothing_is_forged():
    internal = [*SYMBOLS, *MARKS]
    for seed in range(4_000):
        text = made_up(seed)
        hidden = protect(text)
        assert hidden.symbols == SYMBOLS[: len(hidden.originals)]
        # Its symbols are the only ones in it, each once: the text has none of its own.
        left = Counter({s: n for s in internal if (n := hidden.text.count(s))})
        assert left == Counter(hidden.symbols)
        back = restore(hidden.text, hidden)
        assert (back.text, back.missing, back.repeated) == (text, (), ())
        assert back.edits == inverse(hidden.edits)
        # Without symbols a text stays as it is, and all are to be demanded.
        plain = protect(text, ())
        assert plain.text == text
        assert plain.beyond == tuple(text[p.begin : p.end] for p in find(text))
        assert restore(text, plain)[2:] == ((), ())


def test_whatever_a_model_writes_each_comes_back_at_most_once():
    for seed in range(1_000):
        hidden = protect(made_up(seed, most=12))
        written = random.Random(seed).choices([*SYMBOLS, *MARKS, "x", "y z", ","], k=8)
        back = restore(" ".join(written), hidden)
        spans = [after for _, after in back.edits if after[0] < after[1]]
        lost = Counter(hidden.originals) - Counter(back.text[b:e] for b, e in spans)
        assert lost == Counter(back.missing) - Counter(hidden.beyond)
        ends = [0, *(end for _, end in spans)]
        begins = [*(begin for begin, _ in spans), len(back.text)]
        rest = "|".join(back.text[e:b] for e, b in zip(ends, begins, strict=True))
        assert not any(s in rest for s in [*SYMBOLS, *MARKS])


def test_what_is_lost_or_repeated_is_reported():
    hidden = protect("Open {file} in ({0}), %s.")
    assert hidden.text == "Open <ph1> in (<ph2>), <ph3>."
    back = restore("In <ph2> <ph2> <ph7>, öffne <ph3>", hidden)
    assert back.text == "In {0} , öffne %s"
    assert (back.missing, back.repeated) == (("{file}",), ("{0}", "<ph7>"))
    assert [after for _, after in back.edits] == [(3, 6), (7, 7), (7, 7), (15, 17)]
    spelled = restore("<ph1> <ph2> <ph3> %s www.x.de", hidden)
    assert spelled.text == "{file} {0} %s %s www.x.de"
    assert (spelled.missing, spelled.repeated) == ((), ("%s", "www.x.de"))
    # Of equal ones each may stand for another: twice there is twice back.
    twice = protect("{a} und {a}")
    assert restore("<ph2> and <ph2>", twice)[2:] == ((), ())
    assert restore("a <ph1>", protect("a")).text == "a "
    assert restore("<ph2> and", twice)[2:] == (("{a}",), ())


def test_those_beyond_the_symbols_are_demanded():
    hidden = protect(" ".join("%s" for _ in range(10)) + " <ph1>")
    # A symbol of the text is served first.
    assert hidden.text.endswith("<ph7> %s %s %s <ph8>")
    assert hidden.beyond == ("%s",) * 3
    assert restore(hidden.text.replace("%s ", "", 1), hidden).missing == ("%s",)
    many = protect("a <ph1>" * 20 + " b")
    assert many.originals[7] == "<ph1>" + "a <ph1>" * 12
    assert protect("{n, plural, one {<ph1>}}").kinds == {"icu": 1}


PAIRS = [
    ("%s: file {0}", "Datei {0}: %s"),
    ("{a} then {a}", "{a}, dann {a}"),
    ("In 2019 Anna met Bob.", "Anna traf Bob im Jahr 2019."),
    ("It costs 1,662 in Bonn (Rhine)", "Es kostet 1.662 in Bonn (Rhein)"),
    ("%d " * 10, "%d " * 10),
]
UNCHANGED = [
    ("%s", "%d"),
    ("%1$s 7", "7"),
    ("Anna", "Anna"),  # the first word has a capital anyway
    ("<ph1> 7", "7 <ph1>"),
    ("Bob 5 5", "5 Bob"),
]


def stands_for(before, after):
    pattern = re.sub(r"<(ph\d)>", r"(?P<\1>.+?)", re.escape(after))
    named = re.fullmatch(pattern, before).groupdict()
    return {f"<{name}>": original for name, original in named.items()}


@pytest.mark.parametrize("pair", PAIRS)
def test_training_replaces_the_same_on_both_sides(pair):
    seen = Counter()
    for start in range(200):
        changed = replaced(pair, Stream(start), ())
        assert changed == replaced(pair, Stream(start), ())
        symbols = [
            sorted((s for s in SYMBOLS if s in side), key=side.index)
            for side in changed
        ]
        # The same symbols, each once, in the order of the source and of the table.
        assert symbols[0] == sorted(symbols[1]) == sorted(symbols[0])
        assert all(side.count(s) == 1 for side in changed for s in symbols[0])
        seen.update(symbols[0])
        # Nothing else has changed: each stands for the same on both sides.
        one, two = map(stands_for, pair, changed)
        assert one == two
        assert one.keys() == {*symbols[0]}
    assert set(seen) == {*SYMBOLS}
    for same in UNCHANGED:
        assert replaced(same, Stream(1), ()) is same


def test_a_number_that_a_translation_writes_otherwise_is_not_replaced():
    for n in range(50):
        changed, _ = replaced(PAIRS[3], Stream(n), ())
        assert re.sub("<ph.>", "", changed) == "It costs 1,662 in  (Rhine)"


HOSTILE = ["a+", "a-", "<", "{{", "{a, plural, one {", "` `", "&a", "$(", "~/.", "a@a."]


@pytest.mark.parametrize("part", HOSTILE)
def test_long_texts_are_read_once(part):
    """Half an hour, if a pattern reads to the end of a text from each of its places."""
    assert find("@ " + part * (1_000_000 // len(part))) == []


def test_addresses_have_schemes_of_any_kind():
    text = "see x+http://a.b/c, -https://e.org/x?y=1. or svn+ssh://u@h/p"
    found = [text[each.begin : each.end] for each in find(text)]
    assert found == ["x+http://a.b/c", "https://e.org/x?y=1", "svn+ssh://u@h/p"]
