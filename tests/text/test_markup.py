"""Documents with markup: what is a segment, where tags go, and what stays as it is."""

import html
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.extensions.text.markup import parse
from t2t_jax.io.errors import UserError
from t2t_jax.text.units import Aligned, units


def unchanged(text, kind, **options):
    """The document of a text, which comes back to the byte if nothing is replaced."""
    document = parse(text, kind, **options)
    assert document.assemble(document.segments, [None] * len(document.inline)) == text
    return document


# -------------------------------------------------------------------- random documents

WORDS = ["dog", "Über", "B&B", "x", "3.5", "don't", "<no", "“well”", "a>b", "naïve,"]
WORD = st.sampled_from([html.escape(word, quote=False) for word in WORDS])
SPACES = ["", " ", " ", "\n  ", "&#32;", "\u00a0", "&#160;", "\t"]
PIECES = ["<br/>", "<img alt='a>b'/>", "<wbr/>", "<!-- <b> -->", "<x></x>", "<b> </b>"]
PIECES += ["<code>f(<i>x</i>)</code>", "<s translate='no'>Ab <b>c</b></s>"]


def joined(parts, limit):
    return st.lists(parts, max_size=limit).map("".join)


def element(content):
    """An inline element; tags are numbered when the document is complete."""
    parts = st.sampled_from("biax"), joined(content, 5)
    return st.builds("<{0} id='#'>{1}</{0}>".format, *parts)


PART = st.one_of(WORD, WORD, *map(st.sampled_from, (SPACES, PIECES)))
CONTENT = joined(st.recursive(PART, element, max_leaves=8), 12)


@st.composite
def documents(draw):
    """(the document, as fixed text and contents in turns)."""
    parts = [draw(st.sampled_from(["", " ", "\n  ", "\t"]))]
    names = st.sampled_from(["p", "li", "div", "td", "h1"])
    for name in draw(st.lists(names, min_size=1, max_size=3)):
        parts[-1] += f"<{name} class='a'>"
        # A word, so that everything within is inline in XML, too.
        parts += [draw(WORD) + " " + draw(CONTENT), f"</{name}>\n"]
    numbers = iter(range(10_000))
    return [re.sub("#(?=')", lambda _: str(next(numbers)), part) for part in parts]


def translated(data, text):
    """A made-up translation of a segment, and links."""
    words = data.draw(st.permutations(text.split(" ")))
    words = words[: data.draw(st.integers(0, len(words)))]
    words += data.draw(st.lists(st.sampled_from(WORDS), max_size=3))
    sides = units(text), units(target := " ".join(words))
    pairs = [(s, t) for s in range(len(sides[0])) for t in range(len(sides[1]))]
    links = data.draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    return target, Aligned(*sides, links)


def tags(text):
    # In HTML, `<>` and `< b>` are text, which is written with `&lt;`.
    return Counter(re.findall("<(?=[a-zA-Z/!?])[^<>]*>", text))


def tree(text):
    """The parents of each element with a number."""
    root = ElementTree.fromstring(f"<r>{text}</r>".replace("\u00a0", " "))
    pairs = [(child, parent) for parent in root.iter() for child in parent]
    return Counter((child.tag, child.get("id"), p.get("id")) for child, p in pairs)


SLOW = [pytest.param(kind, 10_000, marks=pytest.mark.slow) for kind in ("html", "xml")]


@pytest.mark.parametrize(("kind", "examples"), [("html", 40), ("xml", 40), *SLOW])
def test_tags_survive_any_translation(kind, examples):
    @given(documents(), st.data())
    @settings(max_examples=examples)
    def check(parts, data):
        text = "".join(parts)
        document = unchanged(text, kind)
        assert not any(s != s.strip() or "\n" in s for s in document.segments)
        pairs = [translated(data, segment) for segment in document.segments]
        targets, aligned = zip(*pairs, strict=True)
        output = document.assemble(targets, aligned)
        assert output == document.assemble(targets, aligned)
        fixed = "(.*)".join(map(re.escape, parts[::2]))
        assert re.fullmatch(fixed, output, re.DOTALL)
        assert tags(output) == tags(text)
        assert tree(output) == tree(text)
        # Without the tags, the words of the translation are there.
        text_shown = "".join(parse(output, kind).segments)
        assert re.findall(r"\w", text_shown) == re.findall(r"\w", "".join(targets))

    check()


def test_fragments_of_xml_read_no_freed_memory():
    """Python did not keep alive what their parser shares (python/cpython#139400)."""
    code = "from t2t_jax.extensions.text import markup; markup.parse('a <b/>', 'xml')"
    environment = os.environ | {"PYTHONMALLOC": "debug"}  # overwrites what is freed
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


