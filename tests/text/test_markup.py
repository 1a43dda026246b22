"""Documents with markup: what is a segment, where tags go, and what stays as it is."""

import collections
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.text.markup import parse
from t2t_jax.text.units import Aligned, units

# -------------------------------------------------------------------- random documents

WORDS = ["dog", "Über", "B&B", "x", "3.5", "don't", "<no", "“well”", "a>b", "naïve,"]
SPACES = st.sampled_from(["", " ", " ", "\n  ", "&#32;", "\u00a0", "&#160;", "\t"])
PIECES = ["<br/>", "<img alt='a>b'/>", "<wbr/>", "<!-- <b> -->", "<x></x>", "<b> </b>"]
OPAQUE = ["<code>f(<i>x</i>)</code>", "<s translate='no'>Ab <b>c</b></s>"]
BLOCKS = ["p", "li", "div", "td", "h1"]


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def element(content):
    """An inline element; tags are numbered when the document is complete."""
    return st.tuples(st.sampled_from(["b", "i", "a", "x"]), content).map(
        lambda pair: f"<{pair[0]} id='#'>{pair[1]}</{pair[0]}>"
    )


WORD = st.sampled_from(WORDS).map(escaped)
PARTS = st.recursive(
    st.one_of(WORD, WORD, SPACES, st.sampled_from(PIECES + OPAQUE)),
    lambda inner: element(st.lists(inner, max_size=5).map("".join)),
    max_leaves=8,
)
CONTENT = st.lists(PARTS, max_size=12).map("".join)


@st.composite
def documents(draw):
    """(the document, as fixed text and contents in turns)."""
    parts = [draw(SPACES.filter(lambda space: "&" not in space))]
    for name in draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=3)):
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
    target = " ".join(words)
    sides = units(text), units(target)
    pairs = [(s, t) for s in range(len(sides[0])) for t in range(len(sides[1]))]
    links = data.draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    return target, Aligned(*sides, links)


def tree(text):
    """The parent of each element with a number, and how often elements are where."""
    root = ElementTree.fromstring(f"<r>{text}</r>".replace("\u00a0", " "))
    parents = {}
    for parent in root.iter():
        for child in parent:
            name = child.tag, child.get("id")
            parents.setdefault(name, []).append(parent.get("id"))
    return {name: sorted(found, key=str) for name, found in parents.items()}


def check_document(parts, data, kind):
    text = "".join(parts)
    document = parse(text, kind)
    n = len(document.segments)
    assert document.assemble(document.segments, [None] * n) == text
    for segment in document.segments:
        assert segment == segment.strip() and "\n" not in segment
    made = [translated(data, segment) for segment in document.segments]
    output = document.assemble(*map(list, zip(*made, strict=True)))
    assert output == document.assemble(*map(list, zip(*made, strict=True)))
    fixed = "(.*)".join(map(re.escape, parts[::2]))
    assert re.fullmatch(fixed, output, re.DOTALL)
    tags = re.compile("<[^>]*>")
    assert collections.Counter(tags.findall(output)) == collections.Counter(
        tags.findall(text)
    )
    assert tree(output) == tree(text)
    # Without the tags, the words of the translation are there.
    shown = "".join(parse(output, kind).segments)
    assert re.findall(r"\w", shown) == re.findall(r"\w", "".join(t for t, _ in made))


@pytest.mark.parametrize("kind", ["html", "xml"])
@given(documents(), st.data())
@settings(max_examples=60)
def test_tags_survive_any_translation(kind, parts, data):
    check_document(parts, data, kind)


@pytest.mark.slow  # python -m pytest -m slow tests/text/test_markup.py
@pytest.mark.parametrize("kind", ["html", "xml"])
@given(documents(), st.data())
@settings(max_examples=10_000)
def test_tags_survive_any_translation_of_ten_thousand_documents(kind, parts, data):
    check_document(parts, data, kind)


SIGNS = st.sampled_from([*"<>/!-=?&;'\" \nab", "<b>", "</b>", "<p>", "<!--", "<code>"])
MORE = ["</p>", "<i a='", "<script>", "</script>", "<svg>", "&amp", "<textarea>", "]]>"]


@given(st.lists(st.one_of(SIGNS, st.sampled_from(MORE))).map("".join), st.data())
def test_damaged_html_keeps_its_tags(text, data):
    """Any text is HTML: nothing is lost, and every tag is written once."""
    document = parse(text, "html")
    n = len(document.segments)
    assert document.assemble(document.segments, [None] * n) == text
    made = [translated(data, segment) for segment in document.segments]
    output = document.assemble([t for t, _ in made], [a for _, a in made])
    signs = collections.Counter
    assert signs(re.findall("<[^<>]*>", output)) == signs(re.findall("<[^<>]*>", text))
