"""Sources -> blocks of a fixed shape -> a search -> hypotheses, in order.

Shape suffixes: b batch rows, s source, t target, n hypotheses.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jax.sharding import Mesh

from t2t_jax.config import DecodeConfig
from t2t_jax.data.vocab import Vocabulary
from t2t_jax.decoding.blocks import Group, filled
from t2t_jax.decoding.devices import shared
from t2t_jax.decoding.hypotheses import Hypotheses
from t2t_jax.decoding.phrases import Phrases
from t2t_jax.decoding.reading import Source
from t2t_jax.decoding.refilling import Search, searched
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.rules import Rules, joined
from t2t_jax.decoding.wishes import Wish
from t2t_jax.errors import UserError

EMPTY = Hypothesis("", 0.0, 0.0, True)  # of a line without a visible character
NOTHING = Hypothesis("", -float("inf"), -float("inf"), False)


class Block(NamedTuple):
    """What a search is given: arrays of a fixed shape, of as many blocks as devices.

    Attributes:
      source_bs, segment_bs: int32.
      limit_b: int32, the longest outputs, in tokens with the end.
      rules: what is wished of the outputs, or None.
      hash_b2: uint32, of the source alone.
    """

    source_bs: np.ndarray
    segment_bs: np.ndarray
    limit_b: np.ndarray
    rules: Rules | None
    hash_b2: np.ndarray


def find(
    search: Search,
    sources: Sequence[Source],
    wishes: Sequence[Wish],
    vocabulary: Vocabulary,
    phrases: Phrases,
    decode: DecodeConfig,
    mesh: Mesh,
) -> list[tuple[Hypothesis, ...]]:
    """The hypotheses of each source, in order; at least one each."""
    found: dict[int, list[tuple]] = {}

    def make(group: Group) -> Block:
        ids = [sources[line].ids for line in group.lines]
        wished = [wishes[line] for line in group.lines]
        return _block(group, ids, phrases, wished, decode.extra_length)

    lengths = [len(source.ids) for source in sources]
    for lines, outputs in searched(make, search, lengths, decode, mesh):
        for line, hypotheses in zip(lines, _readable(outputs, vocabulary), strict=True):
            found[line] = [dataclasses.astuple(each) for each in hypotheses]
    found = shared("translations", found)
    return [
        tuple(Hypothesis(*told, tuple(ids)) for *told, ids in found[line])
        if line in found
        else (EMPTY,)
        for line in range(len(sources))
    ]


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
    group: Group,
    ids: list[list[int]],
    phrases: Phrases,
    wishes: list[Wish],
    extra: int,
) -> Block:
    """The lines of a group and their wishes, filled up with empty rows."""
    rows, bucket = group.shape
    limit_b = np.ones(rows, np.int32)
    limit_b[: len(ids)] = [len(line) + extra for line in ids]
    hash_b2 = np.zeros((rows, 2), np.uint32)
    hash_b2[: len(ids)] = [_hash(line) for line in ids]
    size = group.rows, bucket + extra
    rules = joined(
        [
            phrases.rules(*zip(*part, strict=True), *size) if part else None
            for part in group.parts(wishes)
        ]
    )
    return Block(*filled(ids, rows, bucket), limit_b, rules, hash_b2)


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
