"""Stretches of lines whose two sides do not belong together, and by how much they slip.

A line that is lost in one file shifts all lines behind it, up to another slip. A single
pair is weak evidence, but the log-odds of a stretch add up: its ends are found by
cumulative sums (CUSUM, Page 1954).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.data.corpus import Pair

EVIDENCE = 12.0  # nats that a stretch must collect
MARGIN = 0.5  # nats that a line must be below even odds to count
LEAST = 4  # lines
REACH = 20  # offsets that are tried, in both directions
LOOKED_AT = 60  # lines of a stretch on which offsets are tried
MOST = 500  # stretches, those with most evidence

LogOdds = Callable[[list[Pair]], np.ndarray]


class Stretch(NamedTuple):
    """Consecutive pairs, of one corpus.

    Attributes:
      begin, end: their places in the whole text, from 0; `end` is behind the last.
      evidence: nats against their belonging together.
      offset: the target of a source is so many lines further down; 0 if no offset is
        better than none.
      here, there: mean log-odds of their lines as they stand, and at the offset.
    """

    begin: int
    end: int
    evidence: float
    offset: int = 0
    here: float = 0.0
    there: float = 0.0


def find_stretches(log_odds_p: np.ndarray, sizes: Sequence[int]) -> list[Stretch]:
    """Finds stretches of low log-odds, in the order of the text.

    Args:
      log_odds_p: of each pair of all corpora.
      sizes: the pairs of each corpus; no stretch crosses into the next.
    """
    found, first = [], 0
    for size in sizes:
        found += _in_corpus(log_odds_p[first : first + size], first)
        first += size
    strongest = sorted(found, key=lambda s: (-s.evidence, s.begin))[:MOST]
    return sorted(strongest)


def _in_corpus(log_odds_p: np.ndarray, first: int) -> list[Stretch]:
    found = []
    total = best = 0.0
    begin = end = 0
    # Behind the last line, evidence that closes an open stretch.
    costs = (-log_odds_p.astype(np.float64) - MARGIN).tolist()
    for place, cost in enumerate([*costs, -np.inf]):
        if not total:
            begin = place
        total = max(0.0, total + cost)
        if total > best:
            best, end = total, place + 1
        if (best and total < best - EVIDENCE) or not total:
            if best >= EVIDENCE and end - begin >= LEAST:
                found.append(Stretch(first + begin, first + end, best))
            total = best = 0.0
    return found


def wanted_lines(stretches: Sequence[Stretch]) -> set[int]:
    """The places of the lines that `with_offset` reads."""
    places: set[int] = set()
    for stretch in stretches:
        end = min(stretch.end, stretch.begin + LOOKED_AT)
        places.update(range(max(0, stretch.begin - REACH), end + REACH))
    return places


def with_offset(
    stretch: Stretch,
    pairs: dict[int, Pair],
    bounds: tuple[int, int],
    log_odds: LogOdds,
) -> Stretch:
    """Finds the offset at which a stretch's sides belong together.

    Args:
      stretch: as `find_stretches` returns it.
      pairs: by place, at least those of `wanted_lines`.
      bounds: the places of the first pair of the stretch's corpus, and behind its last.
      log_odds: pairs -> their log-odds.
    """
    places = range(stretch.begin, min(stretch.end, stretch.begin + LOOKED_AT))
    means = {}
    for offset in range(-REACH, REACH + 1):
        crossed = [
            (pairs[p][0], pairs[p + offset][1])
            for p in places
            if bounds[0] <= p + offset < bounds[1] and p + offset in pairs
        ]
        if 2 * len(crossed) >= len(places):
            means[offset] = float(np.mean(log_odds(crossed)))
    best = max(means, key=lambda offset: (means[offset], -abs(offset)))
    better = means[best] > 0 and means[best] > means[0] + 1.0
    offset = best if better else 0
    return stretch._replace(offset=offset, here=means[0], there=means[offset])
