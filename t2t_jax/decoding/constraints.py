"""Constraints on translations: a prefix, required phrases and forbidden phrases.

Expands what a caller passes for all lines into checked constraints of each line.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.inputs import check_text
from t2t_jax.decoding.phrases import Phrases
from t2t_jax.io.errors import UserError


class Constraints(NamedTuple):
    """Constraints on the translation of one line.

    Attributes:
      prefix: token ids that it begins with.
      must, must_not: phrases that it contains, and that it does not contain.
      begun: what the token after the prefix begins with.
    """

    prefix: tuple[int, ...] = ()
    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    begun: str = ""


def constraints_for(
    count: int,
    vocabulary: Vocabulary,
    phrases: Phrases,
    prefix: str | Sequence[str | None] | None,
    must: str | Sequence,
    must_not: str | Sequence,
    first_line: int = 1,
) -> list[Constraints]:
    """Returns the constraints of each of `count` lines.

    Args:
      prefix: a text for all lines, or a list with one for each (None or "" for none).
        Trailing white space is removed; the last word may continue.
      must, must_not: a phrase, a list of phrases for all lines, or a list with the
        phrases of each line.
      first_line: the number of the first line in errors.

    Raises:
      UserError: a list of the wrong length; an empty phrase or one with a line break;
        or constraints that contradict each other.
    """
    prefixes = _for_each(prefix, count, "prefix")
    phrases_of = [
        _phrases_for_each(value, count, name)
        for name, value in (("must", must), ("must_not", must_not))
    ]
    for text in dict.fromkeys(prefixes):
        check_text(text or "")
    # A space belongs to the piece after it (SentencePiece), so a trailing one would
    # become a piece of its own and force a second space before the next word.
    prefix_ids = vocabulary.encode([(text or "").rstrip() for text in prefixes])
    constraints = []
    for ids, must, must_not in zip(prefix_ids, *phrases_of, strict=True):
        last = vocabulary.spelling(ids[-1]) if ids else ""
        # A last piece with the space after it (byte-pair codes) ends the word, so any
        # piece may stand for it that begins with the same letters.
        begun = last.rstrip(" ") if isinstance(last, str) and last[-1:] == " " else ""
        kept = tuple(ids[:-1] if begun else ids)
        constraints.append(Constraints(kept, must, must_not, begun))
    # Usually all lines have the same constraints; each distinct one is checked once.
    checked: set[Constraints] = set()
    for number, of_line in enumerate(constraints, first_line):
        if of_line.must_not and of_line not in checked:
            text = prefixes[number - first_line]
            _check(of_line, text, number, vocabulary, phrases)
            checked.add(of_line)
    return constraints


def _check(
    constraints: Constraints,
    text: str | None,
    number: int,
    vocabulary: Vocabulary,
    phrases: Phrases,
) -> None:
    """Raises UserError if a prefix or a required phrase contains a forbidden one."""
    prefix, must, must_not, begun = constraints
    forbidden = phrases.forbidden(must_not)
    next_v = forbidden.next_sv[forbidden.after(prefix)]
    # Of the tokens that go on with the prefix, one must be left.
    goes_on_v = phrases.begins(begun)
    if forbidden.matches(prefix) or (next_v[goes_on_v] == forbidden.matched).all():
        raise UserError(
            f"line {number}: prefix={text!r} contains a phrase of must_not="
            f"{[*must_not]}; change one of them"
        )
    # EOS ends a phrase's last word. A prefix is checked without it, since its last word
    # may continue: "a cat" can become "a cats", which does not contain "cat".
    for phrase, ids in zip(must, vocabulary.encode(must, end=True), strict=True):
        if forbidden.matches(ids):
            raise UserError(
                f"line {number}: must={phrase!r} contains a phrase of must_not="
                f"{[*must_not]}; change one of them"
            )


def _for_each(value, count: int, name: str) -> list:
    """Expands a text for all lines, or checks a list of one for each."""
    if value is None or isinstance(value, str):
        return [value] * count
    value = _as_list(value, name)
    if len(value) != count:
        raise UserError(
            f"{name} has {len(value):,} entries for {count:,} lines; want one for "
            "each, or one text for all"
        )
    for entry in value:
        if entry is not None and not isinstance(entry, str):
            raise UserError(f"{name} has {entry!r}; want a text, or None")
    return value


def _phrases_for_each(value, count: int, name: str) -> list[tuple[str, ...]]:
    """Expands phrases for all lines, or checks a list with those of each line."""
    value = [value] if isinstance(value, str) else _as_list(value or (), name)
    if all(isinstance(entry, str) for entry in value):
        return [_phrases(value, name)] * count
    if len(value) != count:
        raise UserError(
            f"{name} has {len(value):,} lists of phrases for {count:,} lines; want one "
            "list for each line, or one list of phrases for all"
        )
    return [
        _phrases([entry] if isinstance(entry, str) else entry or (), name)
        for entry in value
    ]


def _as_list(value, name: str) -> list:
    if not isinstance(value, Iterable):
        raise UserError(f"{name}={value!r}; want a text, or a list")
    return list(value)


def _phrases(entries: Sequence[str], name: str) -> tuple[str, ...]:
    """Strips, checks and deduplicates phrases; keeps their order."""
    phrases = []
    for entry in entries:
        phrase = entry.strip() if isinstance(entry, str) else entry
        if not isinstance(phrase, str) or not phrase or len(phrase.splitlines()) > 1:
            raise UserError(
                f"{name} has {entry!r}; want phrases, each of one line and not empty"
            )
        check_text(phrase)
        phrases.append(phrase)
    return tuple(dict.fromkeys(phrases))
