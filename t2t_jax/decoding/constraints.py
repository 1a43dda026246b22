"""Constraints on translations: a prefix, required and forbidden phrases.

Phrases are compiled into automata over tokens. An automaton matches the text that
tokens spell, however they split it: it matches "Hund" in `▁Hund`, in `▁H` `und` and in
bytes. It matches only complete words, like the regular expression `\\b`: "Hund" does
not match in "Hunde". Case matters.

Rare characters are spelled in bytes, and only the last byte shows if the character is a
letter. Next to such bytes, a forbidden phrase counts as a match and a required phrase
does not, so both constraints hold in any case. (U+2581 is matched in the spelling of
`data/tokenizers/`, which is the same as that of U+F8FE U+F8FD, of private use.)

If detokenization decides the spaces next to punctuation, as with Moses, they do not
count: "Hund." matches in `Hund` `.`, whose text is "Hund.".

A token that spells n characters makes n moves of a small automaton over symbols
(characters and bytes). `_automaton` composes these moves for every token of the
vocabulary.

Shape suffixes: b batch, c phrases, s states, t target, v vocabulary, l symbols of a
token, y all symbols.
"""

import collections
import dataclasses
import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from jax.sharding import Mesh

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.batches import place_blocks
from t2t_jax.decoding.inputs import check_text
from t2t_jax.decoding.search_options import SearchRequest
from t2t_jax.io.errors import UserError
from t2t_jax.search.rules import Rules

MAX_TABLE_BYTES = 1 << 30  # bytes: a limit on the size of an automaton's tables
# (prefix, the first state of each of its automata) of each line.
LineStarts = Sequence[tuple[Sequence[int], Sequence[int]]]


@dataclasses.dataclass(frozen=True)
class Automaton:
    """A deterministic automaton that matches phrases in a sequence of tokens.

    State 0 is the start. The last state, `matched`, means that a phrase has matched.
    """

    next_sv: np.ndarray  # int32, the state after a token; `matched` leads to itself
    # int32, the least number of tokens to `matched`; -1 if the vocabulary cannot spell
    # the phrase.
    distance_s: np.ndarray

    @property
    def matched(self) -> int:
        return len(self.next_sv) - 1

    def matches(self, ids: Sequence[int]) -> bool:
        """Returns True if the tokens contain a phrase.

        A phrase that ends in a word only matches once the word has ended: after the
        next token, or EOS.
        """
        return self.after(ids) == self.matched

    def after(self, ids: Sequence[int]) -> int:
        """Returns the state after tokens."""
        state = 0
        for token in ids:
            state = int(self.next_sv[state, token])
        return state


KEPT = 64  # automata of each kind


