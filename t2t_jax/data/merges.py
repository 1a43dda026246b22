"""The merges of a SentencePiece byte-pair encoding, as arrays that NumPy looks up.

SentencePiece applies merges inside its library and draws random numbers from one
generator of the process. Here the merges are data, so that the choice to leave one out
may depend on the line and the epoch alone.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from t2t_jax.data.filling import Ragged
from t2t_jax.data.noise import take
from t2t_jax.data.sentencepiece_model import (
    BYTE,
    ORDINARY,
    SYMBOL,
    UNUSED,
    is_byte_pairs,
    pieces,
)
from t2t_jax.data.sentencepieces import SPACE
from t2t_jax.io.errors import UserError

CODE_POINTS = 0x110000
NO_MERGE = np.int64(1) << 62  # above every priority
ALWAYS = np.int64(1) << 31  # more merges than a word has

# (words, draws) -> how many merges of each word are done before one is left out
Kept = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Merges:
    """The symbols of a SentencePiece model and which two of them merge into a third.

    A symbol is a piece with its id as number, or a character that the model does not
    know, with the number `pieces + code point`. Two neighbours merge if their texts
    together are a piece, unless one is a user-defined symbol. Of several merges in a
    word the one with the highest score of its result comes first, then the leftmost.

    Args:
      model: the content of a `.model` file.
      name: the tokenizer as error messages call it.

    Attributes:
      pieces: the number of pieces.
      symbols: the user-defined symbols, which are always one piece, and their ids.
      splits: True if no merge crosses the space before a word, so that each word can
        be encoded by itself.
      byte_ids: the ids of the 256 bytes that spell unknown characters; empty if the
        model has none.

    Raises:
      UserError: another kind of model than a byte-pair encoding, or one whose merges
        are not those of its pieces alone.
    """

    def __init__(self, model: bytes, name: str):
        if not is_byte_pairs(model):
            raise UserError(
                f"{name} is a SentencePiece model that is not a byte-pair encoding; "
                "config.data.subword_dropout leaves out merges, which only byte-pair "
                "encodings have. Leave config.data.tokenizer empty to have one "
                "trained, train one with --model_type=bpe, or set "
                "config.data.subword_dropout=0"
            )
        table = pieces(model)
        ids = {p.name: i for i, p in enumerate(table) if p.kind == ORDINARY}
        self.pieces = len(table)
        self.symbols = {p.name: i for i, p in enumerate(table) if p.kind == SYMBOL}
        _check_plain(table, ids, self.symbols, name)
        # Their names, <0x00> to <0xFF>, sort as the bytes do.
        of_bytes = sorted((p.name, i) for i, p in enumerate(table) if p.kind == BYTE)
        self.byte_ids = np.array([i for _, i in of_bytes], np.int32)
        self.splits = not (
            any(SPACE in piece[1:] for piece in ids)
            or any(re.search(f"[ {SPACE}]", symbol) for symbol in self.symbols)
        )
        # A character's symbol: its piece, or the number of an unknown one.
        self._symbol_of = np.arange(CODE_POINTS, dtype=np.int32) + np.int32(self.pieces)
        known = [(ord(piece), i) for piece, i in ids.items() if len(piece) == 1]
        places, values = np.array(known, np.int32).reshape(-1, 2).T
        self._symbol_of[places] = values
        self._pairs = _PairTable(_pairs(ids), self.pieces + CODE_POINTS + 1)
        # Symbols with equal scores have equal ranks: then the leftmost merges first.
        # Scores are 32-bit floats in SentencePiece, too.
        scores = np.array([p.score for p in table], np.float32)
        ranks = np.unique(-scores, return_inverse=True)[1].astype(np.int64)
        # The last entry, which index -1 reads, is that of a pair that does not merge.
        self._priorities = np.append(ranks << 32, NO_MERGE)

    @property
    def nothing(self) -> int:
        """A number that is no symbol, for a place outside of a word."""
        return self.pieces + CODE_POINTS

    def symbols_of(self, text: str) -> np.ndarray:
        """Returns the symbols of the characters of a text, int32 [characters]."""
        return self._symbol_of[np.frombuffer(text.encode("utf-32-le"), np.uint32)]

    def find(
        self, left: np.ndarray, right: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Looks up the merges of pairs of symbols.

        Args:
          left, right: symbols, int32 [pairs].

        Returns:
          The merged symbols, or -1, int32 [pairs]; and the priorities of the merges,
          the lowest first, in the upper 32 bits of int64 [pairs], or `NO_MERGE`.
        """
        merged = self._pairs.find(left, right)
        return merged, self._priorities[merged]


