"""Subword regularisation: other pieces of the same words in every epoch.

BPE-dropout (Provilkov et al. 2020): while a word is encoded, each merge is left out
with some probability. So a model sees rare pieces more often, and learns to read words
that are split in unusual ways. As in SentencePiece, a merge is left out when its turn
comes, and not tried again; pieces around it may still merge.

Pieces are a pure function of (seed, epoch, line number, side, line). NumPy does the
work for all words of many lines at once. Suffixes: `l` lines, `w` words, `t` different
words, `s` symbols.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import sentencepiece

from t2t_jax.data.counter_random import uniform
from t2t_jax.data.filling import Ragged
from t2t_jax.data.labels import Labels
from t2t_jax.data.merges import ALWAYS, Merges, merge
from t2t_jax.data.noise import take
from t2t_jax.data.pairs import ragged
from t2t_jax.data.sentencepieces import SPACE, SentencePieces, escape
from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.io.errors import UserError

LINES = 1 << 14  # lines encoded at a time; bounds memory
# The word that ends a line: half of a surrogate pair, which is not in any UTF-8 text.
END = "\ud800"
_STREAM = 0x5B8D  # keeps these random numbers apart from those of other purposes


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
        """Encodes lines; each ends in EOS, unless it is a label.

        The pieces of a line do not depend on the other lines. Without dropout they are
        those of `Vocabulary.encode`; in any case they decode to the same text.

        Args:
          lines: the lines, without line ends.
          numbers: a number for each line, int64 [lines]: equal lines with different
            numbers are split independently.
          seed, epoch: what the choice depends on, besides.
          side: 0 for the source, 1 for the target.
        """
        numbers = np.asarray(numbers, np.int64)
        if numbers.shape != (len(lines),):
            raise ValueError(
                f"got {len(lines)} lines and numbers of shape {numbers.shape}; want "
                "one number for each line"
            )

        def kept(number_w, word_w, draw_w):
            keys = seed, epoch, _STREAM + side, number_w, word_w, draw_w
            return _successes(uniform(*keys), self.dropout)

        parts = [
            self._sides[side](lines[at : at + LINES], numbers[at : at + LINES], kept)
            for at in range(0, len(lines), LINES)
        ]
        return _concatenated(parts)


def sampled_encoder(vocabulary: Vocabulary, dropout: float) -> SubwordSampling:
    """Returns the encoder of `config.data.subword_dropout`; see `SubwordSampling`."""
    return SubwordSampling(vocabulary, dropout)


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
        return _Whole(vocabulary)
    if kind is not SentencePieces:
        raise UserError(
            f"{vocabulary.name} is a tokenizer of kind {kind.__name__}; "
            "config.data.subword_dropout needs a SentencePiece byte-pair encoding. Set "
            "config.data.subword_dropout=0, or train a model with a tokenizer of its "
            "own: leave config.data.tokenizer empty"
        )
    return _Words(vocabulary)


class _Whole:
    """Lines that are always encoded alike."""

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary = vocabulary

    def __call__(self, lines: Sequence[str], numbers: np.ndarray, kept) -> Ragged:
        del numbers, kept
        return ragged(self._vocabulary.encode(lines, end=True))


class _Words:
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
        self, lines: Sequence[str], number_l: np.ndarray, kept: Callable
    ) -> Ragged:
        """Encodes lines.

        Args:
          lines: the lines.
          number_l: their numbers.
          kept: a function of (numbers of lines, places of words in them, numbers of
            draws); see `Kept`.
        """
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
        some = np.flatnonzero(merges_w)
        some = some[kept(number_w[some], word_w[some], 0) < merges_w[some]]
        number, word = number_w[some], word_w[some]
        sampled = merge(
            take(symbols_t, type_w[some]),
            self._merges,
            lambda w, draw: kept(number[w], word[w], draw),
        )
        type_w[some] = len(pieces_t) + np.arange(len(some))
        pieces_w = take(_concatenated([pieces_t, sampled]), type_w)
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


def _concatenated(parts: Sequence[Ragged]) -> Ragged:
    """Concatenates sentences."""
    lengths = [part.lengths for part in parts]
    tokens = [part.tokens for part in parts]
    return Ragged(
        np.concatenate([np.zeros(0, np.int32), *tokens]),
        np.append(0, np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))),
    )
