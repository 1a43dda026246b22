"""Texts with markup: HTML as browsers read it, and XML.

A `MarkupDocument` is a text and the positions of its segments. A segment is the text
between two block boundaries as a reader sees it: entities decoded, white space
collapsed. Translations replace segments; all else of the input is copied. Nothing is
serialised, so a document without changes is the same string.

Block tags end a segment. Inline tags are within one; `tag_placement` finds their places
in the translation. Hidden content (elements of `HIDDEN` and ignored ones,
`translate="no"`, class `notranslate`, comments, processing instructions) is copied: the
model does not see it, and within a sentence it moves as one piece.

HTML: elements that are not in `BLOCKS` are inline, as in browsers. End tags that may be
left out (of p, li, td, ...) are implied where they end hidden content.

XML: an element with text next to it, in the content of its parent, is inline, and so is
all within it; an element with only white space around it is a block. A text without one
root is a fragment. CDATA sections, and references to other entities than the five
predefined ones, are hidden content: no entity is expanded, and no file is read.
"""

import collections
import functools
import html
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.parsers import expat

from t2t_jax.extensions.text.tag_placement import Mark, place
from t2t_jax.io.errors import UserError
from t2t_jax.text.units import Aligned, splice


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Elements of HTML whose tags end a segment; a button's text is a label of its own.
BLOCKS = _names(
    "html head body title base template address article aside blockquote button "
    "caption center col colgroup dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form frame frameset h1 h2 h3 h4 h5 h6 header hgroup hr legend li "
    "listing main menu nav noscript ol optgroup option p plaintext pre search section "
    "select summary table tbody td textarea tfoot th thead tr ul xmp"
)
# Elements whose content is text up to their end tag, and all that are copied.
RAW = _names("script style textarea title xmp iframe noembed noframes plaintext")
_FOREIGN = _names("svg math")
HIDDEN = (
    RAW - {"title"} | _FOREIGN | _names("code kbd samp tt var template pre listing")
)
VOID = _names(
    "area base basefont bgsound br col embed frame hr image img input keygen link meta "
    "param source track wbr"
)
# A start tag ends the latest of these elements, unless one of `_SCOPES` is within it.
_GROUPS = "caption colgroup thead tbody tfoot"
_ENDS = {
    **dict.fromkeys(BLOCKS - _names("button noscript select template textarea"), "p"),
    **{"li": "li", "dt": "dt dd", "dd": "dt dd", "option": "option"},
    **{"optgroup": "option", "td": "td th", "th": "td th", "tr": "tr caption colgroup"},
    **dict.fromkeys(_GROUPS.split(), _GROUPS),
}
_SCOPES = _names("button dl marquee menu object ol select table template ul")
# Limits of open elements: of all, as in browsers, and of those of a segment; deeper
# tags are copied as if they had no partner.
DEEPEST, DEEPEST_INLINE = 512, 100


class Item(NamedTuple):
    """A part of a text with markup."""

    kind: str  # text; start, end of an inline element; piece without text; block tag
    begin: int  # in characters of the text
    end: int
    value: str = ""  # a tag's name; a text with its entities decoded


