"""Describes attention heads by their weights: how sharp, how far, on what.

Shape suffixes: l layers, h heads, t queries, s keys.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.decoding.results import AttentionMaps
from t2t_jax.extensions.text.word_alignment import align_words
from t2t_jax.text.units import units
from t2t_jax.tools.explain.attention_summary import entropies, offsets, peaks

# A head is named by its largest share if that is at least NAMED, about four times what
# uniform attention gives one of twelve tokens. The share is of all queries: a head that
# looks at a comma wherever there is one is not named by the few queries that have one.
# Of the others, those of a relative entropy of at least BROAD are "broad", the rest
# "mixed".
NAMED, BROAD = 0.3, 0.75


class Sentence(NamedTuple):
    """The weights of one attention for one sentence, and what is at its keys."""

    weights: np.ndarray  # of all layers and heads, [l, h, t, s]
    keys_t: np.ndarray  # the number of keys that each query may attend to
    keys_by_kind: Mapping[str, np.ndarray]  # bool [t, s]: keys of each kind
    # For self-attention, key - query, [t, s]; None for cross-attention.
    distance: np.ndarray | None = None


def patterns(sentences: Iterable[Sentence]) -> dict[str, np.ndarray]:
    """Averages over all queries that may attend to two keys or more.

    Returns:
      Arrays [l, h]: `entropy`, in bits; `relative_entropy`, 1 if uniform; `distance`
      and `absolute_distance`, in positions, or for cross-attention `peak`, the position
      of the largest weight, from 0 (first) to 1 (last); `share.KIND`, the share of the
      weights on keys of each kind; and `share_if_any.KIND`, that share among queries
      that have such a key.
    """
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, float] = {}

    def add(name: str, values_lht: np.ndarray) -> None:
        sums[name] = sums.get(name, 0.0) + values_lht.sum(-1, dtype=np.float64)
        counts[name] = counts.get(name, 0) + values_lht.shape[-1]

    for weights, keys_t, keys_by_kind, distance in sentences:
        choosing_t = keys_t > 1  # a single key has all the weight, in every head
        w_lhts, keys_t = weights[:, :, choosing_t], keys_t[choosing_t]
        entropy_lht = entropies(w_lhts)
        add("entropy", entropy_lht)
        add("relative_entropy", entropy_lht / np.log2(keys_t))
        if distance is None:
            add("peak", peaks(w_lhts))
        else:
            far_ts = distance[choosing_t]
            add("distance", offsets(w_lhts, far_ts))
            add("absolute_distance", offsets(w_lhts, np.abs(far_ts)))
        for kind, is_kind_ts in keys_by_kind.items():
            is_kind_ts = is_kind_ts[choosing_t]
            share_lht = (w_lhts * is_kind_ts).sum(-1)
            add(f"share.{kind}", share_lht)
            add(f"share_if_any.{kind}", share_lht[..., is_kind_ts.any(-1)])
    return {name: total / max(counts[name], 1) for name, total in sums.items()}


def kind_of(shares: Mapping[str, float], relative_entropy: float) -> str:
    """The kind with the largest share, `broad` or `mixed`: see `NAMED`."""
    kind = max(shares, key=shares.__getitem__)
    if shares[kind] >= NAMED:
        return kind
    return "broad" if relative_entropy >= BROAD else "mixed"


def self_attention(
    pieces: Sequence[str], weights: np.ndarray, causal: bool
) -> Sentence:
    """Self-attention of tokens to each other; `causal` in the decoder."""
    n = len(pieces)
    distance = np.arange(n) - np.arange(n)[:, None]
    allowed = distance <= 0 if causal else np.ones((n, n), bool)
    other_keys = allowed & (distance != 0)
    is_same = np.array(pieces)[:, None] == np.array(pieces)
    keys_by_kind = {
        "previous": distance == -1,
        "itself": distance == 0,
        "same piece": is_same & other_keys,
        "punctuation": np.array([*map(is_punctuation, pieces)], bool) & other_keys,
    }
    if causal:
        keys_by_kind["start"] = (np.arange(n) == 0) & other_keys
    else:
        keys_by_kind["next"] = distance == 1
        keys_by_kind["end"] = (np.arange(n) == n - 1) & other_keys
    return Sentence(weights, allowed.sum(-1), keys_by_kind, distance)


def cross_attention(
    source: Sequence[str],
    target: Sequence[str],
    weights: np.ndarray,
    words: tuple[Sequence[int], Sequence[int]],
    links: Collection[tuple[int, int]],
) -> Sentence:
    """Attention from the positions that predict `target` to `source`.

    Args:
      words: the number of each token's word, of the source and of the target.
      links: (source word, target word).
    """
    s, t = len(source), len(target)
    aligned = np.array([[(i, j) in links for i in words[0]] for j in words[1]])
    # A position has read the token before its own.
    read = np.concatenate([np.zeros((1, s), bool), aligned[:-1]])
    keys_by_kind = {
        "aligned": aligned,
        "aligned to read": read,
        "punctuation": np.tile([*map(is_punctuation, source)], (t, 1)),
        "end": np.tile(np.arange(s) == s - 1, (t, 1)),
    }
    return Sentence(weights, np.full(t, s), keys_by_kind)


def sentences_of(
    maps: Sequence[AttentionMaps], text: Iterable[tuple[str, str]]
) -> dict[str, list[Sentence]]:
    """The encoder's, the decoder's and the cross-attention of pairs.

    Words are the units of `text/words.py`: a sign is one.

    Args:
      text: further pairs of lines, which help to align the words of `maps`.
    """

    def words(line: str) -> list[str]:
        return [line[begin:end].lower() for begin, end in units(line)]

    pairs = [*([side.text for side in m.units] for m in maps), *text]
    links = align_words([tuple(map(words, pair)) for pair in pairs], len(maps))
    return {
        "encoder": [self_attention(m.source, m.encoder, False) for m in maps],
        "decoder": [self_attention(m.read, m.decoder, True) for m in maps],
        "cross": [
            cross_attention(
                m.source, m.target, m.cross, [side.of_token for side in m.units], link
            )
            for m, link in zip(maps, links, strict=True)
        ],
    }


def is_punctuation(piece: str) -> bool:
    """True if a token has visible characters, and neither letters nor digits."""
    text = piece.strip("▁")
    return bool(text) and not any(map(str.isalnum, text))
