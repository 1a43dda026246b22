"""Scores, attention weights and word alignments of given targets (teacher forcing).

Shape suffixes: b batch rows, s source, t target.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import programs
from t2t_jax.decoding.devices import compute_blocks, gather_results
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.results import Alignment, AttentionMaps, Score
from t2t_jax.decoding.shapes import Group, pad_rows
from t2t_jax.io.errors import UserError
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.teacher_forcing import teacher_forcing
from t2t_jax.search.length_penalty import PENALTIES

# (source ids, target ids) of each pair, both with EOS.
Pairs = Sequence[tuple[list[int], list[int]]]


def score(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    alpha: float,
    penalty: str,
) -> list[Score]:
    """Computes the log-probability of each token of each target.

    Args:
      members: an ensemble predicts with the mean of their probabilities.
      alpha, penalty: of the length penalty in `Score.score`.
    """
    log_probs: dict[int, list[float]] = {}
    compute = partial(
        programs.target_log_probs,
        tuple(member.parameters for member in members),
        definitions=tuple(member.model.definition for member in members),
        mesh=members[0].mesh,
    )
    for rows, log_prob_bt in run_batches(compute, vocabulary, members, pairs):
        for row, log_prob_t in zip(rows, log_prob_bt, strict=False):
            log_probs[row] = log_prob_t[: len(pairs[row][1])].tolist()
    log_probs = gather_results("log-probabilities", log_probs)
    scores = []
    for row, (_, ids) in enumerate(pairs):
        of_pieces = tuple(log_probs[row])
        score = sum(of_pieces) / PENALTIES[penalty](len(ids), alpha)
        scores.append(Score(piece_names(vocabulary, ids), of_pieces, score))
    return scores


def attention(
    vocabulary: Vocabulary, member: Member, pairs: Pairs
) -> Iterator[AttentionMaps]:
    """Yields all attention weights of each pair, in order.

    A model without attention within the source or the target has 0 layers of it; one
    without attention to the source is refused before, by `checked_cross_layers`.
    """
    maps: list[AttentionMaps | None] = [None] * len(pairs)
    # Processes do not exchange attention weights, so each computes those of all pairs.
    for row, trace in traces(vocabulary, member, pairs, divided=False):
        source, target = pairs[row]
        maps[row] = AttentionMaps(
            piece_names(vocabulary.source, source),
            piece_names(vocabulary, target),
            *(trace.encoder, trace.decoder, trace.cross),
        )
    yield from maps


def checked_cross_layers(member: Member) -> int:
    """The number of layers with attention to the source; raises UserError if 0."""
    if not member.model.cross_layers:
        raise UserError(
            f"config.model.kind={member.config.model.kind!r} has no attention to the "
            "source: there are no weights to show or to align words by; choose a model "
            "with attention"
        )
    return member.model.cross_layers


def alignment_layer(layers: int) -> int:
    """Returns the decoder layer whose attention aligns words best, from 0.

    It is the last but one, as Garg et al. 2019 found for the base model; the last of
    one or two layers. docs/decoding.md has measurements.
    """
    return layers - 1 if layers <= 2 else layers - 2


def align(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    layer: int | None = None,
) -> list[Alignment]:
    """Links each target word to the source word with the most attention.

    The weight of a target word on a source word is averaged over heads, members and the
    positions that predict the target word's pieces, and summed over the source word's
    pieces.

    Raises:
      UserError: a member has no such layer.
    """
    totals: dict[int, np.ndarray] = {}
    for member in members:
        layers = checked_cross_layers(member)
        chosen = alignment_layer(layers) if layer is None else layer
        if not 0 <= chosen < layers:
            raise UserError(f"layer={layer}; want one from 0 to {layers - 1}")
        for row, trace in traces(vocabulary, member, pairs):
            weights_ts = trace.cross[chosen].mean(axis=0) / len(members)
            totals[row] = totals.get(row, 0.0) + weights_ts
    found = {}
    for row, weights_ts in totals.items():
        source, target = pairs[row]
        target_words = words_of_target(vocabulary, target)
        source_words = words_of_pieces(vocabulary.source, source[:-1])
        weights_ji = word_weights(weights_ts, source_words, target_words)
        found[row] = links(weights_ji, target_words)
    found = gather_results("alignments", found)
    # The exchange between processes goes through JSON, which has lists for tuples.
    return [Alignment(tuple(map(tuple, found[row]))) for row in range(len(pairs))]


def words_of_target(vocabulary: Vocabulary, ids: Sequence[int]) -> list[int]:
    """`words_of_pieces` of a target that may have ended, without its EOS."""
    ended = [*ids[-1:]] == [vocabulary.eos]
    return words_of_pieces(vocabulary, ids[:-1] if ended else ids)


def word_weights(
    weights_ts: np.ndarray, source_words: Sequence[int], target_words: Sequence[int]
) -> np.ndarray:
    """Sums attention between pieces up to attention between words.

    Args:
      weights_ts: row t predicts target piece t.
      source_words, target_words: the word of each piece, -1 for none; further rows and
        columns of `weights_ts`, such as those of EOS, do not count.

    Returns:
      float64 [target words, source words]; the row of a word without a piece of its own
      is 0.
    """
    shape = (max(words, default=-1) + 1 for words in (target_words, source_words))
    weights_ji = np.zeros((*shape,))
    for j, weights_i in enumerate(weights_ji):
        rows = [t for t, word in enumerate(target_words) if word == j]
        if not rows:
            continue
        weights_s = weights_ts[rows].mean(axis=0)
        for s, word in enumerate(source_words):
            if word >= 0:
                weights_i[word] += weights_s[s]
    return weights_ji


def links(weights_ji: np.ndarray, target_words: Sequence[int]) -> list[tuple[int, int]]:
    """Links each target word that has a piece to the source word of most weight."""
    present = {*target_words}
    return [
        (int(weights_i.argmax()), j)
        for j, weights_i in enumerate(weights_ji)
        if j in present and len(weights_i)
    ]


def words_of_pieces(vocabulary: Vocabulary, ids: Sequence[int]) -> list[int]:
    """Returns the number of the word that each piece belongs to; -1 without words.

    A space belongs to the word after it, as in SentencePiece. Tokens that stand for no
    text, such as that of a language, belong to no word. The words are those of
    `word_texts`.
    """
    added = spellings(vocabulary, ids)
    # Pieces alone do not show where words begin (a character may be split into bytes),
    # so every beginning of the sentence is decoded.
    octets = itertools.accumulate(added, initial=b"")
    begun = [part.decode(errors="replace") for part in octets]
    # A piece that adds visible text belongs to the last word so far; one that adds only
    # white space belongs to the next word.
    words = [
        len(text.split()) - (text.rstrip() != before.rstrip())
        for before, text in itertools.pairwise(begun)
    ]
    # The first bytes of a multi-byte white space decode to a replacement character,
    # which looks like a word. So a number must not exceed those after it: take the
    # minimum from the right, and at the end the number of the last word.
    last = len(begun[-1].split()) - 1
    words = [*itertools.accumulate(words[::-1], min, initial=last)][:0:-1]
    return [n if s else -1 for n, s in zip(words, added, strict=True)]


def word_texts(vocabulary: Vocabulary, ids: Sequence[int]) -> list[str]:
    """Returns the words of pieces, as they are separated by white space in the text."""
    text = b"".join(spellings(vocabulary, ids)).decode(errors="replace")
    return text.split()


def spellings(vocabulary: Vocabulary, ids: Sequence[int]) -> list[bytes]:
    """Returns what each piece adds to the text, in UTF-8."""
    # What the tokenizer cannot spell is a word of the line, even if no text shows it.
    hidden = {vocabulary.unknown: "?"}
    added = [vocabulary.spelling(i) or hidden.get(i, "") for i in ids]
    return [s if isinstance(s, bytes) else s.encode() for s in added]


def traces(
    vocabulary: Vocabulary, member: Member, pairs: Pairs, divided: bool = True
) -> Iterator[tuple[int, LayerTrace]]:
    """Yields the number of each pair and its weights, without padding.

    The weights of encoder, decoder and cross-attention are arrays [layers, heads,
    queries, keys]. `divided` is as for `devices.computed`.
    """
    compute = partial(
        programs.attention_trace,
        member.parameters,
        definition=member.model.definition,
        mesh=member.mesh,
    )
    for rows, trace in run_batches(compute, vocabulary, [member], pairs, divided):
        for place, row in enumerate(rows):
            s, t = map(len, pairs[row])
            yield (
                row,
                LayerTrace(
                    trace.encoder[place, :, :, :s, :s],
                    trace.decoder[place, :, :, :t, :t],
                    trace.cross[place, :, :, :t, :s],
                ),
            )


def run_batches(
    compute,
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    divided: bool = True,
) -> Iterator[tuple[Sequence[int], Any]]:
    """Yields the numbers of the pairs of each block, and what `compute` returns for it.

    Pairs of similar length are batched; the shape depends on the length alone.
    """
    decode = members[0].config.decode
    limits = [m.model.longest for m in members if m.model.longest is not None]

    def make(group: Group) -> dict[str, np.ndarray]:
        rows, bucket = group.shape
        # A bucket may exceed a model's longest row, though its sentences do not.
        shape = rows, min([bucket, *limits])
        source, source_segment = pad_rows(
            [pairs[row][0] for row in group.lines], *shape
        )
        target, target_segment = pad_rows(
            [pairs[row][1] for row in group.lines], *shape
        )
        position = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
        batch = {
            "source": source,
            "source_segment": source_segment,
            "source_position": position,
            "target": target,
            "target_segment": target_segment,
            "target_position": position,
        }
        return teacher_forcing(batch, vocabulary.bos)

    lengths = [max(map(len, pair)) for pair in pairs]
    return compute_blocks(make, compute, lengths, decode, members[0].mesh)


def piece_names(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(vocabulary.piece(i) for i in ids)
