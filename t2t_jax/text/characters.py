"""Classes of characters, looked up for whole arrays of code points at once.

A letter's class is its script, read off its Unicode name, because Python has no table
of scripts. Each different character of a text is looked up once.
"""

import unicodedata

import numpy as np

_NAMES = (
    "Latin Greek Cyrillic Armenian Georgian Hebrew Arabic Devanagari Bengali Gujarati "
    "Gurmukhi Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Khmer "
    "Ethiopic Hangul"
)
_HAN_AND_KANA = "CJK HIRAGANA KATAKANA KATAKANA-HIRAGANA HALFWIDTH IDEOGRAPHIC"
# The first word of a letter's name -> its script. A Japanese word mixes three scripts.
_SCRIPTS = {
    **{script.upper(): script for script in _NAMES.split()},
    "FULLWIDTH": "Latin",
    **dict.fromkeys(_HAN_AND_KANA.split(), "Han and kana"),
}
# Names of letters that any language may use: µ, ª, º, Ω, K, and letters of formulas.
_ANY_LANGUAGE = {
    *("MICRO", "FEMININE", "MASCULINE", "OHM", "KELVIN", "ANGSTROM", "MODIFIER"),
    *("SUPERSCRIPT", "SUBSCRIPT", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT"),
    *("BLACK-LETTER", "ALEF", "BET", "GIMEL", "DALET", "PLANCK", "INFORMATION"),
}
KINDS = (
    *("space", "digit", "mark", "symbol", "punctuation", "any language"),
    *("control", "invisible", "private", "replacement", "soft hyphen"),
)
# Scripts that put no space between words.
UNSPACED = {"Han and kana", "Thai", "Lao", "Khmer", "Myanmar"}
SCRIPTS = (*dict.fromkeys(_SCRIPTS.values()), "another script")
CLASSES = (*KINDS, *SCRIPTS)
CLASS = {name: index for index, name in enumerate(CLASSES)}
FIRST_SCRIPT = len(KINDS)  # classes from here on are letters of one script
_UNKNOWN = 255
_table = np.full(0x110000, _UNKNOWN, np.uint8)


def classes_of(codes_c: np.ndarray) -> np.ndarray:
    """Returns the class of each code point: an index of `CLASSES`, uint8 [codes]."""
    classes_c = _table[codes_c]
    unknown_c = classes_c == _UNKNOWN
    if unknown_c.any():
        for code in np.unique(codes_c[unknown_c]):
            _table[code] = CLASS[class_name(chr(code))]
        classes_c = _table[codes_c]
    return classes_c


def class_name(character: str) -> str:
    """Returns the name of a character's class, one of `CLASSES`."""
    if character == "\ufffd":
        return "replacement"
    if character == "\xad":
        return "soft hyphen"
    category = unicodedata.category(character)
    if category in ("Lu", "Ll", "Lt", "Lo", "Lm"):
        name = unicodedata.name(character, "").partition(" ")[0]
        if name in _ANY_LANGUAGE:
            return "any language"
        return _SCRIPTS.get(name, "another script")
    if category == "Cc":
        return "space" if character == "\t" else "control"
    if category == "Cf":
        # Joiners belong to the spelling of Persian, Hindi and of some emoji.
        return "mark" if character in "\u200c\u200d" else "invisible"
    if category in ("Co", "Cn", "Cs"):
        return "private"
    kinds = {"Z": "space", "N": "digit", "M": "mark", "S": "symbol"}
    if category == "Nd" or category[0] != "N":
        return kinds.get(category[0], "punctuation")
    return "symbol"  # ², ½, Ⅷ
