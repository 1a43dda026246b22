"""Attention in a few numbers, and through all layers (rollout).

Shape suffixes: l layers, h heads, t queries or target, s keys or source.
"""

from typing import NamedTuple

import numpy as np

from t2t_jax.decoding.results import AttentionMaps


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
