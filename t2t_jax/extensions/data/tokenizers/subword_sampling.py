"""Subword regularisation: other pieces of the same words in every epoch.

BPE-dropout (Provilkov et al. 2020): while a word is encoded, each merge is left out
with some probability. So a model sees rare pieces more often, and learns to read words
that are split in unusual ways. As in SentencePiece, a merge is left out when its turn
comes, and not tried again; pieces around it may still merge.

Pieces are a pure function of (seed, epoch, line number, side, line). SentencePiece
applies merges inside its library and draws random numbers from one generator of the
process; so here the merges are data, and NumPy applies them to all words of many lines
at once. Suffixes: `l` lines, `w` words, `t` different words, `s` symbols.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import sentencepiece

from t2t_jax.data.filling import Ragged, concatenated, ragged, take
from t2t_jax.data.hashing import HashTable
from t2t_jax.data.tokenizers.sentencepieces import (
    BYTE,
    ORDINARY,
    SPACE,
    SYMBOL,
    UNUSED,
    SentencePieces,
    escape,
    is_byte_pairs,
    pieces,
    words_independent,
)
from t2t_jax.data.tokenizers.table import Labels
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.text.counter_random import uniform

LINES = 1 << 14  # lines encoded at a time; bounds memory

# The word that ends a line: half of a surrogate pair, which is not in any UTF-8 text.
END = "\ud800"
CODE_POINTS = 0x110000
NO_MERGE = np.int64(1) << 62  # above every priority
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
ALWAYS = np.int64(1) << 31  # more merges than a word has
_STREAM = 0x5B8D  # keeps these random numbers apart from those of other purposes

# (words, draws) -> how many merges of each word are done before the next is left out
MergesDone = Callable[[np.ndarray, np.ndarray], np.ndarray]


class SubwordSampling:
    """Encodes lines as pieces that differ from epoch to epoch.

    Args:
      vocabulary: of SentencePiece byte-pair encodings. A side of labels is encoded as
        ever, because a label is one token.
      dropout: the probability with which a merge is left out, in [0, 1). The paper
        takes 0.1.

    Raises:
      UserError: another probability, or another kind of tokenizer.
    """

    def __init__(self, vocabulary: Vocabulary, dropout: float):
        if not 0 <= dropout < 1:
            raise UserError(
                f"config.data.subword_dropout={dropout}; want at least 0 and less than "
                "1, such as 0.1"
            )
        self.dropout = dropout
        target = _encoder(vocabulary)
        source = target if vocabulary.joint else _encoder(vocabulary.source)
        self._sides = source, target

    def encode(
        self,
        lines: Sequence[str],
        numbers: np.ndarray,
        seed: int,
        epoch: int,
        side: int,
    ) -> Ragged:
        """Encodes lines; each ends in EOS, unless it is a label. Side 0 is the source.

        The pieces of a line do not depend on the other lines, but on its number: equal
        lines with different numbers are split independently. Without dropout they are
        those of `Vocabulary.encode`; in any case they decode to the same text.
        """

        def merges_done(number_w, word_w, draw_w):
            uniform_w = uniform(seed, epoch, _STREAM + side, number_w, word_w, draw_w)
            return _successes(uniform_w, self.dropout)

        blocks = [slice(i, i + LINES) for i in range(0, len(lines), LINES)]
        encode = self._sides[side]
        return concatenated(
            [encode(lines[block], numbers[block], merges_done) for block in blocks]
        )


def _successes(uniform_w: np.ndarray, dropout: float) -> np.ndarray:
    """Turns uniform numbers into how often a merge is done before one is left out.

    Inverts the distribution function of a geometric variable. So a word takes one
    random number, and one more for each merge that is left out, not one for each merge.
    """
    if not dropout:
        return np.full(np.shape(uniform_w), ALWAYS)
    with np.errstate(over="ignore"):  # a tiny dropout: infinitely many
        successes = np.log1p(-uniform_w) / np.log1p(-dropout)
    return np.minimum(successes, float(ALWAYS)).astype(np.int64)


def _encoder(vocabulary: Vocabulary):
    """Returns the encoder of one side; refuses tokenizers without known merges."""
    kind = type(vocabulary.tokenizer)
    if kind is Labels:
        return lambda lines, *_: ragged(vocabulary.encode(lines, end=True))
    if kind is not SentencePieces:
        raise UserError(
            f"{vocabulary.name} is a tokenizer of kind {kind.__name__}; "
            "config.data.subword_dropout needs a SentencePiece byte-pair encoding. Set "
            "config.data.subword_dropout=0, or train a model with a tokenizer of its "
            "own: leave config.data.tokenizer empty"
        )
    return _WordEncoder(vocabulary)


class _WordEncoder:
    """Encodes the lines of one side word by word."""

    def __init__(self, vocabulary: Vocabulary):
        self._merges = Merges(vocabulary.model, vocabulary.name)
        self._eos, self._unknown = vocabulary.eos, vocabulary.unknown
        self._processor = sentencepiece.SentencePieceProcessor(
            model_proto=vocabulary.model
        )
        # The longest first: one symbol may begin another.
        symbols = sorted(self._merges.symbols, key=len, reverse=True)
        pattern = f"({'|'.join(map(re.escape, symbols))})"
        self._find_symbols = re.compile(pattern) if symbols else None

    def __call__(
        self, lines: Sequence[str], number_l: np.ndarray, merges_done: Callable
    ) -> Ragged:
        """Encodes lines with these numbers; `merges_done` as for `merge`."""
        words = self._split(lines)
        # The end of a line and the symbols are words, too, of a single token.
        fixed = {END: self._eos, **self._merges.symbols}
        index: defaultdict = defaultdict(itertools.count(len(fixed)).__next__)
        index.update(zip(fixed, itertools.count()))
        type_w = np.fromiter(map(index.__getitem__, words), np.int64, len(words))
        length_l = np.diff(np.flatnonzero(type_w == 0), prepend=-1)
        symbols_t = self._symbols([*fixed.values()], [*index][len(fixed) :])
        pieces_t = merge(symbols_t, self._merges)
        # Without dropout all merges of a word are done. The words that sampling leaves
        # as they are, most of them, are found by one random number each.
        merges_t = symbols_t.lengths - pieces_t.lengths
        end_l = np.cumsum(length_l)
        number_w = np.repeat(number_l, length_l)
        word_w = np.arange(len(words)) - np.repeat(end_l - length_l, length_l)
        merges_w = merges_t[type_w]
        affected = np.flatnonzero(merges_w)
        done = merges_done(number_w[affected], word_w[affected], 0)
        affected = affected[done < merges_w[affected]]
        number, word = number_w[affected], word_w[affected]
        sampled = merge(
            take(symbols_t, type_w[affected]),
            self._merges,
            lambda w, draw: merges_done(number[w], word[w], draw),
        )
        type_w[affected] = len(pieces_t) + np.arange(len(affected))
        pieces_w = take(concatenated([pieces_t, sampled]), type_w)
        offsets = pieces_w.offsets[np.append(0, end_l)]
        return self._spelled(Ragged(pieces_w.tokens, offsets))

    def _split(self, lines: Sequence[str]) -> list[str]:
        """Splits lines at places that no merge crosses; `END` ends each line."""
        texts = self._processor.normalize([escape(line) for line in lines])
        find = self._find_symbols
        if self._merges.splits:
            # All lines at once. Normalized text has no spaces, because U+2581 stands
            # for each, so they may separate words. Empty words add no piece.
            text = f" {END} ".join([*texts, ""]).replace(SPACE, f" {SPACE}")
            return (find.sub(r" \g<0> ", text) if find else text).split(" ")[:-1]
        parts = (find.split(text) if find else [text] for text in texts)
        return [*itertools.chain.from_iterable((*part, END) for part in parts)]

    def _symbols(self, fixed: Sequence[int], words: Sequence[str]) -> Ragged:
        """The symbols of words before any merge: tokens as they are, and characters."""
        lengths = [1] * len(fixed) + [*map(len, words)]
        characters = self._merges.symbols_of("".join(words))
        return Ragged(
            np.append(np.array(fixed, np.int32), characters),
            np.append(0, np.cumsum(lengths)),
        )

    def _spelled(self, lines: Ragged) -> Ragged:
        """Spells characters that the model does not know, as SentencePiece does."""
        pieces = self._merges.pieces
        unknown_s = lines.tokens >= pieces
        if not unknown_s.any():
            return lines
        counts, tokens = np.ones(len(lines.tokens), np.int64), lines.tokens
        if len(self._merges.byte_ids):
            text = "".join(map(chr, tokens[unknown_s] - pieces))
            counts[unknown_s] = [len(c.encode()) for c in text]
            spelled = np.repeat(tokens, counts)
            content = np.frombuffer(text.encode(), np.uint8)
            spelled[np.repeat(unknown_s, counts)] = self._merges.byte_ids[content]
        else:
            # Neighbours that are unknown become one token together.
            counts[1:][unknown_s[1:] & unknown_s[:-1]] = 0
            spelled = np.where(unknown_s, self._unknown, tokens)[counts > 0]
        ends = np.append(0, np.cumsum(counts))
        return Ragged(spelled.astype(np.int32), ends[lines.offsets])


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
        byte_pieces = sorted((p.name, i) for i, p in enumerate(table) if p.kind == BYTE)
        self.byte_ids = np.array([i for _, i in byte_pieces], np.int32)
        self.splits = words_independent([*ids, *self.symbols])
        # A character's symbol: its piece, or the number of an unknown one.
        self._symbol_of = np.arange(CODE_POINTS, dtype=np.int32) + np.int32(self.pieces)
        characters = [(ord(piece), i) for piece, i in ids.items() if len(piece) == 1]
        places, values = np.array(characters, np.int32).reshape(-1, 2).T
        self._symbol_of[places] = values
        # `np.searchsorted` in sorted pairs would take a dozen reads of memory for each
        # pair; a hash table takes two or three. An eighth of its slots is filled at
        # most, so most pairs are found at once.
        left, right, merged = np.array([*_pairs(ids)], np.int64).reshape(-1, 3).T
        self._pairs = HashTable(bits=max(8, int(8 * len(merged)).bit_length()))
        keys = self._pair_keys(left, right)
        self._pairs.insert(keys)
        self._merged = np.full(len(self._pairs.keys), -1, np.int32)
        self._merged[self._pairs.find(keys)] = merged
        # Symbols with equal scores have equal ranks: then the leftmost merges first.
        # Scores are 32-bit floats in SentencePiece, too.
        scores = np.array([p.score for p in table], np.float32)
        ranks = np.unique(-scores, return_inverse=True)[1].astype(np.int64)
        # The last entry, which index -1 reads, is that of a pair that does not merge.
        self._priorities = np.append(ranks << 32, NO_MERGE)

    @property
    def no_symbol(self) -> int:
        """A number that is not a symbol, for a place outside of a word."""
        return self.pieces + CODE_POINTS

    def _pair_keys(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        pair = left.astype(np.int64) * (self.no_symbol + 1) + right + 1
        # The upper bits of the product depend on all bits of the pair. Unsigned
        # multiplication wraps around, as is wanted.
        return pair.view(np.uint64) * MULTIPLIER

    def symbols_of(self, text: str) -> np.ndarray:
        """Returns the symbols of the characters of a text, int32 [characters]."""
        return self._symbol_of[np.frombuffer(text.encode("utf-32-le"), np.uint32)]

    def find(
        self, left: np.ndarray, right: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Looks up the merges of pairs of symbols, int32 [pairs].

        Returns the merged symbols, or -1, int32; and the priorities of the merges, the
        lowest first, in the upper 32 bits of int64, or `NO_MERGE`.
        """
        merged = self._merged[self._pairs.find(self._pair_keys(left, right))]
        return merged, self._priorities[merged]