class Phrases:
    """Builds the automata of one vocabulary, and the rules of a batch from them.

    The latest are kept; each has a number for every state and token.
    """

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary = vocabulary
        self._spellings = [_symbols(vocabulary, i) for i in range(len(vocabulary))]
        keep = functools.lru_cache(KEPT)
        self.required = keep(self._required)
        # One automaton matches any of the forbidden phrases.
        self.forbidden = keep(functools.partial(self._automaton, doubtful=True))
        # The words of prefixes are many, so only the latest are kept.
        self.begins = functools.lru_cache(maxsize=1024)(self._begins)

    def _required(self, phrase: str) -> Automaton:
        """Builds the automaton of a required phrase."""
        automaton = self._automaton((phrase,), doubtful=False)
        if automaton.distance_s[0] < 0:
            raise UserError(
                f"must={phrase!r}: {self._vocabulary.name} has no tokens that spell "
                "it; remove it from must"
            )
        return automaton

    def _begins(self, begun: str) -> np.ndarray:
        """Returns, for each token, if it begins with a part of a word.

        The token may end the word or go on with it.
        """
        letters = [*begun]
        return np.array([s[: len(letters)] == letters for s in self._spellings])

    def not_continued(self, count: int, begun: str) -> Automaton:
        """Builds the automaton that matches if token `count` does not begin so."""
        tokens = len(self._spellings)
        next_sv = np.repeat(np.arange(count + 3, dtype=np.int32)[:, None], tokens, 1)
        next_sv[:count] += 1
        next_sv[count] += np.where(self.begins(begun), 1, 2)
        distance_s = np.array([*range(count + 1, 0, -1), -1, 0], np.int32)
        return Automaton(next_sv, distance_s)

    def _automaton(self, phrases: tuple[str, ...], doubtful: bool) -> Automaton:
        """Builds an automaton over tokens from one over symbols."""
        # A tokenizer that normalizes may leave nothing of a phrase: then none matches.
        spelled = filter(None, map(self._vocabulary.spelled, phrases))
        free_spaces = self._vocabulary.free_spaces
        column_of, next_sy = _symbol_automaton(
            [_Phrase.of(phrase, free_spaces) for phrase in spelled], doubtful
        )
        # `Rules` needs an int32 and two booleans of each state and token.
        size = len(next_sy) * len(self._vocabulary) * 6
        if size > MAX_TABLE_BYTES:
            raise UserError(
                f"{len(phrases):,} phrases of {sum(map(len, phrases)):,} characters "
                f"need tables of {size / 2**30:.1f} GiB; want at most 1 GiB: use "
                "fewer or shorter phrases"
            )
        # Spellings are padded to one length with a symbol that changes no state.
        padding = len(column_of)
        next_sy = np.concatenate([next_sy, np.arange(len(next_sy))[:, None]], 1)
        longest = max(map(len, self._spellings))
        symbol_vl = np.full((len(self._spellings), longest), padding, np.int32)
        for row, spelling in zip(symbol_vl, self._spellings, strict=True):
            row[: len(spelling)] = [column_of[_kind(s, column_of)] for s in spelling]
        # From every state at once, each token moves by its symbols one after another.
        next_sv = np.repeat(np.arange(len(next_sy))[:, None], len(symbol_vl), 1)
        for symbol_v in symbol_vl.T:
            next_sv = next_sy[next_sv, symbol_v]
        return Automaton(next_sv.astype(np.int32), _distances(next_sv))

    def automata(
        self, constraints: "Constraints"
    ) -> Iterator[tuple[Callable[..., Automaton], tuple, bool]]:
        """Yields builders of the automata of a line, their arguments, if required.

        Each required phrase has an automaton, as all of them must match. The forbidden
        ones of a line share one: none may.
        """
        for phrase in constraints.must:
            yield self.required, (phrase,), True
        if constraints.must_not:
            yield self.forbidden, (constraints.must_not,), False
        if begun := constraints.begun:
            yield self.not_continued, (len(constraints.prefix), begun), False

    def rules(
        self, constraints: Sequence["Constraints"], rows: int, max_length: int
    ) -> Rules | None:
        """Returns the rules of a batch, padded to `rows` lines; None without any."""
        if not any(map(any, constraints)):
            return None
        table = _Table(len(self._vocabulary), self._vocabulary.eos)
        line_starts = [
            (line.prefix, [*itertools.starmap(table.add, self.automata(line))])
            for line in constraints
        ]
        width = _next_power_of_two(max(len(states) for _, states in line_starts))
        return Rules(*_rows(line_starts, rows, width, max_length), *table.arrays())


