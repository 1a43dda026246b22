"""Attention weights of pairs: all of them, as word alignments, and in a few numbers.

Shape suffixes: b batch rows, l layers, h heads, t queries or target, s keys or source.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

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
    members: Sequence[Member],
    pairs: Pairs,
    texts: Sequence[tuple[str, str]],
    layer: int | None = None,
) -> list[Alignment]:
    """Links each target word to the source word with the most attention.

    Words are those of the texts, between spaces (`text/words.py`).

    The weight of a target word on a source word is averaged over heads, members and the
    positions that predict the target word's tokens, and summed over the source word's
    tokens. A model that was taught to align has one head: `alignment_heads`.
    """

    def linked(row: int, weights_ts: np.ndarray) -> list[tuple[int, int]]:
        (source, target), (source_text, target_text) = pairs[row], texts[row]
        target_words = vocabulary.words(target, line=target_text).of_token
        source_words = vocabulary.source.words(source, line=source_text).of_token
        weights_ji = word_weights(weights_ts, source_words, target_words)
        return links(weights_ji, target_words)

    return [*map(Alignment, _links(vocabulary, members, pairs, layer, linked))]


def align_units(
    vocabulary: Vocabulary,
    members: Sequence[Member],
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

    unit_links = _links(vocabulary, members, pairs, None, linked)
    return [
        Aligned(units(source), units(target), links)
        for (source, target), links in zip(texts, unit_links, strict=True)
    ]


def _links(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    layer: int | None,
    linked: Callable[[int, np.ndarray], list[tuple[int, int]]],
) -> list[tuple[tuple[int, int], ...]]:
    """Links each pair by a function of its number and its attention weights."""
    totals: dict[int, np.ndarray] = {}
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
    by_row = {row: linked(row, weights_ts) for row, weights_ts in totals.items()}
    by_row = gather_results("alignments", by_row)
    # The exchange between processes goes through JSON, which has lists for tuples.
    return [tuple(map(tuple, by_row[row])) for row in range(len(pairs))]


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


# ----------------------------------- in a few numbers, and through all layers (rollout)


class HeadSummary(NamedTuple):
    """The heads of one attention, averaged over the queries of a pair; float [l, h].

    Attributes:
      entropy: of the weights, in bits: 0 for a single key, log2(s) for s equal ones.
      offset: mean key position - query position, in tokens; None for cross-attention.
      peak: the place of the largest weight, from 0 (first key) to 1 (last); None for
        self-attention.
    """

    entropy: np.ndarray
    offset: np.ndarray | None
    peak: np.ndarray | None


class Rollout(NamedTuple):
    """The input positions that each position's state is made of; rows sum to 1.

    Attributes:
      encoder: float64 [s, s], a source position's output over source tokens.
      decoder: float64 [t, t], row t predicts token t, over the tokens read.
      cross: float64 [t, s], row t predicts token t, over source tokens.
    """

    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray


def entropies(weights_lhts: np.ndarray) -> np.ndarray:
    """The entropy of each query's weights in bits, [l, h, t]."""
    surprise_lhts = np.log2(np.maximum(weights_lhts, 1e-30))  # 0 log 0 is 0
    return -(weights_lhts * surprise_lhts).sum(-1)


def offsets(weights_lhts: np.ndarray, distance_ts: np.ndarray) -> np.ndarray:
    """The mean distance of each query's keys, weighted by attention, [l, h, t]."""
    return (weights_lhts * distance_ts).sum(-1)


def peaks(weights_lhts: np.ndarray) -> np.ndarray:
    """The place of each query's largest weight, from 0 to 1, [l, h, t]."""
    last_key = max(weights_lhts.shape[-1] - 1, 1)
    return weights_lhts.argmax(-1) / last_key


def summarize(maps: AttentionMaps) -> dict[str, HeadSummary]:
    """Summarizes the heads of `encoder`, `decoder` and `cross`, all queries alike."""
    summaries = {}
    for name in ("encoder", "decoder"):
        weights = getattr(maps, name)
        place_t = np.arange(weights.shape[-1])
        offset_lht = offsets(weights, place_t - place_t[:, None])
        summaries[name] = HeadSummary(
            entropies(weights).mean(-1), offset_lht.mean(-1), None
        )
    summaries["cross"] = HeadSummary(
        entropies(maps.cross).mean(-1), None, peaks(maps.cross).mean(-1)
    )
    return summaries


def rollout(maps: AttentionMaps) -> Rollout | None:
    """Follows attention through all layers (Abnar and Zuidema 2020, section 3).

    A sub-layer's output is taken as half its input, through the residual connection,
    and half the mean of its heads; feed-forward layers are left out. The encoder's and
    the decoder's rollout are products of (A + I) / 2 over self-attention, as in the
    paper. The paper has no cross-attention. Here a decoder state is followed as a mix
    of the pieces read and of source pieces: cross-attention replaces half of it by its
    mean weights times the encoder's rollout. `cross` is the source's part of the last
    layer's mix, scaled to sum to 1.

    All of this is approximate: values and their sizes are ignored.

    Returns:
      None for a model without self-attention on either side.
    """
    if not (len(maps.encoder) and len(maps.decoder)):
        return None
    encoder_ss, decoder_tt = (
        _product(weights.mean(axis=1, dtype=np.float64))
        for weights in (maps.encoder, maps.decoder)
    )
    # The source's part of each state; the rest is the tokens read.
    source_ts = np.zeros(maps.cross.shape[2:])
    for own_tt, cross_ts in zip(
        maps.decoder.mean(axis=1, dtype=np.float64),
        maps.cross.mean(axis=1, dtype=np.float64),
        strict=True,
    ):
        source_ts = (own_tt @ source_ts + source_ts) / 2
        source_ts = (cross_ts @ encoder_ss + source_ts) / 2
    source_ts /= source_ts.sum(-1, keepdims=True)
    return Rollout(encoder_ss, decoder_tt, source_ts)


def _product(weights_ltt: np.ndarray) -> np.ndarray:
    """The product of the layers' weights, each averaged with the identity."""
    product_tt = identity_tt = np.eye(weights_ltt.shape[-1])
    for weights_tt in weights_ltt:
        product_tt = (weights_tt + identity_tt) / 2 @ product_tt
    return product_tt