class MarkupDocument:
    """A text with markup, whose segments can be replaced.

    Attributes:
      segments: the texts to translate, of one line each.
      inline: for each segment, whether tags are within: `assemble` needs an alignment.
      report: counts of the latest `assemble`: `elements` and `pieces` that were placed,
        `unpaired` tags; elements that are `split` (the tags enclose a part of the
        linked words, as a neighbour's are between) or `emptied` (no word is linked).
    """

    escapes = True  # translations are written as text of HTML or XML

    def __init__(self, text: str, items: Iterable[Item]):
        self._text = text
        self._segments: list[tuple[int, int, list[Mark]]] = []  # begin, end, tags
        self.segments: list[str] = []
        self.report: collections.Counter[str] = collections.Counter()
        for is_block, run in itertools.groupby(items, lambda item: item[0] == "block"):
            if not is_block:
                self._add_segment(run)
        self.inline = [bool(parts) for _, _, parts in self._segments]

    @classmethod
    def line(cls, text: str) -> "MarkupDocument":
        """A line without markup: a segment as it is, with all its white space."""
        document = cls(text, ())
        document.segments, document.inline = [text], [False]
        document._segments.append((0, len(text), []))
        return document

    def assemble(
        self, translations: Sequence[str], aligned: Sequence[Aligned | None]
    ) -> str:
        """Replaces the segments; those that are unchanged keep their bytes.

        Args:
          translations: of `segments`, as plain text.
          aligned: their units and links; read where `inline` is true.

        Raises:
          ValueError: there is not one of both for each segment; or links are out of
            range.
        """
        self.report = collections.Counter()
        replacements = []
        for (begin, end, parts), source, target, links in zip(
            self._segments, self.segments, translations, aligned, strict=True
        ):
            written = html.escape(target, quote=False)
            if target == source:
                written = self._text[begin:end]
            elif parts:
                written, counts = place(source, parts, target, links)
                self.report += counts
            replacements.append(written)
        spans = [(begin, end) for begin, end, _ in self._segments]
        return splice(self._text, spans, replacements)[0]

    def _add_segment(self, run: Iterable[Item]) -> None:
        """Makes a segment of what is between block boundaries, if it has a word."""
        text, start, stop = "", len(self._text), -1  # words are within [start, stop)
        parts: list[Mark] = []  # an element takes those within when it is closed
        opened: list[str] = []  # names of elements
        numbers: list[int] = []  # theirs in `parts`
        # Is white space before? Marks whose `space_after` is not known yet.
        white, waiting = False, []
        for kind, begin, end, value in run:
            if kind == "text":
                for mark in waiting:
                    mark.space_after = value[:1].isspace()
                white, waiting = value[-1:].isspace(), []
                if value.strip():
                    low, stop = _TRIMMED.match(self._text, begin, end).span(1)
                    start = min(start, low)
                value = _COLLAPSED.sub(" ", value if text else value.lstrip())
            else:
                mark = Mark(self._text, kind, begin, end, len(text), white)
                waiting.append(mark)
                if kind == "start" and len(opened) < DEEPEST_INLINE:
                    opened.append(value)
                    numbers.append(len(parts))
                elif kind == "end" and value in opened:
                    if opened[-1] == value:  # else tags cross: they have no partner
                        n = numbers[-1]
                        mark = parts[n]
                        if stop <= mark.begin:  # no text
                            mark.kind = "piece"
                        else:
                            mark.kind, mark.close = "element", waiting[-1]
                            mark.parts = parts[n + 1 :]
                        del parts[n:]
                    while opened.pop() != value:
                        pass
                    del numbers[len(opened) :]
                if mark.kind == "piece":
                    if parts and parts[-1].kind == "piece" and stop <= parts[-1].begin:
                        mark = parts.pop()  # neighbours without text are one piece
                    mark.end, mark.space_after = end, False
                    if text[mark.place :].strip(" "):  # U+00A0, which is not collapsed
                        text, value = text[: mark.place], "br"
                    mark.separates |= value == "br" or len(text) > mark.place
                    white, waiting = False, [mark]
                parts.append(mark)
                value = " " if value == "br" else ""
            text += value.removeprefix(" ") if text[-1:] in ("", " ") else value
        if not re.search(r"\w", text):
            return
        # Tags around the whole text, and pieces at its ends, stay outside.
        while parts := [p for p in parts if p.begin < stop and start < p.stop]:
            if parts[0].begin > start or parts[0].stop < stop:
                start, stop = min(start, parts[0].begin), max(stop, parts[-1].stop)
                break
            parts = parts[0].parts
        self.segments.append(text.rstrip())
        self._segments.append((start, stop, parts))


# A text, and in it what is between white space at its ends. Possessive: linear time.
_WHITE = r"(?:\s|&(?:nbsp|#0*(?:9|10|13|32|160)|#[xX]0*(?:9|[aAdD]|20|[aA]0));)*+"
_TRIMMED = re.compile(rf"{_WHITE}((?:{_WHITE}(?:[^\s&]++|&))*)")
_COLLAPSED = re.compile(r"[ \t\n\f\r]+")  # by HTML: without U+00A0


def parse(text: str, kind: str, ignored: Collection[str] = ()) -> MarkupDocument:
    """Finds the segments of a text with markup.

    Args:
      text: of a whole page, or a part of one.
      kind: a key of `KINDS`.
      ignored: names of further elements whose content is not translated.

    Raises:
      UserError: the XML is not well-formed.
    """
    if not re.search("[<&\r\n]", text):
        return MarkupDocument.line(text)
    return MarkupDocument(text, KINDS[kind](text, frozenset(ignored)))


