"""Encodes much text fast: each different word once.

All but that is NumPy on many lines at once, which releases the interpreter's lock.
Suffixes: `w` words, `n` words that are not in the table, `s` slots, `t` tokens.
"""

import threading

import numpy as np
import sentencepiece

from t2t_jax.data.filling import Ragged, concatenated, ragged, runs, take
from t2t_jax.data.hashing import HashTable
from t2t_jax.text.counter_random import mixed

TOKENS = 8  # of a word, at most; longer ones are not remembered
PART = 1 << 20  # characters encoded at a time; bounds memory to about 30 MB a thread
LONG = 64  # bytes; Python hashes longer words, since NumPy takes a round for 8 bytes
_FIRST = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)  # n bytes of a block
_OF_LENGTH = mixed(np.arange(LONG + 1, dtype=np.uint64))  # where a hash begins


class WordTable:
    """Remembers the tokens of different words, of the first 524,288 by default.

    Words are told apart by hashes of 64 bits. If a text has 10 million different words,
    the chance that one is taken for another is 1 in 3 million.

    Args:
      processor: a SentencePiece model whose tokens of a line are those of its words.
      bits: half of 2 ** bits slots are used. 2 ** 20 take 26 MB, or 42 MB if there are
        more than 65,536 tokens; less as long as few are used.

    Attributes:
      room: the number of words that it can still remember.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, bits: int = 20):
        self._processor, self._storing = processor, threading.Lock()
        self._table, self.room = HashTable(bits), 1 << (bits - 1)
        ids = np.min_scalar_type(len(processor) - 1)
        self._tokens = np.zeros(TOKENS << bits, ids)  # TOKENS for each slot
        # 0: no word yet. Written last, because others read the table meanwhile.
        self._count_s = np.zeros(1 << bits, np.uint8)
        # A line begins with a space more than it has.
        two_spaces = processor.encode(" ")
        self._empty_word = two_spaces[: len(two_spaces) // 2]

    def encode(self, text: str, threads: int) -> Ragged:
        """Encodes lines that each end in a line feed. An empty line has no tokens."""
        half = text.find("\n", len(text) // 2) + 1
        if len(text) > PART and 0 < half < len(text):
            parts = text[:half], text[half:]
            return concatenated([self.encode(part, threads) for part in parts])
        data = text.encode()
        byte_b = np.frombuffer(data, np.uint8)
        end_w = np.flatnonzero((byte_b == ord(" ")) | (byte_b == ord("\n")))
        begin_w = np.append(0, end_w + 1)[:-1]
        last_w = byte_b[end_w] == ord("\n")
        none_w = last_w & np.append(True, last_w[:-1]) & (begin_w == end_w)
        key_w = _keys(data, begin_w, end_w)
        slot_w = self._table.find(key_w)
        count_w = self._count_s[slot_w].astype(np.int64)  # first: see `_store`
        count_w *= (self._table.keys[slot_w] == key_w) & ~none_w
        new = np.flatnonzero((count_w == 0) & ~none_w)
        # With the place of one of them in `new`, and the number of each of `new`.
        key_n, first_n, number = np.unique(key_w[new], True, True)
        spans_n = np.stack([begin_w, end_w])[:, new[first_n]].T.tolist()
        words = [data[begin:end].decode() for begin, end in spans_n]
        rows = self._processor.encode(words, num_threads=threads)
        encoded = ragged([row or self._empty_word for row in rows])
        self._store(key_n, encoded)
        count_w[new] = encoded.lengths[number]
        after_w = np.cumsum(count_w)
        stored = runs(slot_w * TOKENS, count_w)
        token_t = self._tokens.take(stored, mode="clip").astype(np.int32)
        places = runs((after_w - count_w)[new], count_w[new])
        token_t[places] = take(encoded, number).tokens
        return Ragged(token_t, np.append(0, after_w[last_w]))

    def _store(self, key_n: np.ndarray, encoded: Ragged) -> None:
        """Remembers words while there is room."""
        with self._storing:
            short = np.flatnonzero(encoded.lengths <= TOKENS)[: self.room]
            # Another thread may have stored some of them meanwhile.
            added = short[self._table.insert(key_n[short])]
            self.room -= len(added)
            slots, words = self._table.find(key_n[added]), take(encoded, added)
            self._tokens[runs(slots * TOKENS, words.lengths)] = words.tokens
            self._count_s[slots] = words.lengths


def _keys(data: bytes, begin_w: np.ndarray, end_w: np.ndarray) -> np.ndarray:
    """Hashes words of a text to uint64 [words] that are not 0."""
    block_b = np.ndarray(len(data), "<u8", data + bytes(8), strides=(1,))
    long_w = end_w - begin_w > LONG
    rows, begin, length = np.arange(len(end_w)), begin_w, (end_w - begin_w) * ~long_w
    key_w = _OF_LENGTH[length]
    while len(rows):
        block = block_b[begin] & _FIRST[np.minimum(length, 8)]
        key_w[rows] = mixed(key_w[rows] ^ block)
        longer = length > 8
        rows, begin, length = rows[longer], begin[longer] + 8, length[longer] - 8
    for w in np.flatnonzero(long_w):
        key_w[w] = hash(data[begin_w[w] : end_w[w]]) % (1 << 64)
    return np.maximum(key_w, np.uint64(1))
