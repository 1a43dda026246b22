"""Sources -> blocks of a fixed shape -> a search -> translations, in order.

Shape suffixes: b batch rows, s source, t target, n hypotheses.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from t2t_jax.config import DecodeConfig
from t2t_jax.data.vocab import Vocabulary
from t2t_jax.decoding.blocks import blocks, filled, rows_of
from t2t_jax.decoding.hypotheses import Hypotheses
from t2t_jax.decoding.phrases import Phrases
from t2t_jax.decoding.reading import Source
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.rules import Rules
from t2t_jax.decoding.wishes import Wish
from t2t_jax.errors import UserError

EMPTY = Hypothesis("", 0.0, 0.0, True)  # of a line without a visible character
NOTHING = Hypothesis("", -float("inf"), -float("inf"), False)


class Block(NamedTuple):
    """What a search is given: arrays of one fixed shape.

    Attributes:
      source_bs, segment_bs: int32.
      limit_b: int32, the longest outputs, in tokens with the end.
      rules: what is wished of the outputs, or None.
      hash_b2: uint32, of the source alone.
      max_length: the width of the output.
    """

    source_bs: np.ndarray
    segment_bs: np.ndarray
    limit_b: np.ndarray
    rules: Rules | None
    hash_b2: np.ndarray
    max_length: int


Search = Callable[[Block], Hypotheses]


def find(
    search: Search,
    sources: Sequence[Source],
    wishes: Sequence[Wish],
    vocabulary: Vocabulary,
    phrases: Phrases,
    decode: DecodeConfig,
) -> list[tuple[Hypothesis, ...]]:
    """The hypotheses of each source, in order; at least one each."""
    found = [(EMPTY,)] * len(sources)
    for rows, bucket in blocks([len(source.ids) for source in sources], decode):
        block = _block(
            [sources[row].ids for row in rows],
            phrases,
            [wishes[row] for row in rows],
            (rows_of(bucket, decode), bucket),
            decode.extra_length,
        )
        outputs = jax.device_get(search(block))
        for row, hypotheses in zip(rows, _readable(outputs, vocabulary), strict=False):
            found[row] = hypotheses
    return found


def check_room(source: Source, wish: Wish, number: int, decode: DecodeConfig) -> None:
    """Tells of a prefix that leaves no room for a translation."""
    room = len(source.ids) + decode.extra_length
    if source.ids and len(wish.prefix) >= room:
        raise UserError(
            f"line {number}: its prefix has {len(wish.prefix)} pieces, its translation "
            f"at most {room} (config.decode.extra_length={decode.extra_length}); "
            "shorten the prefix"
        )


def _block(
    ids: list[list[int]],
    phrases: Phrases,
    wishes: list[Wish],
    shape: tuple[int, int],
    extra: int,
) -> Block:
    """Some lines and their wishes, filled up with empty rows."""
    rows, bucket = shape
    limit_b = np.ones(rows, np.int32)
    limit_b[: len(ids)] = [len(line) + extra for line in ids]
    hash_b2 = np.zeros((rows, 2), np.uint32)
    hash_b2[: len(ids)] = [_hash(line) for line in ids]
    rules = phrases.rules(*zip(*wishes, strict=True), rows, bucket + extra)
    return Block(*filled(ids, rows, bucket), limit_b, rules, hash_b2, bucket + extra)


def _hash(ids: list[int]) -> np.ndarray:
    """Two numbers of 32 bits that tell lines apart."""
    digest = hashlib.blake2b(np.asarray(ids, "<i4").tobytes(), digest_size=8).digest()
    return np.frombuffer(digest, "<u4")


def _readable(found: Hypotheses, vocabulary: Vocabulary) -> Iterator[tuple]:
    """The hypotheses of each row."""
    for arrays in zip(*found, strict=True):
        tokens_nt, score_n, log_prob_n, length_n, ended_n = arrays
        # A place that no hypothesis takes has length 0, or nothing that may be said.
        kept = [n for n, x in enumerate(log_prob_n) if length_n[n] and np.isfinite(x)]
        tokens = [tuple(tokens_nt[n, : length_n[n]].tolist()) for n in kept]
        # One line in, one line out, whatever bytes a model puts together and whichever
        # of Unicode's line ends a reader of the output goes by.
        texts = [" ".join(t.splitlines()) for t in vocabulary.decode(tokens)]
        yield tuple(
            Hypothesis(
                text, float(score_n[n]), float(log_prob_n[n]), bool(ended_n[n]), ids
            )
            for n, text, ids in zip(kept, texts, tokens, strict=True)
        ) or (NOTHING,)