def _is_hidden(name: str, attributes: Mapping[str, str], names: Collection) -> bool:
    marks = attributes.get("translate"), attributes.get("its:translate")
    classes = attributes.get("class", "").split()
    return name in names or "no" in marks or "notranslate" in classes


def _item(
    kind: str, begin: int, end: int, value: str, is_block: bool, hidden: Sequence[int]
) -> Item:
    """An item; hidden: whether its begin and its end are in hidden content."""
    if is_block and not all(hidden):
        return Item("block", begin, end)
    return Item("piece", begin, end) if any(hidden) else Item(kind, begin, end, value)


# ------------------------------------------------------------------------------- HTML

# By the WHATWG's rules. Possessive, so that the time is linear.
_ATTRIBUTE = r"""
    [\t\n\f\r /]*+ ( [^\t\n\f\r />] [^\t\n\f\r />=]*+ )
    (?: [\t\n\f\r\ ]*+ = [\t\n\f\r\ ]*+
        ( "[^"]*+(?:"|\Z) | '[^']*+(?:'|\Z) | [^\t\n\f\r >]*+ ) )?+
"""
_ATTRIBUTES = re.compile(_ATTRIBUTE, re.VERBOSE)
_TOKEN = re.compile(
    rf"""
    (?P<text> (?: [^<]++ | <(?![a-zA-Z/!?]) | </\Z )++ )
    | < (?P<slash>/?) (?P<name>[a-zA-Z][^\t\n\f\r />]*+)
        (?P<attributes> (?:{_ATTRIBUTE.replace(" ( ", " (?: ")})*+ )
        (?P<tail> [\t\n\f\r /]*+ ) (?: (?P<closed>>) | \Z )
    | <!---?> | <!--.*?(?:--!?>|\Z)
    | <[^>]*+>?""",
    re.VERBOSE | re.DOTALL,
)
# A script in a comment has scripts of its own.
_SCRIPT_TEXT = re.compile(
    r"""(?xsia) (?: <!--(?!-?>)
            (?: <script[\s/>] (?:(?!-->|</script[\s/>]).)*+ (?:</script[\s/>])?+
              | (?!-->|</script[\s/>]). )*+
          | (?!</script[\s/>]). )*+"""
)


def _html(text: str, ignored: Collection[str]) -> Iterator[Item]:
    """Items of HTML."""
    ignored = {name.lower() for name in ignored} | HIDDEN
    opened: list[str] = []
    depth, hider = 0, ""  # of the open element with hidden content, from 1; its name
    end = int(text.startswith("\ufeff"))
    while match := _TOKEN.match(text, end):
        begin, end = match.span()
        kind = "text" if match["text"] else "piece"
        name, was_hidden = (match["name"] or "").lower(), depth
        if match["closed"]:  # browsers drop a tag that the text's end cuts
            kind = "end" if match["slash"] else "start"
            _close(opened, name, kind)
            if depth > len(opened):
                depth, was_hidden = 0, kind == "end" and name == hider
        if name in VOID or (name in _FOREIGN and match["tail"].endswith("/")):
            kind = "piece"
        elif kind == "start":
            pairs = _ATTRIBUTES.findall(match["attributes"])
            # Of two attributes of one name, the first counts.
            attributes = {k.lower(): v.strip("\"'").lower() for k, v in pairs[::-1]}
            hides = not depth and _is_hidden(name, attributes, ignored)
            if hides or len(opened) < DEEPEST:
                opened.append(name)
            if hides:
                depth, hider = len(opened), name
        value = html.unescape(match[0]) if kind == "text" else name
        yield _item(kind, begin, end, value, name in BLOCKS, (was_hidden, depth))
        if kind == "start" and name in RAW and _FOREIGN.isdisjoint(opened):
            begin, end = end, _raw_end(text, name, end)
            # A title without an end would be the rest of the page: it is copied.
            if begin < end < len(text) and not depth:
                yield Item("text", begin, end, html.unescape(text[begin:end]))


