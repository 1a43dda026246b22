"""Texts with markup: HTML as browsers read it, and XML.

A `Document` is a text and the positions of its segments. A segment is the text between
two block boundaries as a reader sees it: entities decoded, white space collapsed.
Translations replace segments; all else of the input is copied. Nothing is serialised,
so a document without changes is the same string.

Block tags end a segment. Inline tags are within one; `tag_placement` finds their places
in the translation. Hidden content (elements of `HIDDEN` and ignored ones,
`translate="no"`, class `notranslate`, comments, processing instructions) is copied: the
model does not see it, and within a sentence it moves as one piece.

HTML: elements that are not in `BLOCKS` are inline, as in browsers. End tags that may be
left out (of p, li, td, ...) are implied where they tell where hidden content ends.

XML: an element with text next to it, in the content of its parent, is inline, and so is
all within it; an element with only white space around it is a block. A text without one
root is a fragment. CDATA sections, and references to other entities than the five
predefined ones, are hidden content: no entity is expanded, and no file is read.
"""

import bisect
import collections
import functools
import html
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.parsers import expat

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.text.tag_placement import Mark, place
from t2t_jax.text.units import Aligned


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
_SCOPES = _names("html table td th caption button template marquee object")
_CELLS, _GROUPS = _names("td th"), _names("thead tbody tfoot colgroup caption")
_TABLE = _names("table template")
# A start tag: (elements of which it closes the latest, unless one of these is within).
_CLOSES = {
    **dict.fromkeys(BLOCKS - _names("button option optgroup"), (_names("p"), _SCOPES)),
    "li": (_names("li"), _SCOPES | _names("ul ol menu")),
    **dict.fromkeys(("dt", "dd"), (_names("dt dd"), _SCOPES | {"dl"})),
    **dict.fromkeys(("option", "optgroup"), (_names("option"), _names("select"))),
    **dict.fromkeys(_CELLS, (_CELLS, _TABLE)),
    "tr": (_names("tr colgroup caption"), _TABLE),
    **dict.fromkeys(_GROUPS, (_GROUPS, _TABLE)),
}
# Limits of open elements: of all, as in browsers, and of those of a segment; deeper
# tags are copied as if they had no partner.
DEEPEST, DEEPEST_INLINE = 512, 100


class Item(NamedTuple):
    """A part of a text with markup.

    Attributes:
      kind: "text"; "start" or "end" of an inline element; "piece", which has no text;
        "block", a boundary of segments.
      begin, end: in characters of the input.
      value: a tag's name; a text with its entities decoded.
    """

    kind: str
    begin: int
    end: int
    value: str = ""