class _Table:
    """The automata of a batch, stacked into one table of states.

    State 0 is of no phrase: for sentences with fewer phrases than others.
    """

    def __init__(self, vocabulary: int, eos: int):
        self._eos = eos
        # State 0 leads to itself and refuses nothing.
        self._next = [np.zeros((1, vocabulary), np.int32)]
        self._refused = [np.zeros((1, vocabulary), bool)]
        self._distance = [np.zeros(1, np.int32)]
        self._count = 1
        self._starts: dict[tuple, int] = {}

    def add(self, build: Callable[..., Automaton], args: tuple, required: bool) -> int:
        """Adds the automaton `build(*args)` unless it is there; its first state."""
        if (args, required) in self._starts:
            return self._starts[args, required]
        start, automaton = self._count, build(*args)
        next_sv, refused_sv, distance_s = _rules_of(automaton, required, self._eos)
        self._next.append(next_sv + start)  # its states are numbered from here
        self._refused.append(refused_sv)
        self._distance.append(distance_s)
        self._starts[args, required] = start
        self._count += len(next_sv)
        return start

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Returns the fields of `Rules` from `next_sv` on.

        The number of states is padded to a power of two, so that few batches need a new
        compilation.
        """
        spare = _next_power_of_two(self._count) - self._count
        next_sv = np.pad(np.concatenate(self._next), ((0, spare), (0, 0)))
        refused_sv = np.pad(np.concatenate(self._refused), ((0, spare), (0, 0)))
        distance_s = np.pad(np.concatenate(self._distance), (0, spare)).astype(np.int32)
        closer_sv = distance_s[next_sv] < distance_s[:, None]
        # The empty shape says, at compile time, that no phrase is required.
        if not distance_s.any():
            closer_sv = closer_sv[:0]
        return next_sv, refused_sv, closer_sv, distance_s


def _rules_of(
    automaton: Automaton, required: bool, eos: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns `next_sv`, `refused_sv` and `distance_s` of `Rules` for one automaton."""
    next_sv, matched = automaton.next_sv, automaton.matched
    if required:
        # EOS may itself complete the phrase's last word, so the test is of the state
        # after it.
        refused_sv = np.zeros(next_sv.shape, bool)
        refused_sv[:, eos] = next_sv[:, eos] != matched
    else:
        refused_sv = next_sv == matched
    return next_sv, refused_sv, automaton.distance_s * required  # 0 if forbidden


