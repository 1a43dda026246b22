"""Placeholders of a text, such as `%s`, `{name}` and addresses: found and kept.

`protect` replaces each by a symbol, which is one token; a model that was trained to
copy these (`config.data.augment=placeholders`) puts them where they belong; `restore`
replaces each by its placeholder again, exactly once:

    Open {file} in %s.  ->  Open <ph1> in <ph2>.  ->  Öffne <ph1> in <ph2>.

The k-th placeholder of a line gets the k-th symbol, also if two are equal. Those beyond
the last symbol stay as they are, to be demanded as phrases (`Protected.beyond`).

A symbol that the text itself contains is a placeholder, too, so it comes back as it was
and is not taken for another. These are served first; if there are more of them than
symbols, the last symbol stands for all of the text from there to the last one.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_jax.text.counter_random import Stream
from t2t_jax.text.units import MARKS, SYMBOLS, Edits, Pair, Span, splice

MOST_WORDS = 3  # that `replaced` replaces in a pair without placeholders


def _balanced(depth: int) -> str:
    """A pattern of braces with at most `depth` more levels of braces in them."""
    inner = rf"(?:{_balanced(depth - 1)}[^{{}}]*+)*+" if depth else ""
    return rf"\{{[^{{}}]*+{inner}\}}"


_OUTSIDE = r"\s<>\"'`()\[\]{}|«»‹›“”„‘’‚"  # of an address, unless brackets match
_BRACKETS = r"\([^\s()]*\)|\{[^\s{}]*\}"
# A kind of placeholder is a line here. Of those that begin at one place the first
# counts. None may capture groups, read far from each of many places, or match what
# ordinary text has: "5 % of", "10%d", "a 50 %ige", "$5", "{ a, b }", "`quoted'", "a/b",
# "R&D; x", "me@home".
PATTERNS = {
    # What this program itself writes into sources.
    "symbol": "|".join(map(re.escape, (*SYMBOLS, *MARKS))),
    # {n, plural, one {# file} other {# files}}: ICU's MessageFormat
    "icu": r"\{\s*[\w.]+\s*,\s*(?:plural|selectordinal|select)\s*,"
    rf"[^{{}}]*+(?:{_balanced(5)}[^{{}}]*+)++\}}",
    "code": r"(?<![\w`])`(?![\s`])[^`]*(?<!\s)`(?![\w`])",
    "url": rf"\b(?:[a-z][a-z0-9+-]{{0,31}}://|www\.)(?:[^{_OUTSIDE}]|{_BRACKETS})*"
    rf"(?:[^{_OUTSIDE}.,;:!?…]|{_BRACKETS})",
    "mail": r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}",
    # %s %1$s %(name)s %05.2f %-10d %lu; GCC's %qs %q#D %L
    "printf": r"(?<!\d)(?!(?<=\d\s)%[a-z]{2})%(?:[1-9]\d?\$|\(\w+\))?"
    r"(?:[-+0#]*(?:\d{1,4}|\*)|[+0#]+)?(?:\.(?:\d{1,4}|\*))?"
    r"(?:hh?|ll?|[Ljzt]|q[+#]*)?(?:[diouxefgacspnm@]|[A-Z](?![A-Za-z0-9]))",
    "percent": r"%%",  # one sign in a printf format
    "numbered": r"(?<!\d)%L?[1-9]\d?(?![\w$])",  # Qt's %1
    # %PRODUCTNAME %PATH% %{name} $name ${name} $(command)
    "variable": r"(?<!\d)%[A-Z][A-Z0-9_]+%?|%\{[\w.:-]+\}|(?<![A-Za-z0-9$])\$"
    r"(?:\{[^{}\s]+\}|\([^()]+\)|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)",
    # {name} {0} {x:.2f} {{ name }}
    "braces": r"\{\{\s*[^{}\s]+\s*\}\}"
    r"|\{(?:[A-Za-z_][\w.\[\]-]*|\d+)?(?:![rsa])?(?::[^{}\s]*)?\}",
    "entity": r"&(?:[A-Za-z][\w.]+|#\d+|#x[0-9A-Fa-f]+);",  # &amp; &appName;
    "path": r"(?<![\w/.<>~])(?:~(?:/[\w.+@-]*\w)+|(?:/[\w.+@-]*\w){2,})/?",  # /etc/x
}
_ANY = re.compile("|".join(f"(?P<{kind}>{p})" for kind, p in PATTERNS.items()))
_LIKELY = re.compile(r"[<{`%$&/@]|www\.")  # in every placeholder; a fast first test
_SYMBOL = re.compile(PATTERNS["symbol"])
# What a translation copies as a whole, so longer than a unit: 1,662 and Jean-Luc.
_WORD = re.compile(r"\w+(?:[-.,:/'’&@]\w+)*")


class Placeholder(NamedTuple):
    """A placeholder of a text: its span in characters, and its name in `PATTERNS`."""

    begin: int
    end: int
    kind: str


class Protected(NamedTuple):
    """A text whose placeholders are symbols.

    Attributes:
      edits: where each placeholder was, and where its symbol is.
      symbols, originals: those in the text, in order, and the placeholder of each.
      beyond: the placeholders that the text still has, in order.
      kinds: the number of placeholders of each kind in the text before.
    """

    text: str
    edits: Edits
    symbols: tuple[str, ...]
    originals: tuple[str, ...]
    beyond: tuple[str, ...]
    kinds: Counter[str]


class RestoredText(NamedTuple):
    """A translation with its placeholders.

    Attributes:
      edits: where each symbol was, and what is there now.
      missing: placeholders of the source that are not in it, or not often enough.
      repeated: those that are in it too often, or not in the source. Symbols were
        removed; placeholders that were spelled out are still in the text.
    """

    text: str
    edits: Edits
    missing: tuple[str, ...]
    repeated: tuple[str, ...]


def find(text: str) -> list[Placeholder]:
    """Finds the placeholders of a text, in order; none overlap."""
    if not _LIKELY.search(text):
        return []
    return [Placeholder(*m.span(), m.lastgroup) for m in _ANY.finditer(text)]


def protect(text: str, symbols: Sequence[str] = SYMBOLS) -> Protected:
    """Replaces placeholders by symbols; `symbols` is () if the model knows none."""
    matches, limit = find(text), len(symbols)
    kinds = Counter(match.kind for match in matches)
    urgent = [p for p in matches if _SYMBOL.search(text, p.begin, p.end)]
    if len(urgent) > limit > 0:
        merged = Placeholder(urgent[limit - 1].begin, urgent[-1].end, "symbol")
        urgent[limit - 1 :] = [merged]
        matches = [p for p in matches if p.end <= merged.begin or p.begin >= merged.end]
        matches = sorted([*matches, merged])
    ranked = dict.fromkeys([*urgent, *matches])  # each once, the urgent ones first
    selected = sorted([*ranked][:limit])
    beyond = tuple(text[p.begin : p.end] for p in matches if p not in selected)
    used = tuple(symbols[: len(selected)])
    spans = [(p.begin, p.end) for p in selected]
    originals = tuple(text[begin:end] for begin, end in spans)
    return Protected(*splice(text, spans, used), used, originals, beyond, kinds)


def restore(translation: str, protected: Protected) -> RestoredText:
    """Replaces symbols by placeholders, each exactly once; reports what is wrong.

    A symbol that comes again, or that the source has not, is taken out; of equal
    placeholders each may stand for another. The text between is not changed.
    """
    original_of = dict(zip(protected.symbols, protected.originals, strict=True))
    remaining, repeated = Counter(protected.originals), []
    spans, replacements = [], []
    # They are the text's own if there were none to hide them.
    symbols_are_text = any(map(_SYMBOL.search, protected.beyond))
    for match in () if symbols_are_text else _SYMBOL.finditer(translation):
        begin, end = match.span()
        original = original_of.get(match[0], "")
        if remaining[original]:
            remaining[original] -= 1
        else:
            repeated.append(original or match[0])
            # Of the spaces around it, one goes with it.
            around = translation[begin - 1 : begin], translation[end : end + 1]
            original, end = "", end + all(map(str.isspace, around))
        spans.append((begin, end))
        replacements.append(original)
    text, edits = splice(translation, spans, replacements)
    placed = [after for _, after in edits if after[0] < after[1]]
    spelled = Counter(
        text[p.begin : p.end]
        for p in find(text)
        if not any(begin < p.end and p.begin < end for begin, end in placed)
    )
    beyond = Counter(protected.beyond)
    missing = *remaining.elements(), *(beyond - spelled).elements()
    repeated += (spelled - beyond).elements()
    return RestoredText(text, edits, missing, tuple(repeated))


def replaced(pair: Pair, draws: Stream, _: Sequence[Pair]) -> Pair:
    """Replaces what both sides have by symbols, so that a model learns to copy these.

    In a pair with placeholders all are replaced, if both sides have the same. In others
    it is one to `MOST_WORDS` words that both sides have exactly once: with a digit, or
    with a capital and not the first of a side. The symbols follow one another, from a
    drawn one, in the order of the source.
    """
    by_text = [_by_text(side, (p[:2] for p in find(side))) for side in pair]
    if not any(by_text):
        words = [_by_text(s, (m.span() for m in _WORD.finditer(s))) for s in pair]
        starts = [next(iter(places), "") for places in words]
        copied = [
            word
            for word, spans in words[0].items()
            if len(spans) == 1 == len(words[1].get(word, ()))
            and (re.search(r"\d", word) or (word[0].isupper() and word not in starts))
        ]
        copied.sort(key=lambda _: draws.uniform())
        copied = copied[: 1 + draws.below(MOST_WORDS)]
        by_text = [{word: places[word] for word in copied} for places in words]
    source, target = by_text
    sizes = [{k: len(v) for k, v in places.items()} for places in by_text]
    # Or the text has symbols of its own.
    if not source or sizes[0] != sizes[1] or any(map(_SYMBOL.search, pair)):
        return pair
    # Of equal ones the first of one side is the first of the other.
    links = sorted(
        link for k in source for link in zip(source[k], target[k], strict=True)
    )[: len(SYMBOLS)]
    symbols = SYMBOLS[draws.below(len(SYMBOLS) - len(links) + 1) :]
    by_place = sorted(zip((t for _, t in links), symbols, strict=False))
    return (
        splice(pair[0], [s for s, _ in links], symbols[: len(links)])[0],
        splice(pair[1], *zip(*by_place, strict=True))[0],
    )


def _by_text(text: str, spans: Iterable[Span]) -> dict[str, list[Span]]:
    """The spans of each different string, in order."""
    by_text = defaultdict(list)
    for begin, end in spans:
        by_text[text[begin:end]].append((begin, end))
    return by_text