class Document:
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
        run: list[Item] = []
        for item in [*items, Item("block", len(text), len(text))]:
            if item.kind == "block":
                self._add_segment(run)
                run = []
            elif run and item.kind == run[-1].kind == "text":
                begin, value = run[-1].begin, run.pop().value + item.value
                run.append(Item("text", begin, item.end, value))
            else:
                run.append(item)
        self.inline = [bool(parts) for _, _, parts in self._segments]

    def assemble(
        self, translations: Sequence[str], aligned: Sequence[Aligned | None]
    ) -> str:
        """Replaces the segments; those that are unchanged keep their bytes.

        Args:
          translations: of `segments`, as plain text.
          aligned: their units and links; read where `inline` is true.

        Raises:
          ValueError: there is not one of both for each segment; or an alignment is
            missing, or its units or links are out of range.
        """
        sizes = len(translations), len(aligned)
        if sizes != (len(self.segments),) * 2:
            raise ValueError(
                f"got {sizes} translations and alignments; want one of both for each "
                f"of {len(self.segments)} segments"
            )
        self.report = collections.Counter()
        output, at = [], 0
        for n, (begin, end, parts) in enumerate(self._segments):
            written = html.escape(translations[n], quote=False)
            if translations[n] == self.segments[n]:
                written = self._text[begin:end]
            elif parts:
                if (links := aligned[n]) is None:
                    raise ValueError(
                        f"segment {n} has tags; want its Aligned, got None"
                    )
                written, counts = place(self.segments[n], parts, translations[n], links)
                self.report += counts
            output += self._text[at:begin], written
            at = end
        return "".join([*output, self._text[at:]])

    def _add_segment(self, run: Sequence[Item]) -> None:
        """Makes a segment of what is between block boundaries, if it has a word."""
        run = _join_pieces(run)
        filled = [n for n, item in enumerate(run) if _has_text(item)]
        if not any(re.search(r"\w", run[n].value) for n in filled):
            return
        first, last = filled[0], filled[-1]
        partner = _pairs(run)
        # Tags around the whole text, and pieces at its ends, stay outside.
        kept = [n for n in partner if first <= partner[n] <= last]
        low, high = min([first, *kept]), max([last, *kept])
        begin, end = run[low].begin, run[high].end
        if high == last:
            end = _CONTENT.match(self._text, run[last].begin, end).end()
        if low == first:
            begin = _BLANK.match(self._text, begin, end).end()
        before = _white_space(run, slice(-1, None))
        after = _white_space(run[::-1], slice(1))[::-1]
        text, length, parts = [" "], 0, []  # the space is that before the text
        levels = [parts]
        for n, item in enumerate(run[low : high + 1], low):
            value = item.value if item.kind == "text" else ""
            value = value.lstrip() if len(text) == 1 else value
            value = _COLLAPSED.sub(" ", value.rstrip() if n == last else value)
            if item.kind != "text":
                raw, separates = self._text[item.begin : item.end], item.value == "br"
                mark = Mark(raw, item.kind, length, before[n], after[n], separates)
                if item.kind == "end" and n in partner:
                    levels.pop()
                    levels[-1][-1].close = mark
                else:
                    levels[-1].append(mark)
                    levels += [mark.parts] * (n in partner)
                value = " " if separates else ""
            value = value.removeprefix(" ") if text[-1].endswith(" ") else value
            text += [value] * bool(value)
            length += len(value)
        self.segments.append("".join(text[1:]).rstrip())
        self._segments.append((begin, end, parts))


def parse(text: str, kind: str, ignored: Collection[str] = ()) -> Document:
    """Finds the segments of a text with markup.

    Args:
      text: of a whole page, or a part of one.
      kind: "html" or "xml".
      ignored: names of further elements whose content is not translated.

    Raises:
      UserError: the kind is unknown; the XML is not well-formed.
    """
    if kind not in KINDS:
        raise UserError(f"markup {kind!r} is unknown{did_you_mean(kind, KINDS)}")
    document = Document(text, KINDS[kind](text, frozenset(ignored)))
    if not re.search("[<&\r\n]", text):  # a line as it is, with all its white space
        document.segments, document.inline = [text], [False]
        document._segments = [(0, len(text), [])]
    return document


# --------------------------------------------------------------------------- segments

_COLLAPSED = re.compile(r"[ \t\n\f\r]+")  # by HTML: without U+00A0
_WHITE = r"(?:\s|&(?:nbsp|#0*(?:9|10|13|32|160)|#[xX]0*(?:9|[aAdD]|20|[aA]0));)*+"
_BLANK, _CONTENT = re.compile(_WHITE), re.compile(rf"(?:{_WHITE}(?:[^\s&]++|&))*")


def _has_text(item: Item) -> bool:
    return item.kind == "text" and bool(item.value.strip())


def _join_pieces(run: Sequence[Item]) -> list[Item]:
    """Makes one piece of neighbours without text; white space in it makes it a br."""
    partner = _pairs(run)
    filled = [n for n, item in enumerate(run) if _has_text(item)]
    joined: list[Item] = []
    n = 0
    while n < len(run):
        end = partner.get(n, n)
        if end < n or bisect.bisect(filled, n) < bisect.bisect(filled, end):
            end = n
        if end > n or run[n].kind == "piece":
            text = [item for item in joined[-1:] if item.kind == "text"]
            near = joined[-1 - bool(text and not _has_text(text[0])) :]
            near = near if near and near[0].kind == "piece" else []
            parts = [*near, *run[n : end + 1]]
            del joined[len(joined) - len(near) :]
            is_break = any(part.kind == "text" or part.value == "br" for part in parts)
            span = parts[0].begin, parts[-1].end
            joined.append(Item("piece", *span, "br" if is_break else ""))
        else:
            joined.append(run[n])
        n = end + 1
    return joined


