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
ORDINARY = re.split(
    r" \| ",
    "100% sure | 5 % of | 10%d | 100%sure | 50 %ige | eine 11%-ige | a %-sign | { | "
    "} { | { a, b } | {\"a\": 1} | {a b} | `quoted' and `this' | `a | $5.10 | a $ b | "
    "US$ 3 | and/or | km/h | 1/2 | me@home | @you | R&D; so | A & B; | http:// | "
    "www. | % | a <b> c | <ph9> | {n, plural, one {a b}",
)


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


def made_up(seed, limit=60):
    draws = random.Random(seed)
    return "".join(draws.choices(PIECES, k=draws.randrange(limit)))


def test_everything_comes_back_and_nothing_is_forged():
    internal = [*SYMBOLS, *MARKS]
    for seed in range(1_500):
        text = made_up(seed)
        protected = protect(text)
        assert protected.symbols == SYMBOLS[: len(protected.originals)]
        # Its symbols are the only ones in it, each once: the text has none of its own.
        symbols_left = Counter(
            {s: n for s in internal if (n := protected.text.count(s))}
        )
        assert symbols_left == Counter(protected.symbols)
        back = restore(protected.text, protected)
        assert (back.text, back.missing, back.repeated) == (text, (), ())
        assert back.edits == inverse(protected.edits)
        # Without symbols a text stays as it is, and all are to be demanded.
        plain = protect(text, ())
        assert plain.text == text
        assert plain.beyond == tuple(text[p.begin : p.end] for p in find(text))
        assert restore(text, plain)[2:] == ((), ())


def test_whatever_a_model_writes_each_comes_back_at_most_once():
    for seed in range(1_000):
        protected = protect(made_up(seed, limit=12))
        written = random.Random(seed).choices([*SYMBOLS, *MARKS, "x", "y z", ","], k=8)
        back = restore(" ".join(written), protected)
        spans = [span for _, span in back.edits if span[0] < span[1]]
        lost = Counter(protected.originals) - Counter(back.text[b:e] for b, e in spans)
        assert lost == Counter(back.missing) - Counter(protected.beyond)
        ends = [0, *(end for _, end in spans)]
        begins = [*(begin for begin, _ in spans), len(back.text)]
        between = "|".join(back.text[e:b] for e, b in zip(ends, begins, strict=True))
        assert not any(s in between for s in [*SYMBOLS, *MARKS])


def test_what_is_lost_or_repeated_is_reported():
    protected = protect("Open {file} in ({0}), %s.")
    assert protected.text == "Open <ph1> in (<ph2>), <ph3>."
    back = restore("In <ph2> <ph2> <ph7>, öffne <ph3>", protected)
    assert back.text == "In {0} , öffne %s"
    assert (back.missing, back.repeated) == (("{file}",), ("{0}", "<ph7>"))
    assert [span for _, span in back.edits] == [(3, 6), (7, 7), (7, 7), (15, 17)]
    spelled = restore("<ph1> <ph2> <ph3> %s www.x.de", protected)
    assert spelled.text == "{file} {0} %s %s www.x.de"
    assert (spelled.missing, spelled.repeated) == ((), ("%s", "www.x.de"))
    # Of equal ones each may stand for another: twice there is twice back.
    twice = protect("{a} und {a}")
    assert restore("<ph2> and <ph2>", twice)[2:] == ((), ())
    assert restore("a <ph1>", protect("a")).text == "a "
    assert restore("<ph2> and", twice)[2:] == (("{a}",), ())


def test_those_beyond_the_symbols_are_demanded():
    protected = protect(" ".join("%s" for _ in range(10)) + " <ph1>")
    # A symbol of the text is served first.
    assert protected.text.endswith("<ph7> %s %s %s <ph8>")
    assert protected.beyond == ("%s",) * 3
    assert restore(protected.text.replace("%s ", "", 1), protected).missing == ("%s",)
    twenty = protect("a <ph1>" * 20 + " b")
    assert twenty.originals[7] == "<ph1>" + "a <ph1>" * 12
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


def stands_for(original, changed):
    pattern = re.sub(r"<(ph\d)>", r"(?P<\1>.+?)", re.escape(changed))
    named = re.fullmatch(pattern, original).groupdict()
    return {f"<{name}>": original for name, original in named.items()}


@pytest.mark.parametrize("pair", PAIRS)
def test_training_replaces_the_same_on_both_sides(pair):
    used = Counter()
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
        used.update(symbols[0])
        # Nothing else has changed: each stands for the same on both sides.
        source_symbols, target_symbols = map(stands_for, pair, changed)
        assert source_symbols == target_symbols
        assert source_symbols.keys() == {*symbols[0]}
    assert set(used) == {*SYMBOLS}
    for unchanged in UNCHANGED:
        assert replaced(unchanged, Stream(1), ()) is unchanged


def test_a_number_that_a_translation_writes_otherwise_is_not_replaced():
    for n in range(50):
        changed, _ = replaced(PAIRS[3], Stream(n), ())
        assert re.sub("<ph.>", "", changed) == "It costs 1,662 in  (Rhine)"


HOSTILE = ["a+", "a-", "<", "{{", "{a, plural, one {", "` `", "&a", "$(", "~/.", "a@a."]


@pytest.mark.parametrize("part", HOSTILE)
def test_long_texts_are_read_once(part):
    """Minutes, if a pattern reads to the end of a text from each of its places."""
    assert find("@ " + part * (300_000 // len(part))) == []


def test_addresses_have_schemes_of_any_kind():
    text = "see x+http://a.b/c, -https://e.org/x?y=1. or svn+ssh://u@h/p"
    addresses = [text[match.begin : match.end] for match in find(text)]
    assert addresses == ["x+http://a.b/c", "https://e.org/x?y=1", "svn+ssh://u@h/p"]