class SharedTable:
    """The states of all lines that are being searched, in one table of fixed shape.

    So batches with other phrases are merged, and no new phrase compiles a program. A
    line takes the states of its phrases (`take`) and gives them back; those of a phrase
    that nobody uses stay until their place is needed.

    Args:
      states: of the table.
      phrases: the most automata of a line: one for each required phrase, one for all
        forbidden ones, one for a word that a prefix begins.
    """

    def __init__(self, vocabulary: Vocabulary, states: int, phrases: int, mesh: Mesh):
        self.states, self.width, self._mesh = states, phrases, mesh
        self._phrases = Phrases(vocabulary)
        self._eos = vocabulary.eos
        size = states, len(vocabulary)
        # State 0 leads to itself and refuses nothing.
        self._next = np.zeros(size, np.int32)
        self._refused, self._closer = np.zeros(size, bool), np.zeros(size, bool)
        self._distance = np.zeros(states, np.int32)
        # What is in the table -> its first state, and the number of its states; the
        # least recently used comes first.
        self._places: dict[tuple, tuple[int, int]] = {}
        self._users: collections.Counter[tuple] = collections.Counter()
        self._placed: tuple[Array, ...] | None = None  # on the devices, if up to date
        self._lock = threading.RLock()

    def check(self, must: Sequence[str], must_not: Sequence[str]) -> None:
        """Raises UserError if the table will never have room for phrases.

        Call it before `constraints_for`, which builds automata, with about a state for
        each byte, in a time that grows with their table.
        """
        count = len(must) + bool(must_not)
        size = sum(len(phrase.encode()) for phrase in (*must, *must_not))
        if count > self.width or size >= self.states:
            raise self._too_large(count, size)

    def automata(self, constraints: "Constraints") -> dict[tuple, Automaton]:
        """The automata of a line, by what identifies them and if it is required.

        Raises:
          UserError: the table will never have room for them.
        """
        builders = self._phrases.automata(constraints)
        automata = {(args, needed): build(*args) for build, args, needed in builders}
        count = sum(len(automaton.next_sv) for automaton in automata.values())
        if len(automata) > self.width or count >= self.states:
            raise self._too_large(len(automata), count)
        return automata

    def _too_large(self, phrases: int, states: int) -> UserError:
        return UserError(
            f"the constraints of a line are {phrases} phrases of {states:,} states "
            f"(about one a byte); want at most {self.width} phrases (all of "
            f"must_not are one) of {self.states - 1:,} states"
        )

    def take(self, automata: Mapping[tuple, Automaton]) -> list[int] | None:
        """Takes states for a line; None if there is no room until others give back.

        Returns:
          The first state of each automaton, in order.
        """
        with self._lock:
            for key in automata:
                self._users[key] += 1
                if key in self._places:
                    self._places[key] = self._places.pop(key)  # now used last
            for key, automaton in automata.items():
                if key not in self._places and not self._place(key, automaton):
                    self.give_back(automata)
                    return None
            return [self._places[key][0] for key in automata]

    def give_back(self, keys: Iterable[tuple]) -> None:
        """Gives the states of a line back."""
        with self._lock:
            self._users -= collections.Counter([*keys])

    def _place(self, key: tuple, automaton: Automaton) -> bool:
        """Writes an automaton into free states, if there are enough in a row."""
        next_sv, refused_sv, distance_s = _rules_of(automaton, key[1], self._eos)
        count = len(next_sv)
        unused = [placed for placed in self._places if not self._users[placed]]
        while (start := self._gap(count)) is None:
            if not unused:
                return False
            del self._places[unused.pop(0)]
        self._places[key] = start, count
        rows = slice(start, start + count)
        self._next[rows], self._refused[rows] = next_sv + start, refused_sv
        self._distance[rows] = distance_s
        self._closer[rows] = distance_s[next_sv] < distance_s[:, None]
        self._placed = None
        return True

    def _gap(self, count: int) -> int | None:
        """The first of `count` free states in a row; None if there are none."""
        end = 1  # state 0 is of no phrase
        for start, size in sorted(self._places.values()):
            if start - end >= count:
                return end
            end = start + size
        return end if self.states - end >= count else None

    def rows(self, line_starts: LineStarts, size: int, max_length: int) -> Rules:
        """Returns the part of the rules that belongs to lines, without the table.

        Args:
          size: rows of the batch; further ones have no constraints.
        """
        rows = _rows(line_starts, size, self.width, max_length)
        return Rules(*rows, None, None, None, None)

    def joined(self, rows: Rules) -> Rules:
        """Returns rules with the table as it is now."""
        with self._lock:
            if self._placed is None:
                tables = self._next, self._refused, self._closer, self._distance
                # Copies: the table changes while a search reads them. A device's part
                # of each array is the whole table.
                copies = [np.concatenate([x] * self._mesh.size) for x in tables]
                self._placed = tuple(place_blocks(copies, self._mesh))
            return Rules(rows.prefix_bt, rows.start_bc, *self._placed)