def merge(
    words: Ragged, merges: Merges, merges_done: MergesDone | None = None
) -> Ragged:
    """Merges the symbols of each word to pieces.

    Each round does the next merge of every word, or leaves it out: the one of the
    highest score, and of these the leftmost. `merges_done` maps words, and how many
    merges of each were left out, to how many are done before the next is left out. None
    does all.
    """
    order_w = np.argsort(-words.lengths, kind="stable")
    words = take(words, order_w)  # the longest first: short words are done early
    count = int(np.count_nonzero(words.lengths))  # words that are not empty
    first_w = words.offsets[:count]
    # Symbols are a doubly linked list. A merged one stays at the place of its first
    # symbol. Place `end` is outside of any word.
    end = len(words.tokens)
    symbol_s = np.append(words.tokens, np.int32(merges.no_symbol))
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
    remaining_w = np.full(count, ALWAYS)
    if merges_done is not None:
        remaining_w = merges_done(order_w[:count], draws_w)
    while count:
        next_w = np.minimum.reduceat(queue_s[: words.offsets[count]], first_w[:count])
        todo = np.flatnonzero(next_w < NO_MERGE)
        count = int(todo[-1]) + 1 if len(todo) else 0
        place = next_w[todo] & 0xFFFFFFFF
        stop = remaining_w[todo] == 0
        remaining_w[todo] -= 1
        if stop.any():
            stopped = todo[stop]
            queue_s[place[stop]] = NO_MERGE
            draws_w[stopped] += 1
            remaining_w[stopped] = merges_done(order_w[stopped], draws_w[stopped])
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
