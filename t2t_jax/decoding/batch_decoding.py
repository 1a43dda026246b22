"""Decodes encoded lines: blocks of a fixed shape, a search, then text.

Shape suffixes: b batch rows, s source, t target, n hypotheses.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_jax.config import DecodeConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.constraints import Constraints
from t2t_jax.decoding.continuous_batching import search_lines
from t2t_jax.decoding.devices import gather_results
from t2t_jax.decoding.inputs import Source
from t2t_jax.decoding.phrases import Phrases
from t2t_jax.decoding.programs import Block, Search
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.shapes import Group, longest_output, pad_rows
from t2t_jax.io.errors import UserError
from t2t_jax.search.hypotheses import Hypotheses
from t2t_jax.search.rules import concatenate_rules

EMPTY = Hypothesis("", 0.0, 0.0, True)  # for a line without a visible character
# For a line for which no output meets the constraints.
NOTHING = Hypothesis("", -float("inf"), -float("inf"), False)


def decode_batch(
    search: Search,
    sources: Sequence[Source],
    constraints: Sequence[Constraints],
    vocabulary: Vocabulary,
    phrases: Phrases,
    decode: DecodeConfig,
) -> list[tuple[Hypothesis, ...]]:
    """Returns the hypotheses of each source, in order; at least one for each."""
    # Tuples of fields, since processes exchange results as JSON.
    nbest_lists: dict[int, list[tuple]] = {}

    def make_block(group: Group) -> Block:
        of_sources = [sources[line] for line in group.lines]
        of_lines = [constraints[line] for line in group.lines]
        return block_of(group, of_sources, phrases, of_lines, decode)

    lengths = [len(source.ids) for source in sources]
    for lines, result in search_lines(make_block, search, lengths, decode):
        for line, nbest in zip(lines, to_text(result, vocabulary), strict=True):
            nbest_lists[line] = [dataclasses.astuple(each) for each in nbest]
    nbest_lists = gather_results("translations", nbest_lists)
    return [
        tuple(Hypothesis(*fields, tuple(ids)) for *fields, ids in nbest_lists[line])
        if line in nbest_lists
        else (EMPTY,)
        for line in range(len(sources))
    ]


def check_room(
    source: Source, constraints: Constraints, number: int, decode: DecodeConfig
) -> None:
    """Raises UserError for a prefix that leaves no room for a translation."""
    room = longest_output(len(source.ids), decode)
    pieces = len(constraints.prefix) + bool(constraints.begun)
    if source.ids and pieces >= room:
        raise UserError(
            f"line {number}: the prefix has {pieces} pieces, but the "
            f"translation may have at most {room} (config.decode.extra_length="
            f"{decode.extra_length}); shorten the prefix"
        )


def block_of(
    group: Group,
    sources: Sequence[Source],
    phrases: Phrases,
    constraints: list[Constraints],
    decode: DecodeConfig,
) -> Block:
    """Builds the arrays of a group's lines and constraints, padded with empty rows."""
    rows, bucket = group.shape
    ids = [source.ids for source in sources]
    limit_b = np.ones(rows, np.int32)
    limit_b[: len(ids)] = [longest_output(len(line), decode) for line in ids]
    hash_b2 = np.zeros((rows, 2), np.uint32)
    hash_b2[: len(ids)] = [_hash(source) for source in sources]
    # Tables of states are shared within a block, not between devices, so each block
    # gets rules of its own.
    size = group.rows, longest_output(bucket, decode)
    rules = concatenate_rules(
        [
            phrases.rules(*zip(*part, strict=True), *size) if part else None
            for part in group.split(constraints)
        ]
    )
    return Block(*pad_rows(ids, rows, bucket), limit_b, rules, hash_b2)


def _hash(source: Source) -> np.ndarray:
    """Returns a 64-bit hash of a line's ids and number, as two uint32 numbers."""
    hashed = [*source.ids, source.number] if source.number else source.ids
    content = np.asarray(hashed, "<i4").tobytes()
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return np.frombuffer(digest, "<u4")


def to_text(result: Hypotheses, vocabulary: Vocabulary) -> Iterator[tuple]:
    """Yields the hypotheses of each row as text; at least one for each."""
    for arrays in zip(*result, strict=True):
        tokens_nt, score_n, log_prob_n, length_n, ended_n = arrays
        # Places without a hypothesis have length 0 or no finite log-probability.
        kept = [n for n, x in enumerate(log_prob_n) if length_n[n] and np.isfinite(x)]
        tokens = [tuple(tokens_nt[n, : length_n[n]].tolist()) for n in kept]
        # One line in, one line out, whatever bytes a model generates and whichever of
        # Unicode's line ends the reader of the output recognises.
        texts = [" ".join(t.splitlines()) for t in vocabulary.decode(tokens)]
        yield tuple(
            Hypothesis(
                text, float(score_n[n]), float(log_prob_n[n]), bool(ended_n[n]), ids
            )
            for n, text, ids in zip(kept, texts, tokens, strict=True)
        ) or (NOTHING,)