SOUP = [*"<>/!-=?&;'\" \nab", "<b>", "</b>", "<p>", "</p>", "<!--", "<code>", "<i a='"]
SOUP += ["<script>", "</script>", "<svg>", "&amp", "<textarea>", "]]>", "<li>", "</td>"]


@given(joined(st.sampled_from(SOUP), None), st.data())
def test_damaged_html_keeps_its_tags(text, data):
    """Any text is HTML: nothing is lost, and every tag is written once."""
    document = unchanged(text, "html")
    pairs = [translated(data, segment) for segment in document.segments]
    output = document.assemble([t for t, _ in pairs], [a for _, a in pairs])
    assert tags(output) == tags(text)


# --------------------------------------------------------------------------- segments

HTML = [  # as browsers read it
    ("<!DOCTYPE html><title>a &lt;b></title><p>c<p>d</p>", ["a <b>", "c", "d"]),
    ("<ul><li>a<li translate=no>b <i>c</i><li>d</ul>", ["a", "d"]),
    ("<p translate='no'>a<b>b<div>c</div>d", ["c", "d"]),
    ("<p translate=no>a <select><option>b</select> c</p>d", ["d"]),
    ("<table><tr><td class='x notranslate'>a<td>b<tr><th>c</table>", ["b", "c"]),
    ("<dl><dt>a<dd translate=no>b<dt>c</dl><select><option>d<option>e", [*"acde"]),
    ("<pre>a</pre>b<textarea>c</textarea><svg><p>d</p></svg>e<br>f", ["b", "e f"]),
    ("<script>if (a</b>c) '</scripts>'</script>x", ["x"]),
    ("<script><!-- '<script>a</script>' --></script>x", ["x"]),
    ("<style>p > a {}</STYLE >x<plaintext>y</plaintext>z", ["x"]),
    ("a <!-- b --> c<!-->d<!--->e<!-- > -- ->f--!>g<? h>i", ["a cdegi"]),
    ("1 < 2 & &amp;lt; &nbsp;&copy &#8217;s\n\t b", ["1 < 2 & &lt; \xa0© ’s b"]),
    ("&nbsp; &#32;a b&nbsp;<p>&nbsp;</p><p>»</p> <p> | </p>", ["a b"]),
    ("<a title='x > y' b=c/>d</a e='>'>f", ["df"]),
    ("<title>a</tit>b<p>c", []),
    ("a <b", ["a"]),
    ("a <p b='", ["a"]),
    ("a </", ["a </"]),
    ("\ufeffa<hr/>b<button>c</button><h1>d", ["a", "b", "c", "d"]),
    ("Use <code>f(<code>g</code>)</code> or <kbd>br</kbd>.", ["Use or ."]),
    ("a <M>b</M> <p>c", ["a"], "m", "p"),
]
# Entities of a document do not grow.
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
LAUGHS = f'<!DOCTYPE a [<!ENTITY l0 "lol">{LAUGHS}]>'
XML = [  # has inline elements next to text
    ("<r><a>x</a> <a>y <b><i>z</i></b></a></r>", ["x", "y z"]),
    ('Hello <x id="1"/> world', ["Hello world"]),
    ("<b>a</b>\n<b>c</b>", ["a", "c"]),
    ("<r>a<![CDATA[<b>]]><!-- c --><?d e?> f</r>", ["a f"]),
    ("<?xml version='1.0' encoding='latin-1'?>\n<r>é &#x2014;</r>", ["é —"]),
    ("<!DOCTYPE r [<!ENTITY e '<b>x</b>'>]><r>a &e; b<s>c</s></r>", ["a bc"]),
    ("<!DOCTYPE r [<!ENTITY e SYSTEM '/etc/passwd'>]><r>a &e;</r>", ["a"]),
    ("<r xmlns:its='i'><p its:translate='no'>a</p><p xml:lang='en'>b</p></r>", ["b"]),
    ("<r><m>b</m><p>c</p></r>", ["c"], "m"),
    (f"{LAUGHS}<a>b &l9;</a>", ["b"]),
]
CASES = [("html", *case) for case in HTML] + [("xml", *case) for case in XML]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_segments_are_what_a_reader_sees(case):
    kind, text, segments, *ignored = case
    assert unchanged(text, kind, ignored=ignored).segments == segments


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a <b>", "line 1, column 6: mismatched tag; <b> of line 1, column 3 is open"),
        ("é\n<b>c</i>", "line 2, column 5: mismatched tag"),
        ("<?xml version='1.0'?><r><b>", "no element found; <b> of line 1, column 25"),
        ("a &nbsp; b", "column 3: undefined entity; XML has amp"),
        ("a & b", "column 4: not well-formed"),
        ("a</_><_>", "column 2: mismatched tag. Correct"),
        (f"{LAUGHS}<a b='&l9;'/>", "amplification"),
    ],
)
def test_xml_that_is_not_well_formed_is_refused(text, message):
    with pytest.raises(UserError, match=re.escape(message)):
        parse(text, "xml")


