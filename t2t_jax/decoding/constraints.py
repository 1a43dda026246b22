"""What a caller asks of the translations of some lines, checked and line by line."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.decoding.inputs import check_text
from t2t_jax.decoding.phrases import Phrases
from t2t_jax.terminal.errors import UserError


class Constraints(NamedTuple):
    """What the translation of one line must begin with, must hold and must not hold."""

    prefix: tuple[int, ...] = ()
    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()


def constraints_for(
    count: int,
    vocabulary: Vocabulary,
    phrases: Phrases,
    prefix: str | Sequence[str | None] | None,
    must: str | Sequence,
    must_not: str | Sequence,
    first_line: int = 1,
) -> list[Constraints]:
    """The wish for each of `count` lines.

    Args:
      prefix: text for all lines, or one for each (None or "" for none). White space at
        its end is left out; a word that it ends in may go on.
      must, must_not: a phrase, phrases for all lines, or for each line its phrases.
      first_line: the number of the first line, in errors.

    Raises:
      UserError: a list of another length, a phrase that is empty or not one line, or
        wishes that contradict each other.
    """
    prefixes = _for_each(prefix, count, "prefix")
    phrases_of = [
        _phrases_for_each(value, count, name)
        for name, value in (("must", must), ("must_not", must_not))
    ]
    for text in dict.fromkeys(prefixes):
        check_text(text or "")
    begun = vocabulary.encode([(text or "").rstrip() for text in prefixes])
    wishes = [
        Constraints(tuple(ids), *both)
        for ids, *both in zip(begun, *phrases_of, strict=True)
    ]
    checked: set[Constraints] = set()
    for number, wish in enumerate(wishes, first_line):
        if wish.must_not and wish not in checked:
            _check(wish, number, vocabulary, phrases)
            checked.add(wish)
    return wishes


def _check(
    wish: Constraints, number: int, vocabulary: Vocabulary, phrases: Phrases
) -> None:
    """Tells of a wish that says what it forbids."""
    forbidden = phrases.forbidden(wish.must_not)
    if forbidden.finds(wish.prefix):
        raise UserError(
            f"line {number}: prefix={vocabulary.decode([wish.prefix])[0]!r} holds what "
            f"must_not={[*wish.must_not]} forbids; change one of them"
        )
    for phrase, ids in zip(
        wish.must, vocabulary.encode(wish.must, end=True), strict=True
    ):
        if forbidden.finds(ids):
            raise UserError(
                f"line {number}: must={phrase!r} holds what must_not="
                f"{[*wish.must_not]} forbids; change one of them"
            )


def _for_each(value, count: int, name: str) -> list:
    if value is None or isinstance(value, str):
        return [value] * count
    value = _listed(value, name)
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
    value = [value] if isinstance(value, str) else _listed(value or (), name)
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


def _listed(value, name: str) -> list:
    if not isinstance(value, Iterable):
        raise UserError(f"{name}={value!r}; want a text, or a list")
    return list(value)


def _phrases(entries: Sequence[str], name: str) -> tuple[str, ...]:
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