def merge(words: Ragged, merges: Merges, kept: Kept | None = None) -> Ragged:
    """Merges the symbols of words to pieces.

    Each round does the next merge of every word, or leaves it out: the one of the
    highest score, and of these the leftmost.

    Args:
      words: the symbols of each word.
      merges: which symbols merge.
      kept: a function of words and of how many merges of each were left out, that says
        how many merges come before the next one that is left out. None does all.

    Returns:
      The pieces of each word.
    """
    order_w = np.argsort(-words.lengths, kind="stable")
    words = take(words, order_w)  # the longest first: short words are done early
    count = int(np.count_nonzero(words.lengths))  # words that are not empty
    first_w = words.offsets[:count]
    # Symbols are a doubly linked list. A merged one stays at the place of its first
    # symbol. Place `end` is outside of any word.
    end = len(words.tokens)
    symbol_s = np.append(words.tokens, np.int32(merges.nothing))
    before_s = np.arange(-1, end)
    after_s = np.arange(1, end + 2)
    before_s[first_w] = end
    after_s[words.offsets[1 : count + 1] - 1] = end
    alive_s = np.ones(end, bool)
    # Of a symbol and the one after it: the merged symbol, and priority and place as one
    # number, so that the least number of a word is its next merge.
    merged_s = np.full(end + 1, -1, np.int32)
    queue_s = np.full(end + 1, NO_MERGE)

    def look(left: np.ndarray, right: np.ndarray) -> None:
        merged_s[left], priority = merges.find(symbol_s[left], symbol_s[right])
        queue_s[left] = priority | left

    inner = np.flatnonzero(after_s[:end] < end)
    look(inner, inner + 1)
    draws_w = np.zeros(count, np.int64)
    left_w = np.full(count, ALWAYS)
    if kept is not None:
        left_w = kept(order_w[:count], draws_w)
    while count:
        next_w = np.minimum.reduceat(queue_s[: words.offsets[count]], first_w[:count])
        todo = np.flatnonzero(next_w < NO_MERGE)
        count = int(todo[-1]) + 1 if len(todo) else 0
        place = next_w[todo] & 0xFFFFFFFF
        stop = left_w[todo] == 0
        left_w[todo] -= 1
        if stop.any():
            stopped = todo[stop]
            queue_s[place[stop]] = NO_MERGE
            draws_w[stopped] += 1
            left_w[stopped] = kept(order_w[stopped], draws_w[stopped])
            place = place[~stop]
        removed = after_s[place]
        following, previous = after_s[removed], before_s[place]
        symbol_s[place] = merged_s[place]
        after_s[place], before_s[following] = following, place
        alive_s[removed] = False
        queue_s[removed] = NO_MERGE
        look(np.append(previous, place), np.append(place, following))
    alive = np.append(0, np.cumsum(alive_s))
    pieces = Ragged(symbol_s[:-1][alive_s], alive[words.offsets])
    return take(pieces, np.argsort(order_w))


def _check_plain(
    table: Sequence, ids: dict[str, int], symbols: dict[str, int], name: str
) -> None:
    """Refuses models whose pieces do not say how text is split."""
    if any(p.kind == UNUSED for p in table):
        wrong = "has unused pieces, as after restricting its vocabulary"
    elif lacking := {*"".join(ids)} - {*ids, *symbols}:
        wrong = f"has no piece for {min(lacking)!r}, which is part of other pieces"
    else:
        return
    raise UserError(
        f"{name} {wrong}; config.data.subword_dropout does not work with such a model. "
        "Use another tokenizer, or set config.data.subword_dropout=0"
    )


def _pairs(ids: dict[str, int]) -> Iterable[tuple[int, int, int]]:
    """Yields every two pieces that together are a third: left, right, merged."""
    for piece, merged in ids.items():
        for cut in range(1, len(piece)):
            left, right = ids.get(piece[:cut]), ids.get(piece[cut:])
            if left is not None and right is not None:
                yield left, right, merged


class _PairTable:
    """A hash table from pairs of integers to integers, for arrays of pairs.

    Open addressing with linear probing. `np.searchsorted` in sorted pairs would take a
    dozen reads of memory for each pair; this takes two or three.
    """

    _MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
    _EMPTY = np.int64(-1)

    def __init__(self, triples: Iterable[tuple[int, int, int]], most: int):
        """Fills the table.

        Args:
          triples: (left, right, value) of all pairs; values are at least 0.
          most: above all integers of a pair.
        """
        left, right, values = np.array([*triples], np.int64).reshape(-1, 3).T
        self._most = np.int64(most)
        # An eighth of the slots is filled at most, so most pairs are found at once.
        bits = max(8, int(8 * len(values)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._last = np.int64((1 << bits) - 1)
        self._keys = np.full(1 << bits, self._EMPTY)
        self._values = np.full(1 << bits, -1, np.int32)
        keys = left * self._most + right
        slots = self._first_slot(keys)
        while len(keys):
            # One of those that want a free slot gets it; the others try the next one.
            wanted = np.flatnonzero(self._keys[slots] == self._EMPTY)
            _, winners = np.unique(slots[wanted], return_index=True)
            winners = wanted[winners]
            self._keys[slots[winners]] = keys[winners]
            self._values[slots[winners]] = values[winners]
            keys, values = np.delete(keys, winners), np.delete(values, winners)
            slots = (np.delete(slots, winners) + 1) & self._last

    def _first_slot(self, keys: np.ndarray) -> np.ndarray:
        # The upper bits of the product depend on all bits of the key. Unsigned
        # multiplication wraps around, as is wanted.
        mixed = keys.view(np.uint64) * self._MULTIPLIER
        return (mixed >> self._shift).view(np.int64)

    def find(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Returns the values of pairs, int32; -1 for a pair that is not stored."""
        keys = left.astype(np.int64) * self._most + right
        slots = self._first_slot(keys)
        found = self._values[slots]  # -1 in an empty slot
        again = np.flatnonzero((self._keys[slots] != keys) & (found >= 0))
        slots = slots[again]
        while len(again):  # another pair's slot: try the next one
            slots = (slots + 1) & self._last
            found[again] = self._values[slots]
            wrong = (self._keys[slots] != keys[again]) & (found[again] >= 0)
            slots, again = slots[wrong], again[wrong]
        return found