# --------------------------------------------------------------------------- placement


def placed(text, target, links):
    (source,) = (document := parse(text, "html")).segments
    links = [tuple(map(int, link.split("-"))) for link in links.split()]
    aligned = Aligned(*map(units, (source, target)), links)
    return document.assemble([target], [aligned]), document.report


@pytest.mark.parametrize(
    ("text", "target", "links", "expected"),
    [
        # The smallest span of all linked words; around all is around all.
        ("a <b>b c</b> d", "C x B A", "0-3 1-2 2-0", "<b>C x B</b> A"),
        ("<i> <b>a</b> b </i>", "B A", "0-1 1-0", "<i> B <b>A</b> </i>"),
        ("<i>a <b>b</b></i> c", "C B A", "0-2 1-1 2-0", "C <i><b>B</b> A</i>"),
        # Siblings stay apart: the larger part; whose are fewer.
        ("<b>a c</b> <i>b</i>", "A B C", "0-0 1-2 2-1", "<b>A</b> <i>B</i> C"),
        ("<b>a c</b> <i>b</i>", "A B C D", "0-0 1-2 1-3 2-1", "A <i>B</i> <b>C D</b>"),
        ("<b>a b</b> <i>c</i>", "A C", "0-0 1-1 2-1", "<b>A</b> <i>C</i>"),
        # Nothing is linked: before the next, after the previous, or at the end.
        ("a <b>b</b> c", "C A", "0-1 2-0", "<b></b>C A"),
        ("a <b>b</b> c", "A", "0-0", "A<b></b>"),
        ("a <b>b</b> c", "x y", "", "x y<b></b>"),
        ("a <br> b c", "C B A", "0-2 1-1 2-0", "C <br> B A"),
        ("a<br>b", "B A", "0-1 1-0", "<br>B A"),
        ("a<br>b", "A B", "0-0 1-1", "A<br>B"),
        ("a<img> b", "B A", "0-1 1-0", "B A<img>"),
        ("a <br>\n<img> b", "A B", "0-0 1-1", "A <br>\n<img> B"),
        ("a <x></x>, b", "A, B", "0-0 1-1 2-2", "A <x></x>, B"),
        ("a <code>f</code> b.", "A B.", "0-0 1-1", "A <code>f</code> B."),
        ("a <code>f</code>. b", "A B", "0-0 2-1", "A <code>f</code> B"),
        ("a <code>f</code> b.", "B, A.", "0-2 1-0 2-3", "<code>f</code> B, A."),
        # Crossing tags, and those without a partner, keep their order.
        ("a <b>b <i>c</b> d</i>", "C B D", "1-1 2-0 3-2", "C <b><i></b>B D</i>"),
        ("a <b>b c", "C B A", "0-2 1-1 2-0", "C <b>B A"),
        # Within words, only those that stay.
        ("H<sub>2</sub>O a", "A H2O", "0-1 1-0", "A H<sub>2</sub>O"),
        ("re<b>do</b>", "do<ne", "0-0", "<b>do</b>&lt;ne"),
        # White space is on the same side as before.
        ("a<b> b </b>c", "A B C", "0-0 1-1 2-2", "A<b> B </b>C"),
        ("a&nbsp;<b>b</b>&nbsp;", "A\xa0& B", "0-0 1-2", "A\xa0&amp; <b>B</b>&nbsp;"),
    ],
)
def test_tags_go_where_links_say(text, target, links, expected):
    assert placed(text, target, links)[0] == expected


def test_the_report_counts_what_was_done():
    text = "<b>a c d</b> <i>b</i> <u>e</u> <br> f</s> g"
    _, report = placed(text, "A B C D F G", "0-0 1-2 2-3 3-1 5-4 6-5")
    expected = {"elements": 3, "split": 1, "emptied": 1, "pieces": 1, "unpaired": 1}
    assert report == expected


@pytest.mark.parametrize("link", ["0-2", "2-0"])
def test_links_out_of_range_are_refused(link):
    with pytest.raises(ValueError, match=r"out of range; there are \(2, 2\)"):
        placed("a <b>b</b>", "A B", link)
