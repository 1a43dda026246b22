"""Attention weights of pairs: all of them, and as word alignments.

Shape suffixes: b batch rows, l layers, h heads, t queries or target, s keys or source.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import programs
from t2t_jax.decoding.batches import gather_results
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.results import Alignment, AttentionMaps
from t2t_jax.decoding.scoring import Pairs, piece_names, run_batches
from t2t_jax.io.errors import UserError
from t2t_jax.model.attention import LayerTrace, alignment_layer
from t2t_jax.text.units import Aligned, Span, matched, units

# The attention of each pair's target tokens (row t predicts token t) to its source
# tokens, by the number of the pair.
Weights = dict[int, np.ndarray]


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
            (
                vocabulary.source.words(source, "units"),
                vocabulary.words(target, "units"),
            ),
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


def alignment_heads(config: Config, layers: int) -> tuple[int, int | None]:
    """Returns the decoder layer, of so many, that aligns words, and by how many heads.

    By the first one if `config.train.loss="guided"` taught it to; None: by all of them.
    """
    return alignment_layer(layers), 1 if config.train.loss == "guided" else None


def align(
    vocabulary: Vocabulary,
    weights: Weights,
    pairs: Pairs,
    texts: Sequence[tuple[str, str]],
) -> list[Alignment]:
    """Links each target word to the source word with the most attention.

    Words are those of the texts, between spaces (`text/words.py`).

    The weight of a target word on a source word is averaged over the positions that
    predict the target word's tokens, and summed over the source word's tokens.
    """

    def linked(row: int, weights_ts: np.ndarray) -> list[tuple[int, int]]:
        (source, target), (source_text, target_text) = pairs[row], texts[row]
        target_words = vocabulary.words(target, line=target_text).of_token
        source_words = vocabulary.source.words(source, line=source_text).of_token
        weights_ji = word_weights(weights_ts, source_words, target_words)
        return links(weights_ji, target_words)

    return [*map(Alignment, _links(weights, linked))]


def align_units(
    vocabulary: Vocabulary,
    weights: Weights,
    pairs: Pairs,
    texts: Sequence[tuple[str, str]],
) -> list[Aligned]:
    """Links each unit of a target, a word or a sign, to a source unit, as `align` does.

    Args:
      texts: of the pairs. Tokens may spell another text, if the tokenizer normalizes
        it or a tag begins it; the links of units that differ are left out.
    """

    def unit_overlaps(side: Vocabulary, ids: Sequence[int], text: str):
        """True where a token is of a unit, [units, tokens]; the units' numbers."""
        spelled, token_spans, unit_spans, _ = side.words(ids, "units")
        # A space belongs to the unit after it, at the end to the last.
        ends = [end for _, end in unit_spans[:-1]] + [len(spelled)] * bool(unit_spans)
        overlaps = _overlaps([*itertools.pairwise([0, *ends])], token_spans)
        return overlaps, matched(spelled, unit_spans, text, units(text))

    def linked(row: int, weights_ts: np.ndarray) -> list[tuple[int, int]]:
        (source, target), (source_text, target_text) = pairs[row], texts[row]
        side = vocabulary.source
        source_is, source_units = unit_overlaps(side, source[:-1], source_text)
        target_jt, target_units = unit_overlaps(vocabulary, target, target_text)
        # A token of several units divides its weight among them.
        source_is = source_is / np.maximum(source_is.sum(0), 1)
        rows = weights_ts[: target_jt.shape[1], : source_is.shape[1]]
        weights_ji = target_jt @ rows @ source_is.T
        return [
            (source_units[i], target_units[j])
            for j, i in enumerate(weights_ji.argmax(1) if len(source_is) else ())
            if weights_ji[j, i] > 0 and i in source_units and j in target_units
        ]

    unit_links = _links(weights, linked)
    return [
        Aligned(units(source), units(target), links)
        for (source, target), links in zip(texts, unit_links, strict=True)
    ]


def _links(
    weights: Weights, linked: Callable[[int, np.ndarray], list[tuple[int, int]]]
) -> list[tuple[tuple[int, int], ...]]:
    """Links each pair by a function of its number and its attention weights."""
    by_row = {row: linked(row, weights_ts) for row, weights_ts in weights.items()}
    by_row = gather_results("alignments", by_row)
    # The exchange between processes goes through JSON, which has lists for tuples.
    return [tuple(map(tuple, by_row[row])) for row in range(len(by_row))]


def alignment_weights(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    layer: int | None = None,
) -> Weights:
    """Computes the weights that align the words of pairs, those of this process.

    They are averaged over heads and members. A model that was taught to align has one
    head: `alignment_heads`.
    """
    totals: Weights = {}
    for member in members:
        layers = checked_cross_layers(member)
        selected, heads = alignment_heads(member.config, layers)
        if layer is not None:
            selected, heads = layer, None
        if not 0 <= selected < layers:
            raise UserError(f"layer={layer}; want one from 0 to {layers - 1}")
        for row, trace in traces(vocabulary, member, pairs):
            weights_ts = trace.cross[selected, :heads].mean(axis=0) / len(members)
            totals[row] = totals.get(row, 0.0) + weights_ts
    return totals


def _overlaps(spans: Sequence[Span], other_spans: Sequence[Span]) -> np.ndarray:
    """1 where two spans have characters in common, float64 [spans, other spans]."""
    begin, end = np.array(spans, int).reshape(-1, 2).T[..., None]
    other_begin, other_end = np.array(other_spans, int).reshape(-1, 2).T
    return (np.maximum(begin, other_begin) < np.minimum(end, other_end)).astype(float)


def word_weights(
    weights_ts: np.ndarray, source_words: Sequence[int], target_words: Sequence[int]
) -> np.ndarray:
    """Sums attention between tokens up to attention between words.

    Args:
      weights_ts: row t predicts target token t.
      source_words, target_words: the word of each token, -1 for none; further rows and
        columns of `weights_ts`, such as those of EOS, do not count.

    Returns:
      float64 [target words, source words]; the row of a word without a token of its own
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
    """Links each target word that has a token to the source word of most weight."""
    present = {*target_words}
    return [
        (int(weights_i.argmax()), j)
        for j, weights_i in enumerate(weights_ji)
        if j in present and len(weights_i)
    ]


def traces(
    vocabulary: Vocabulary, member: Member, pairs: Pairs, divided: bool = True
) -> Iterator[tuple[int, LayerTrace]]:
    """Yields the number of each pair and its weights, without padding.

    The weights of encoder, decoder and cross-attention are arrays [layers, heads,
    queries, keys]. `divided` is as for `batches.compute_blocks`.
    """
    program = programs.attention_trace
    for row, trace in run_batches(program, vocabulary, [member], pairs, divided):
        s, t = map(len, pairs[row])
        yield (
            row,
            LayerTrace(
                trace.encoder[:, :, :s, :s],
                trace.decoder[:, :, :t, :t],
                trace.cross[:, :, :t, :s],
            ),
        )
