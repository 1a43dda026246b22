"""Phrases in text -> automata over tokens: which words a translation has or lacks.

A phrase is found in the text that tokens spell, however they split it: "Hund" is found
in `▁Hund`, in `▁H` `und` and in bytes. It is found as whole words, as by the regular
expression `\\b`: "Hund" is not in "Hunde". Upper and lower case differ.

Which of a character's bytes make it a letter is not known until the last one. Where
bytes stand in for a character, a phrase that must not be said counts as said, and one
that must be said does not, so that either promise holds. (U+2581 is looked for as
`data/tokenizer.py` spells it, and is not told from U+F8FE U+F8FD, of private use.)

Shape suffixes: c phrases, s states, v vocabulary.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.search.rules import Rules
from t2t_jax.terminal.errors import UserError

MOST = 1 << 30  # bytes of tables


@dataclasses.dataclass(frozen=True)
class Automaton:
    """What looks for phrases in tokens; its first state is 0, its last one is `said`.

    Attributes:
      next_sv: int32, the state after a token; `said` is never left.
      distance_s: int32, the least number of tokens to `said`; -1 if it cannot be said.
    """

    next_sv: np.ndarray
    distance_s: np.ndarray

    @property
    def said(self) -> int:
        return len(self.next_sv) - 1

    def finds(self, ids: Sequence[int]) -> bool:
        """Whether tokens say it; with EOS last, what ends the text counts too."""
        state = 0
        for token in ids:
            state = int(self.next_sv[state, token])
        return state == self.said


class Phrases:
    """Makes automata for one vocabulary, and the rules of a batch from them."""

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary = vocabulary
        self._spellings = [_symbols(vocabulary, i) for i in range(len(vocabulary))]
        self.required = functools.cache(self._required)
        self.forbidden = functools.cache(self._forbidden)

    def _required(self, phrase: str) -> Automaton:
        """Looks for a phrase that must be said."""
        automaton = self._automaton((phrase,), doubtful=False)
        if automaton.distance_s[0] < 0:
            raise UserError(
                f"must={phrase!r}: {self._vocabulary.name} has no pieces to spell it; "
                "leave it out"
            )
        return automaton

    def _forbidden(self, phrases: tuple[str, ...]) -> Automaton:
        """Looks for any of the phrases that must not be said."""
        return self._automaton(phrases, doubtful=True)

    def _automaton(self, phrases: tuple[str, ...], doubtful: bool) -> Automaton:
        states, by_symbol = _read_by_symbols(
            [_Phrase.of(self._vocabulary.spelled(phrase)) for phrase in phrases],
            doubtful,
        )
        size = len(by_symbol) * len(self._vocabulary) * 6
        if size > MOST:
            raise UserError(
                f"{len(phrases):,} phrases of {sum(map(len, phrases)):,} characters "
                f"need tables of {size / 2**30:.1f} GiB; want at most 1: fewer phrases"
            )
        # Tokens as rows of symbols, as long as the longest, filled up with "nothing".
        nothing = len(states)
        by_symbol = np.concatenate([by_symbol, np.arange(len(by_symbol))[:, None]], 1)
        longest = max(map(len, self._spellings))
        symbol_vl = np.full((len(self._spellings), longest), nothing, np.int32)
        for row, spelling in zip(symbol_vl, self._spellings, strict=True):
            row[: len(spelling)] = [states[_kind(s, states)] for s in spelling]
        next_sv = np.repeat(np.arange(len(by_symbol))[:, None], len(symbol_vl), 1)
        for place in range(longest):
            next_sv = by_symbol[next_sv, symbol_vl[:, place]]
        return Automaton(next_sv.astype(np.int32), _distances(next_sv))

    def rules(
        self,
        prefixes: Sequence[Sequence[int]],
        must: Sequence[Sequence[str]],
        must_not: Sequence[Sequence[str]],
        rows: int,
        max_length: int,
    ) -> Rules | None:
        """The rules of a batch, filled up to `rows` sentences; None if there are none.

        Args:
          prefixes: the first tokens of each sentence.
          must, must_not: the phrases of each sentence.
        """
        if not any(map(len, (*prefixes, *must, *must_not))):
            return None
        prefix_bt = np.full((rows, max_length), -1, np.int32)
        for row, prefix in zip(prefix_bt, prefixes, strict=False):
            row[: len(prefix)] = prefix
        table = _Table(len(self._vocabulary), self._vocabulary.eos)
        start_bc = [
            [table.place(self.required(phrase), required=True) for phrase in held]
            + [table.place(self.forbidden(tuple(out)), required=False)] * bool(out)
            for held, out in zip(must, must_not, strict=True)
        ]
        width = _power(max(map(len, start_bc)))
        starts = np.full((rows, width), _Table.NONE, np.int32)
        for row, states in zip(starts, start_bc, strict=False):
            row[: len(states)] = states
        return Rules(prefix_bt, starts, *table.arrays())


class _Table:
    """The states of several automata, one after the other."""

    NONE = 0  # the state of no phrase, for sentences that have fewer than others

    def __init__(self, vocabulary: int, eos: int):
        self._eos = eos
        self._next = [np.zeros((1, vocabulary), np.int32)]
        self._refused = [np.zeros((1, vocabulary), bool)]
        self._distance = [np.zeros(1, np.int32)]
        self._count = 1
        self._places: dict[tuple[int, bool], int] = {}

    def place(self, automaton: Automaton, required: bool) -> int:
        """Where an automaton begins; one that is there already is not added again."""
        if (id(automaton), required) in self._places:
            return self._places[id(automaton), required]
        next_sv, said = automaton.next_sv, automaton.said
        if required:
            refused_sv = np.zeros(next_sv.shape, bool)
            refused_sv[:, self._eos] = next_sv[:, self._eos] != said
        else:
            refused_sv = next_sv == said
        self._next.append(next_sv + self._count)
        self._refused.append(refused_sv)
        self._distance.append(automaton.distance_s * required)
        self._places[id(automaton), required] = place = self._count
        self._count += len(next_sv)
        return place

    def arrays(self) -> tuple[np.ndarray, ...]:
        """`Rules`, from `next_sv` on.

        The number of states is a power of two: a new batch is seldom a new compilation.
        """
        spare = _power(self._count) - self._count
        next_sv = np.pad(np.concatenate(self._next), ((0, spare), (0, 0)))
        refused_sv = np.pad(np.concatenate(self._refused), ((0, spare), (0, 0)))
        distance_s = np.pad(np.concatenate(self._distance), (0, spare)).astype(np.int32)
        closer_sv = distance_s[next_sv] < distance_s[:, None]
        if not distance_s.any():
            closer_sv = closer_sv[:0]
        return next_sv, refused_sv, closer_sv, distance_s


def _power(count: int) -> int:
    """The least power of two that is not smaller; of 0 it is 0."""
    return 1 << (count - 1).bit_length() if count else 0


# Symbols: what text is read in. A character is a string of length 1, a byte that stands
# in for a part of one is a number, and the end of the text is None.
_WORD, _BETWEEN, _BYTE = object(), object(), object()  # those that no phrase names


def _symbols(vocabulary: Vocabulary, token: int) -> list:
    if token == vocabulary.eos:
        return [None]
    spelling = vocabulary.spelling(token)
    if isinstance(spelling, bytes):
        return [byte if byte > 127 else chr(byte) for byte in spelling]
    return list(spelling)


def _kind(symbol, states: dict):
    """What stands for a symbol in a table of those that phrases name."""
    if symbol in states:
        return symbol
    if isinstance(symbol, int):
        return _BYTE
    return _WORD if _is_word(symbol) else _BETWEEN


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


@dataclasses.dataclass(frozen=True)
class _Phrase:
    """The bytes of a phrase, and whether they begin and end with a word."""

    text: str
    content: bytes
    begins: bool
    ends: bool

    @classmethod
    def of(cls, text: str) -> "_Phrase":
        return cls(text, text.encode(), _is_word(text[0]), _is_word(text[-1]))


def _read_by_symbols(phrases: list[_Phrase], doubtful: bool):
    """The automaton that reads symbols.

    A state is a set of (phrase, how many of its bytes were just read) and whether a
    word may begin here.

    Returns:
      The column of each symbol, and the table [states, symbols] of the state after it.
    """
    characters = sorted({c for phrase in phrases for c in phrase.text})
    octets = sorted({b for phrase in phrases for b in phrase.content if b > 127})
    symbols = [None, _WORD, _BETWEEN, _BYTE, *characters, *octets]
    start, said = (frozenset(), True), "said"
    numbers = {start: 0}
    rows = []
    todo = [start]
    while todo:
        state = todo.pop(0)
        row = []
        for symbol in symbols:
            after = _after(state, symbol, phrases, doubtful)
            if after != said and after not in numbers:
                numbers[after] = len(numbers)
                todo.append(after)
            row.append(-1 if after == said else numbers[after])
        rows.append(row)
    table = np.array([*rows, [-1] * len(symbols)])
    table[table < 0] = len(rows)
    return {symbol: column for column, symbol in enumerate(symbols)}, table


def _after(state, symbol, phrases: list[_Phrase], doubtful: bool):
    """The state after a symbol, or "said"."""
    reading, may_begin = state
    if symbol is _BYTE or isinstance(symbol, int):
        word = not doubtful
    else:
        word = symbol is _WORD or (isinstance(symbol, str) and _is_word(symbol))
    if any(phrases[i].ends and n == len(phrases[i].content) for i, n in reading):
        if not word:
            return "said"
    if isinstance(symbol, str):
        content = symbol.encode()
    else:
        content = bytes([symbol]) if isinstance(symbol, int) else None
    begun = {(i, 0) for i, p in enumerate(phrases) if may_begin or not p.begins}
    after = set()
    for i, n in reading | begun if content else ():
        phrase = phrases[i]
        if phrase.content[n : n + len(content)] == content:
            n += len(content)
            if n == len(phrase.content) and not phrase.ends:
                return "said"
            after.add((i, n))
    return frozenset(after), not word


def _distances(next_sv: np.ndarray) -> np.ndarray:
    """The least number of tokens from each state to the last; -1 if there is no way."""
    distance_s = np.full(len(next_sv), len(next_sv) + 1, np.int32)
    distance_s[-1] = 0
    while True:
        nearer_s = np.minimum(distance_s, distance_s[next_sv].min(axis=1) + 1)
        if np.array_equal(nearer_s, distance_s):
            return np.where(distance_s > len(next_sv), -1, distance_s)
        distance_s = nearer_s