def _pairs(run: Sequence[Item]) -> dict[int, int]:
    """Pairs start and end tags that nest; tags that cross or miss the other have none.

    Returns:
      For both, the number of the other one's item.
    """
    partner: dict[int, int] = {}
    opened: list[int] = []
    names: collections.Counter[str] = collections.Counter()
    for n, item in enumerate(run):
        if item.kind == "start" and len(opened) < DEEPEST_INLINE:
            opened.append(n)
            names[item.value] += 1
        elif item.kind == "end" and names[item.value]:
            if run[opened[-1]].value == item.value:
                partner[n], partner[opened[-1]] = opened[-1], n
            closed = ""
            while closed != item.value:
                closed = run[opened.pop()].value
                names[closed] -= 1
    return partner


def _white_space(run: Sequence[Item], end: slice) -> list[bool]:
    """Whether the text before each item, tags aside, has white space at an end."""
    spaces, white = [], False
    for item in run:
        spaces.append(white)
        if item.kind in ("text", "piece"):
            white = item.kind == "text" and item.value[end].isspace()
    return spaces


def _is_hidden(name: str, attributes: Mapping[str, str], names: Collection) -> bool:
    marks = attributes.get("translate"), attributes.get("its:translate")
    classes = attributes.get("class", "").split()
    return name in names or "no" in marks or "notranslate" in classes


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
    r"""(?: <!--(?!-?>) (?:(?!-->|</?script[\s/>]).)*+ (?: <script[\s/>]
              (?:(?!-->|</script[\s/>]).)*+ (?:</script[\s/>])?+
              (?:(?!-->|</?script[\s/>]).)*+ )*+
          | (?!</script[\s/>]). )*+""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE | re.ASCII,
)


def _html(text: str, ignored: Collection[str]) -> Iterator[Item]:
    """Items of HTML."""
    ignored = {name.lower() for name in ignored} | HIDDEN
    opened: list[str] = []
    hidden: tuple[int, int, str] | None = None  # begin, elements around it, name
    at = int(text.startswith("\ufeff"))
    while match := _TOKEN.match(text, at):
        begin, at = match.span()
        name, kind = (match["name"] or "").lower(), "start"
        if not match["closed"]:  # browsers drop a tag that the text's end cuts
            kind = "text" if match["text"] else "piece"
        elif match["slash"]:
            kind = "end"
            of_table = name == "table" or name in _CELLS | _GROUPS | {"tr"}
            stops = _TABLE if of_table else _SCOPES if name in BLOCKS else BLOCKS
            _close(opened, {name}, stops)
        else:
            _close(opened, *_CLOSES.get(name, ((), ())))
        if hidden and len(opened) <= hidden[1]:
            own = kind == "end" and name == hidden[2]
            yield _boundary(hidden[2], "piece", hidden[0], at if own else begin)
            hidden = None
            if own:
                continue
        if name in VOID or (name in _FOREIGN and match["tail"].endswith("/")):
            kind = "piece"
        elif kind == "start":
            pairs = _ATTRIBUTES.findall(match["attributes"])
            # Of two attributes of one name, the first counts.
            attributes = {k.lower(): v.strip("\"'").lower() for k, v in pairs[::-1]}
            if not hidden and _is_hidden(name, attributes, ignored):
                hidden = begin, len(opened), name
                opened.append(name)
            elif len(opened) < DEEPEST:
                opened.append(name)
        if not hidden:
            value = html.unescape(match[0]) if kind == "text" else name
            yield _boundary(name, kind, begin, at, value)
        if kind == "start" and name in RAW and _FOREIGN.isdisjoint(opened):
            begin, at = at, _raw_end(text, name, at)
            # A title without an end would be the rest of the page: it is copied.
            if begin < at < len(text) and not hidden:
                yield Item("text", begin, at, html.unescape(text[begin:at]))
    if hidden:
        yield _boundary(hidden[2], "piece", hidden[0], len(text))


def _boundary(name: str, kind: str, begin: int, end: int, value: str = "") -> Item:
    return Item("block" if name in BLOCKS else kind, begin, end, value)


def _close(opened: list[str], names: Collection[str], stops: Collection[str]) -> None:
    """Closes the latest of these elements, and what is within it."""
    for n in range(len(opened) - 1, -1, -1):
        if opened[n] in names:
            del opened[n:]
        elif opened[n] not in stops:
            continue
        return


def _raw_end(text: str, name: str, at: int) -> int:
    """Returns where the text of a raw element ends."""
    if name == "script":
        return _SCRIPT_TEXT.match(text, at).end()
    end = re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE).search(text, at)
    return end.start() if end and name != "plaintext" else len(text)


# -------------------------------------------------------------------------------- XML

# A document has one root, and may have a declaration or a doctype before it.
_PROLOG = re.compile(
    r"<\?xml\s|\s*+(?:<!--.*?-->\s*+|<\?.*?\?>\s*+)*+<!DOCTYPE", re.DOTALL
)
ROOT = "<_>"  # begins what is put around a fragment
# What expat reports. Without a default handler, it expands internal entities.
_KINDS = (
    *("StartElement", "EndElement", "CharacterData", "StartCdataSection"),
    *("EndCdataSection", "Comment", "ProcessingInstruction", "Default"),
)
Event = tuple[int, str, list]  # the byte where it begins, its kind, its arguments


def _events(data: bytes, wrapped: bool) -> tuple[list[Event], set[int]]:
    """Reads XML with expat, which opens no file by itself.

    Returns:
      (events; the numbers of those that begin an element with text among its children).
    """
    parser = expat.ParserCreate("utf-8")  # whatever its declaration says
    events: list[Event] = []
    mixed: set[int] = set()
    opened: list[tuple[str, str, int]] = []

    def position(line: int, column: int) -> str:
        return f"line {line}, column {column + 1 - len(ROOT) * (wrapped and line == 1)}"

    def note(kind: str, *values) -> None:
        if kind == "StartElement":
            here = position(parser.CurrentLineNumber, parser.CurrentColumnNumber)
            opened.append((values[0], here, len(events)))
        elif kind == "EndElement":
            opened.pop()
        elif kind in ("CharacterData", "Default") and opened and values[0].strip():
            mixed.add(opened[-1][2])
        events.append((parser.CurrentByteIndex, kind, [*values, "", ""]))

    for kind in _KINDS:
        setattr(parser, f"{kind}Handler", functools.partial(note, kind))
    try:
        parser.Parse(data, True)
    except expat.ExpatError as e:
        message = expat.ErrorString(e.code)
        column = e.offset - 2 * message.startswith("mismatched")  # where "</" begins
        message = f"{position(e.lineno, column)}: {message}"
        if opened[wrapped:] and re.search("tag|no element", message):
            message += "; <{}> of {} is open".format(*opened[-1])
        elif "undefined entity" in message:
            message += "; XML has amp, lt, gt, quot, apos and numbers such as &#160;"
        raise UserError(
            f"the text is not well-formed XML, {message}. Correct it, or read it as "
            "browsers do, with --markup=html"
        ) from None
    return [*events, (len(data), "", [""])], mixed


def _xml(text: str, ignored: Collection[str]) -> Iterator[Item]:
    """Items of XML."""
    at = int(text.startswith("\ufeff"))
    text = text[at:]
    wrapped = not _PROLOG.match(text)
    if wrapped:
        text, at = f"{ROOT}{text}</{ROOT[1:]}", at - len(ROOT)
    data = text.encode("utf-8", "surrogatepass")
    events, mixed = _events(data, wrapped)
    inline = [False]  # of each open element: is its content inline?
    hidden: tuple[int, int] | None = None  # begin, elements around it
    for n, ((byte, event, values), after) in enumerate(itertools.pairwise(events)):
        begin, at = at, at + len(data[byte : after[0]].decode())
        kind, around = "piece", inline[-1]
        if event in ("StartElement", "StartCdataSection"):
            kind, attributes = "start", values[1] or {}
            is_hidden = not values[0] or _is_hidden(values[0], attributes, ignored)
            if is_hidden and not hidden:
                hidden = begin, len(inline)
            inline.append(around or n in mixed)
        elif event in ("EndElement", "EndCdataSection"):
            kind = "end"
            inline.pop()
            around = inline[-1]
            if hidden and len(inline) == hidden[1]:
                begin, hidden, kind = hidden[0], None, "piece"
        elif event == "CharacterData":
            kind = "text"
        if event.startswith(("Start", "End")) and not around:
            kind = "block"
        if not hidden:
            yield Item(kind, begin, at, "" if event == "Comment" else values[0])


KINDS = {"html": _html, "xml": _xml}