def _rows(
    line_starts: LineStarts, size: int, width: int, max_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns `prefix_bt` and `start_bc` of `Rules`; arguments as in `rows`."""
    prefix_bt = np.full((size, max_length), -1, np.int32)
    start_bc = np.zeros((size, width), np.int32)
    for row, (prefix, states) in enumerate(line_starts):
        prefix_bt[row, : len(prefix)] = prefix
        start_bc[row, : len(states)] = states
    return prefix_bt, start_bc


def _next_power_of_two(count: int) -> int:
    """Returns the least power of two that is at least `count`; 0 for 0."""
    return 1 << (count - 1).bit_length() if count else 0


# The symbols that automata read: a character is a string of length 1, a byte of a
# multi-byte character is a number, and the end of the text is None. These three stand
# for all word characters, other characters and bytes that no phrase contains:
_WORD, _BETWEEN, _BYTE = object(), object(), object()


def _symbols(vocabulary: Vocabulary, token: int) -> list:
    """Returns the symbols that a token adds to the text."""
    if token == vocabulary.eos:
        return [None]
    spelling = vocabulary.spelling(token)
    if isinstance(spelling, bytes):
        # Bytes up to 127 are complete characters in UTF-8.
        return [byte if byte > 127 else chr(byte) for byte in spelling]
    return list(spelling)


def _kind(symbol, column_of: dict):
    """The symbol, or its class if no phrase contains it."""
    if symbol in column_of:
        return symbol
    if isinstance(symbol, int):
        return _BYTE
    return _WORD if _is_word(symbol) else _BETWEEN


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


@dataclasses.dataclass(frozen=True)
class _Phrase:
    """A phrase and its bytes."""

    text: str
    content: bytes
    begins: bool  # its first character is a word character
    ends: bool  # its last one is
    # The numbers of bytes after which a space does not count.
    gaps: frozenset[int] = frozenset()

    @classmethod
    def of(cls, text: str, free_spaces: bool) -> "_Phrase":
        gaps: set[int] = set()
        if free_spaces:
            text = without_free_spaces(text)
            for place in range(1, len(text)):
                if not all(map(_is_word, text[place - 1 : place + 1])):
                    gaps.add(len(text[:place].encode()))
        begins, ends = _is_word(text[0]), _is_word(text[-1])
        return cls(text, text.encode(), begins, ends, frozenset(gaps))


def without_free_spaces(text: str) -> str:
    """Removes the spaces next to punctuation."""
    return re.sub(r" *([^\w ]) *", r"\1", text)


def _symbol_automaton(phrases: list[_Phrase], doubtful: bool):
    """Builds the automaton over symbols, state by state from the start.

    A state is a set of partial matches (phrase, number of its bytes read so far), and
    True if a word may begin next. In most columns its row is that of a state without
    partial matches, so the work grows with the table, as in Aho and Corasick 1975.

    Args:
      doubtful: if True, a byte of a multi-byte character ends a word and a new word may
        begin after it, so that no possible match is missed; if False, it does neither,
        so that every match is certain.

    Returns:
      The column of each symbol, and the table [states, symbols] of the next states.
    """
    characters = sorted({c for phrase in phrases for c in phrase.text})
    octets = sorted({b for phrase in phrases for b in phrase.content if b > 127})
    spaces = {" "} - {*characters}  # a symbol of its own, which gaps let pass
    symbols = [None, _WORD, _BETWEEN, _BYTE, *spaces, *characters, *octets]
    column_of = {symbol: column for column, symbol in enumerate(symbols)}
    in_word_y = [_continues_word(symbol, doubtful) for symbol in symbols]
    moves = [_moves(phrase, column_of) for phrase in phrases]

    def after(partial_matches, column: int):
        """The partial matches that go on with a symbol; None: one is complete."""
        matches = set()
        for i, n in partial_matches:
            read = moves[i][n].get(column)
            if read == len(phrases[i].content) and not phrases[i].ends:
                return None
            if read:
                matches.add((i, read))
        return frozenset(matches)

    # Of states without partial matches, by `may_begin`: what each symbol begins. The
    # classes and the end of the text begin nothing: no phrase contains them.
    begun_by = []
    for may_begin in (False, True):
        column_matches = [set() for _ in symbols]
        for i, phrase in enumerate(phrases):
            if may_begin or not phrase.begins:
                for column in moves[i][0]:
                    column_matches[column].add((i, 0))
        begun_by.append(
            [after(begun, column) for column, begun in enumerate(column_matches)]
        )
    space, start = column_of[" "], (frozenset(), True)
    numbers, queue, rows = {start: 0}, collections.deque([start]), []
    while queue:
        partial_matches, may_begin = queue.popleft()
        passing = {(i, n) for i, n in partial_matches if n in phrases[i].gaps}
        next_y = begun_by[may_begin].copy()
        for column in {c for i, n in partial_matches for c in moves[i][n]} | {space}:
            moved = after(partial_matches, column)
            if moved is None or next_y[column] is None:
                next_y[column] = None
            else:
                passed = passing if column == space else ()
                next_y[column] = next_y[column].union(moved, passed)
        # A phrase that ends in a word matches once the next symbol is not of that word.
        ends = any(n == len(phrases[i].content) for i, n in partial_matches)
        row = np.full(len(symbols), -1)
        for column, (matches, in_word) in enumerate(
            zip(next_y, in_word_y, strict=True)
        ):
            if matches is None or (ends and not in_word):
                continue
            state = matches, not in_word
            if state not in numbers:
                numbers[state] = len(numbers)
                queue.append(state)
            row[column] = numbers[state]
        rows.append(row)
    # A match is -1 until the number of states is known; it then becomes the last state,
    # which leads to itself.
    table = np.array([*rows, np.full(len(symbols), -1)])
    table[table < 0] = len(rows)
    return column_of, table


def _continues_word(symbol, doubtful: bool) -> bool:
    """True if a word does not end at a symbol."""
    if symbol is _BYTE or isinstance(symbol, int):
        return not doubtful
    return symbol is _WORD or (isinstance(symbol, str) and _is_word(symbol))


def _moves(phrase: _Phrase, column_of: dict) -> list[dict[int, int]]:
    """For each number of bytes read: the columns that go on, and the number then."""
    moves = [{} for _ in range(len(phrase.content) + 1)]
    read = 0
    for character in phrase.text:
        content = character.encode()
        moves[read][column_of[character]] = read + len(content)
        for n, byte in enumerate(content, read):
            if byte > 127:
                moves[n][column_of[byte]] = n + 1
        read += len(content)
    return moves


def _distances(next_sv: np.ndarray) -> np.ndarray:
    """Returns the least number of tokens from each state to the last; -1 if none."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    states = len(next_sv)
    leads = [np.unique(row) for row in next_sv]
    row_e = np.repeat(np.arange(states), [len(row) for row in leads])
    back = csr_array(
        (np.ones(len(row_e)), (np.concatenate(leads), row_e)), 2 * [states]
    )
    distance_s = shortest_path(back, "D", unweighted=True, indices=states - 1)
    return np.where(np.isinf(distance_s), -1, distance_s).astype(np.int32)


# --------------------------------------------------------- the constraints of each line


class Constraints(NamedTuple):
    """Constraints on the translation of one line."""

    prefix: tuple[int, ...] = ()  # token ids that it begins with
    must: tuple[str, ...] = ()  # phrases that it contains
    must_not: tuple[str, ...] = ()  # phrases that it does not contain
    begun: str = ""  # what the token after the prefix begins with


def constraints_for(
    count: int, vocabulary: Vocabulary, phrases: Phrases, request: SearchRequest
) -> list[Constraints]:
    """Returns the constraints of each of `count` lines.

    Trailing white space of a prefix is removed; its last word may continue.
    """
    prefixes = _for_each(request.prefix, count, "prefix")
    must_phrases = phrases_for_each(request.must, count, "must")
    must_not_phrases = phrases_for_each(request.must_not, count, "must_not")
    for text in dict.fromkeys(prefixes):
        check_text(text or "")
    # A space belongs to the token after it (SentencePiece), so a trailing one would
    # become a token of its own and force a second space before the next word.
    prefix_ids = vocabulary.encode([(text or "").rstrip() for text in prefixes])
    constraints = []
    for ids, must, must_not in zip(
        prefix_ids, must_phrases, must_not_phrases, strict=True
    ):
        ending = vocabulary.spelling(ids[-1]) if ids else ""
        # A last token with the space after it (byte-pair codes) ends the word, so any
        # token may stand for it that begins with the same letters.
        ends_word = isinstance(ending, str) and ending[-1:] == " "
        begun = ending.rstrip(" ") if ends_word else ""
        prefix_tokens = tuple(ids[:-1] if begun else ids)
        constraints.append(Constraints(prefix_tokens, must, must_not, begun))
    # Usually all lines have the same constraints; each distinct one is checked once.
    checked: set[Constraints] = set()
    for number, line in enumerate(constraints, request.first_line):
        if line.must_not and line not in checked:
            text = prefixes[number - request.first_line]
            _check(line, text, number, vocabulary, phrases)
            checked.add(line)
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


def phrases_for_each(value, count: int, name: str) -> list[tuple[str, ...]]:
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
