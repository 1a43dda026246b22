"""Teacher forcing: the probability of a given target, and where attention looks at it.

Shape suffixes: b batch rows, s source, t target, l layers, h heads, i and j words.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.decoding import programs
from t2t_jax.decoding.devices import computed, shared
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.results import Alignment, AttentionMaps, Score
from t2t_jax.decoding.shapes import Group, filled
from t2t_jax.model.attention import AttentionTrace
from t2t_jax.model.teacher_forcing import teacher_forcing
from t2t_jax.search.length_penalty import PENALTIES
from t2t_jax.terminal.errors import UserError

Pairs = Sequence[tuple[list[int], list[int]]]  # source ids, target ids; ends included


def score(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    alpha: float,
    penalty: str,
) -> list[Score]:
    """The log-probability of each token of each target."""
    found: dict[int, list[float]] = {}
    forced = partial(
        programs.target_log_probs,
        tuple(member.parameters for member in members),
        definitions=tuple(member.model.definition for member in members),
        mesh=members[0].mesh,
    )
    for rows, log_prob_bt in _run_batches(forced, vocabulary, members, pairs):
        for row, log_prob_t in zip(rows, log_prob_bt, strict=False):
            found[row] = log_prob_t[: len(pairs[row][1])].tolist()
    found = shared("log-probabilities", found)
    scores = []
    for row, (_, ids) in enumerate(pairs):
        score = sum(found[row]) / PENALTIES[penalty](len(ids), alpha)
        scores.append(Score(_piece_names(vocabulary, ids), tuple(found[row]), score))
    return scores


def attention(
    vocabulary: Vocabulary, member: Member, pairs: Pairs
) -> Iterator[AttentionMaps]:
    """All attention weights of each pair, in order."""
    maps: list[AttentionMaps | None] = [None] * len(pairs)
    for row, seen in _traces(vocabulary, member, pairs, divided=False):
        names = (_piece_names(vocabulary, ids) for ids in pairs[row])
        maps[row] = AttentionMaps(*names, *seen)
    yield from maps


def alignment_layer(layers: int) -> int:
    """The decoder layer whose attention tells best which words belong together.

    The last but one, as Garg et al. 2019 found of the base model; of one or two layers
    the last. docs/decoding.md has what was measured.
    """
    return layers - 1 if layers <= 2 else layers - 2


def align(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    layer: int | None = None,
) -> list[Alignment]:
    """For each target word the source word that it looks at most.

    Heads are averaged. A word's pieces count together: of the target the mean, where
    each is about to be predicted; of the source the sum.
    """
    totals: dict[int, np.ndarray] = {}
    for member in members:
        layers = member.config.model.layers
        chosen = alignment_layer(layers) if layer is None else layer
        if not 0 <= chosen < layers:
            raise UserError(f"layer={layer}; want one from 0 to {layers - 1}")
        for row, seen in _traces(vocabulary, member, pairs):
            weights_ts = seen.cross[chosen].mean(axis=0) / len(members)
            totals[row] = totals.get(row, 0.0) + weights_ts
    found = {
        row: _links(vocabulary, weights_ts, *pairs[row])
        for row, weights_ts in totals.items()
    }
    found = shared("alignments", found)
    return [Alignment(tuple(map(tuple, found[row]))) for row in range(len(pairs))]


def _links(vocabulary: Vocabulary, weights_ts, source, target) -> list[tuple[int, int]]:
    """Words linked by the attention of pieces; row t predicts piece t."""
    source_words = _words(vocabulary, source[:-1])
    ended = target[-1:] == [vocabulary.eos]
    target_words = _words(vocabulary, target[:-1] if ended else target)
    links = []
    for j in range(max(target_words, default=-1) + 1):
        rows = [t for t, word in enumerate(target_words) if word == j]
        if not rows:
            continue
        looked_s = weights_ts[rows].mean(axis=0)
        by_word = np.zeros(max(source_words, default=-1) + 1)
        for s, word in enumerate(source_words):
            if word >= 0:
                by_word[word] += looked_s[s]
        if len(by_word):
            links.append((int(by_word.argmax()), j))
    return links


def _words(vocabulary: Vocabulary, ids: Sequence[int]) -> list[int]:
    """The number of the word that each piece belongs to; -1 if there is no word.

    A space belongs to the word after it, as in SentencePiece.
    """
    begun = vocabulary.decode([ids[: n + 1] for n in range(len(ids))])
    words = [
        len(text.split()) - (text.rstrip() != before.rstrip())
        for before, text in zip(["", *begun], begun, strict=False)
    ]
    # The first bytes of a white space are none yet, and look like a word.
    last = len(begun[-1].split()) - 1 if begun else -1
    return [*itertools.accumulate(words[::-1], min, initial=last)][:0:-1]


def _traces(
    vocabulary: Vocabulary, member: Member, pairs: Pairs, divided: bool = True
) -> Iterator[tuple[int, AttentionTrace]]:
    """The row of each pair, and its weights [l, h, queries, keys] without padding."""
    attended = partial(
        programs.attention_trace,
        member.parameters,
        definition=member.model.definition,
        mesh=member.mesh,
    )
    for rows, seen in _run_batches(attended, vocabulary, [member], pairs, divided):
        for place, row in enumerate(rows):
            s, t = map(len, pairs[row])
            yield (
                row,
                AttentionTrace(
                    seen.encoder[place, :, :, :s, :s],
                    seen.decoder[place, :, :, :t, :t],
                    seen.cross[place, :, :, :t, :s],
                ),
            )


def _run_batches(
    compute,
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    divided: bool = True,
) -> Iterator[tuple[Sequence[int], Any]]:
    """What `compute` makes of batches: pairs of similar length, of a fixed shape."""
    decode = members[0].config.decode
    models = [member.config.model for member in members]
    places = [m.max_positions for m in models if m.positions == "learned"]

    def make(group: Group) -> dict[str, np.ndarray]:
        rows, bucket = group.shape
        shape = rows, min([bucket, *places])
        source, source_segment = filled([pairs[row][0] for row in group.lines], *shape)
        target, target_segment = filled([pairs[row][1] for row in group.lines], *shape)
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
    return computed(make, compute, lengths, decode, members[0].mesh)


def _piece_names(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(vocabulary.piece(i) for i in ids)