def _close(opened: list[str], name: str, kind: str) -> None:
    """Closes the latest element that a tag ends, and what is within it."""
    names = [name] if kind == "end" else _ENDS.get(name, "").split()
    stops = BLOCKS if kind == "end" and name not in BLOCKS else _SCOPES
    for n in range(len(opened) - 1, -1, -1):
        if opened[n] in names:
            del opened[n:]
        elif opened[n] not in stops:
            continue
        return


def _raw_end(text: str, name: str, begin: int) -> int:
    """Returns where the text of a raw element ends."""
    if name == "script":
        return _SCRIPT_TEXT.match(text, begin).end()
    end = re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE).search(text, begin)
    return end.start() if end and name != "plaintext" else len(text)


# -------------------------------------------------------------------------------- XML

# A document has one root, and may have a declaration or a doctype before it.
_PROLOG = re.compile(r"(?s)<\?xml\s|(?:\s|<!--.*?-->|<\?.*?\?>)*+<!DOCTYPE")
# Events of expat. Without a default handler, it expands internal entities.
_KINDS = {
    **dict.fromkeys(("StartElement", "StartCdataSection"), "start"),
    **dict.fromkeys(("EndElement", "EndCdataSection"), "end"),
    **dict.fromkeys(("Comment", "ProcessingInstruction", "Default"), "piece"),
    "CharacterData": "text",
}


def _events(data: bytes, is_fragment: bool) -> tuple[list[tuple], set[int]]:
    """Reads XML with expat, which opens no file by itself.

    Returns (byte, kind, value, attributes) of each event, and the numbers of events
    that begin an element with text among its children; -1 for a fragment with text.
    """
    whole = parser = expat.ParserCreate("utf-8")  # whatever its declaration says
    if is_fragment:
        parser = whole.ExternalEntityParserCreate("", "utf-8")
    events: list[tuple] = []
    mixed: set[int] = set()
    opened = [("", "", -1)] * is_fragment  # names, positions, numbers of events

    def note(event: str, value: str = "", attributes=()) -> None:
        if event == "StartElement":
            line, column = parser.CurrentLineNumber, parser.CurrentColumnNumber + 1
            opened.append((value, f"line {line}, column {column}", len(events)))
        elif event == "EndElement":
            opened.pop()
        elif event in ("CharacterData", "Default") and opened and value.strip():
            mixed.add(opened[-1][2])
        kind = _KINDS[event]
        value = "" if kind == "piece" else value
        events.append((parser.CurrentByteIndex, kind, value, attributes))

    for event in _KINDS:
        setattr(parser, f"{event}Handler", functools.partial(note, event))
    try:
        parser.Parse(data, True)
    except expat.ExpatError as e:
        message = expat.ErrorString(e.code)
        column = e.offset + 1 - 2 * message.startswith("mismatched")  # before "</"
        message = message.replace("asynchronous entity", "mismatched tag")
        if opened[is_fragment:] and re.search("tag|no element", message):
            message += "; <{}> of {} is open".format(*opened[-1])
        elif "undefined entity" in message:
            message += "; XML has amp, lt, gt, quot, apos and numbers such as &#160;"
        raise UserError(
            f"the text is not well-formed XML, line {e.lineno}, column {column}: "
            f"{message}. Correct it, or read it as browsers do, with --markup=html"
        ) from None
    finally:
        parser = None  # before `whole`, whose memory it reads (python/cpython#139400)
    return [*events, (len(data),)], mixed


def _xml(text: str, ignored: Collection[str]) -> Iterator[Item]:
    """Items of XML."""
    end = int(text.startswith("\ufeff"))
    data = text[end:].encode("utf-8", "surrogatepass")
    events, mixed = _events(data, not _PROLOG.match(text, end))
    inline = [-1 in mixed]  # of each open element: is its content inline?
    depth = 0  # of the open element with hidden content, from 1
    for n, (byte, kind, value, attributes) in enumerate(events[:-1]):
        begin, end = end, end + len(data[byte : events[n + 1][0]].decode())
        was_hidden, is_block = depth, False
        if kind == "start":
            hides = not value or _is_hidden(value, attributes, ignored)
            is_block = not inline[-1]
            inline.append(inline[-1] or n in mixed)
            depth = depth or hides * len(inline)
        elif kind == "end":
            depth = depth if depth < len(inline) else 0
            inline.pop()
            is_block = not inline[-1]
        yield _item(kind, begin, end, value, is_block, (was_hidden, depth))


KINDS = {"html": _html, "xml": _xml}
