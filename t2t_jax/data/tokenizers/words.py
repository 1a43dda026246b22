"""Encodes much text fast: each different word once.

For tokenizers whose tokens of a line are those of its words, one after the other. All
else is done by NumPy for many lines at once, which releases the interpreter's lock, so
it may be called from several threads.

Suffixes: `w` words of the text, `n` words that are not in the table, `s` slots of the
table, `k` tokens of a word, `t` tokens of the text.
"""

import threading
from collections.abc import Callable, Sequence

import numpy as np

from t2t_jax.data.filling import Ragged, concatenated, ragged, take
from t2t_jax.data.hashing import HashTable
from t2t_jax.text.counter_random import mixed

TOKENS = 8  # the most of a word that is remembered
PART = 1 << 21  # characters encoded at a time; bounds memory to about 60 MB a thread
LONG = 64  # bytes of a word that Python hashes: NumPy takes a round for 8 of them
# The first n of 8 bytes, as a little-endian number.
_FIRST = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


class WordTable:
    """Remembers the tokens of words, until half of its slots are taken.

    Words are compared by hashes of 64 bits. If a text has 10 million different words,
    the chance that one is taken for another is 1 in 7 million.

    Args:
      encode: (words, threads) -> a row of ids for each; not empty, unless the word is.
      empty: the ids of the empty word: between two spaces, or a space and a line's end.
      ids: the number of ids.
      bits: the table has 2 ** bits slots; of 19, it takes 13 MB with ids of 16 bits.
    """

    def __init__(
        self,
        encode: Callable[[list[str], int], list[list[int]]],
        empty: Sequence[int],
        ids: int,
        bits: int = 19,
    ):
        self._encode, self._empty = encode, empty
        self._table, self._room = HashTable(bits), 1 << (bits - 1)
        self._token_sk = np.zeros((1 << bits, TOKENS), np.min_scalar_type(ids))
        # 0: there is no word, or not yet. Readers take no lock, so it is written last.
        self._count_s = np.zeros(1 << bits, np.uint8)
        self._storing = threading.Lock()

    def encode(self, text: str, threads: int) -> Ragged:
        """Encodes lines, each ending in a line feed; an empty line has no ids."""
        half = text.find("\n", len(text) // 2) + 1
        if len(text) > PART and 0 < half < len(text):
            parts = text[:half], text[half:]
            return concatenated([self.encode(part, threads) for part in parts])
        data = text.encode()
        byte_b = np.frombuffer(data, np.uint8)
        end_w = np.flatnonzero((byte_b == ord(" ")) | (byte_b == ord("\n")))
        begin_w = np.append(0, end_w[:-1] + 1)
        # Of each line, its first word and the word after its last one.
        line = np.append(0, np.flatnonzero(byte_b[end_w] == ord("\n")) + 1)
        key_w = _keys(data, begin_w, end_w)
        slot_w = self._table.find(key_w)
        count_w = self._count_s[slot_w].astype(np.int64)
        count_w[self._table.keys[slot_w] != key_w] = 0
        none_w = np.zeros(len(end_w), bool)  # the words of empty lines
        none_w[line[:-1]] = (np.diff(line) == 1) & (end_w == begin_w)[line[:-1]]
        count_w[none_w] = 0
        token_t = self._token_sk[slot_w][np.arange(TOKENS) < count_w[:, None]]
        token_t = token_t.astype(np.int32)
        new_w = (count_w == 0) & ~none_w
        if new_w.any():
            key_n, first_n, of_new = np.unique(
                key_w[new_w], return_index=True, return_inverse=True
            )
            first_n = np.flatnonzero(new_w)[first_n]
            spans = zip(begin_w[first_n].tolist(), end_w[first_n].tolist(), strict=True)
            words = [data[begin:end].decode() for begin, end in spans]
            new = ragged([row or self._empty for row in self._encode(words, threads)])
            self._store(key_n, new)
            count_w[new_w] = new.lengths[of_new]
            new_t, stored_t = np.repeat(new_w, count_w), token_t
            token_t = np.empty(len(new_t), np.int32)
            token_t[~new_t], token_t[new_t] = stored_t, take(new, of_new).tokens
        return Ragged(token_t, np.append(0, np.cumsum(count_w))[line])

    def _store(self, key_n: np.ndarray, new: Ragged) -> None:
        """Remembers words as long as there is room."""
        with self._storing:
            short = np.flatnonzero(new.lengths <= TOKENS)[: self._room]
            # Another thread may have been first.
            added = short[self._table.insert(key_n[short])]
            self._room -= len(added)
            slots, words = self._table.find(key_n[added]), take(new, added)
            token_nk = np.zeros((len(added), TOKENS), self._token_sk.dtype)
            token_nk[np.arange(TOKENS) < words.lengths[:, None]] = words.tokens
            self._token_sk[slots] = token_nk
            self._count_s[slots] = words.lengths


def _keys(data: bytes, begin_w: np.ndarray, end_w: np.ndarray) -> np.ndarray:
    """Hashes words of a text to 64 bits that are not all 0, uint64 [words]."""
    # The 8 bytes from each byte of the text on, as a number.
    block_b = np.ndarray(len(data), "<u8", data + bytes(8), strides=(1,))
    length_w = end_w - begin_w
    key_w = mixed(length_w.astype(np.uint64))
    rows, at, left = np.arange(len(key_w)), begin_w, length_w
    long = np.flatnonzero(length_w > LONG)
    left[long] = 0
    while len(rows):
        block = block_b[at] & _FIRST[np.minimum(left, 8)]
        key_w[rows] = mixed(key_w[rows] ^ block)
        more = left > 8
        rows, at, left = rows[more], at[more] + 8, left[more] - 8
    spans = zip(begin_w[long].tolist(), end_w[long].tolist(), strict=True)
    hashes = [hash(data[begin:end]) for begin, end in spans]
    key_w[long] = np.array(hashes, np.int64).view(np.uint64)
    return np.maximum(key_w, np.uint64(1))
