"""The identity of a language, however its code is written.

`de`, `DE`, `ger`, `deu`, `deu_Latn` and `de_DE` are German. Tables and comparisons use
`identify`. What a vocabulary, the name of a file or a config says stays as written.
"""

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

OTHER = 9  # the distance of another language
# Usual names of a side that happen to be codes of small languages.
PRIVATE = {"src"}
# Norwegian as most of it is written; Korean letters alone are written Korean.
_CODES, _SCRIPTS = {"nb": "no"}, {"Hang": "Kore"}
_MODIFIERS = {"latin": "latn", "cyrillic": "cyrl"}  # of POSIX


class Language(NamedTuple):
    """A language, as its code says.

    Attributes:
      code: two letters of ISO 639-1, or three of ISO 639-3, of the macrolanguage, such
        as `zh` of `cmn`; the first part of a code that is unknown.
      script: of the code, or implied by its region (ISO 15924); empty if neither.
      region: such as `BR`, with variants; empty if the code states none.
      usual: the language's usual script; empty if the code is unknown.
      tag: its tag in BCP 47, such as `zh-Hant`; an unknown code as it is written.
    """

    code: str
    script: str
    region: str
    usual: str
    tag: str


@functools.cache
def identify(code: str) -> Language:
    """Identifies a language by its code in ISO 639, FLORES, BCP 47 or POSIX.

    A code that is unknown, such as `clean`, is a language of its own.
    """
    import langcodes  # takes a tenth of a second

    # POSIX: de_DE.UTF-8, sr_RS.UTF-8@latin.
    plain, _, modifier = code.lower().partition("@")
    name, *subtags = re.split("[-_]", plain.partition(".")[0])
    subtags = [*filter(None, [_MODIFIERS.get(modifier)]), *subtags]
    unknown = Language(name, "", "-".join(subtags), "", code)
    if name in PRIVATE or len(name) not in (2, 3):
        return unknown
    try:
        tag = langcodes.standardize_tag("-".join((name, *subtags)), macro=True)
        parsed = langcodes.Language.get(tag, normalize=False)
    except ValueError:
        return unknown
    if not (parsed.language and parsed.is_valid()) or parsed.extlangs:  # as `deu_Lat`
        return unknown
    usual = langcodes.Language.get(parsed.language).maximize().script
    script = parsed.script or (parsed.territory and parsed.maximize().script) or ""
    script = _SCRIPTS.get(script, script)
    parts = [p for p in tag.split("-") if _SCRIPTS.get(p, p) != usual]
    region = "-".join(p for p in parts[1:] if p != parsed.script)
    code = _CODES.get(parsed.language, parsed.language)
    return Language(code, script, region, usual, "-".join(parts))


def distance(code_a: str, code_b: str) -> int:
    """Compares two codes.

    Returns:
      0: the same. 1: one states a region, as `pt` and `pt-BR`; 2: both do. 2 more if
      the script of only one is stated, and unusual. `OTHER`: two languages or scripts.
    """
    a, b = identify(code_a), identify(code_b)
    if a.code != b.code or (a.script and b.script and a.script != b.script):
        return OTHER
    regions = 0 if a.region == b.region else 1 + bool(a.region and b.region)
    return regions + 2 * ((a.script or a.usual) != (b.script or b.usual))


def same_language(code_a: str, code_b: str) -> bool:
    """True for codes of one language, of any regions, and not of two scripts."""
    return distance(code_a, code_b) < OTHER


def pair_of(name: str) -> tuple[str, str] | None:
    """Divides a name such as `pt-BR-en`; None if it is not of two known languages."""
    parts = name.split("-")
    halves = [("-".join(parts[:i]), "-".join(parts[i:])) for i in range(1, len(parts))]
    pairs = [pair for pair in halves if all(identify(code).usual for code in pair)]
    # zh-TW-de is not Twi of Germany: capitals are a region's.
    return min(pairs, key=lambda pair: pair[1][:2].isupper(), default=None)


def nearest(code: str, codes: Iterable[str]) -> str | None:
    """Returns the code of the same language; of several, the nearest, itself first."""
    ranked = [((distance(code, c), c != code), c) for c in codes]
    rank, best = min(ranked, default=((OTHER, True), None), key=lambda row: row[0])
    return best if rank[0] < OTHER else None
