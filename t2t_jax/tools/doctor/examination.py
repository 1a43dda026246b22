"""Reads a text and applies the rules, in memory that hardly grows with the text.

The text is read four times: for a sample, from which the models of `knowledge.py` are
learnt; in full, for the rules; for lines of stretches that may be misaligned; and for
examples with their neighbours. Beside the sample, memory holds some 40 bytes a pair:
three hashes, a mask of rules, and evidence of alignment.
"""

import heapq
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np

from t2t_jax.data.cleaning import CHUNK, read_chunks
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.messages import Progress
from t2t_jax.text.view import View
from t2t_jax.tools.doctor.knowledge import SAMPLE, Knowledge, Spread, sample_blocks
from t2t_jax.tools.doctor.overlap import ReferenceSet
from t2t_jax.tools.doctor.relatedness import LIMIT
from t2t_jax.tools.doctor.rules import BIT, RULES, dropping, with_limits

EXAMPLES = 10  # of each rule, the worst


class ExaminationOptions(NamedTuple):
    """Options of an examination.

    Attributes:
      limits: thresholds, by rule and name; as `rules.with_limits` returns them.
      drops: rules whose pairs a fix would remove.
      vocabulary: the tokenizer whose tokens are counted, or None.
      scores: a `ModelScores`, or None.
      sample: pairs that the models are learnt from.
      chunk: pairs read at a time; results do not depend on it.
    """

    limits: dict[str, dict[str, float]] = with_limits(())
    drops: frozenset[str] = frozenset(dropping(""))
    vocabulary: Vocabulary | None = None
    scores: object = None
    sample: int = SAMPLE
    chunk: int = CHUNK


class Examination:
    """An examined text.

    Attributes:
      corpora, references, options: what was examined, against which sets, and how.
      sizes: the pairs of each corpus.
      mask_p: the rules that each pair breaks, bits of `rules.BIT`, uint64 [pairs].
      counts: pairs that break each rule.
      worst: for each rule, (severity, place, note) of its worst pairs, worst first.
      stretches: those of lines that do not belong together.
      histograms: of lengths, ratios and evidence.
      knowledge: the models of the text.
    """

    def __init__(
        self,
        corpora: Sequence[Corpus],
        references: Sequence[ReferenceSet] = (),
        options: ExaminationOptions | None = None,
    ):
        self.corpora, self.references = corpora, references
        self.options = options or ExaminationOptions()
        blocks, self.sizes = sample_blocks(corpora, self.options.sample)
        self.knowledge = Knowledge(blocks, references, self.options.vocabulary)
        del blocks
        self.histograms = Histograms()
        self.counts = dict.fromkeys(RULES, 0)
        self._heaps: dict[str, list] = {name: [] for name in RULES}
        # (place, rule, note) of the pairs to be dropped. They are as many as such
        # pairs, so they wait on disk; those of stretches share their notes.
        # It closes itself when the examination is no longer used.
        self._spool: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._late: list[tuple[int, str, str]] = []
        self._read()
        self._find_stretches()
        self.worst = {
            name: [(s, -place, note) for s, place, note in sorted(heap, reverse=True)]
            for name, heap in self._heaps.items()
        }

    def __len__(self) -> int:
        return sum(self.sizes)

    @property
    def dropped_p(self) -> np.ndarray:
        """A mask of the pairs that a fix removes, bool [pairs]."""
        return self.breaking(*self.options.drops)

    def breaking(self, *names: str) -> np.ndarray:
        """Marks the pairs that break one or more of these rules, bool [pairs]."""
        bits = sum(BIT[name] for name in names)
        return self.mask_p & np.uint64(bits) > 0

    def _read(self) -> None:
        """Reads all pairs and applies the rules that need no more than a chunk."""
        masks, odds = [], []
        scores: dict[str, list[np.ndarray]] = {}
        start = 0
        with Progress("examining", "pairs", len(self)) as progress:
            for chunk in read_chunks(self.corpora, self.options.chunk):
                view = View(chunk.pairs, start)
                view.log_odds_p = self.knowledge.relatedness.log_odds_p(view)
                masks.append(self._apply(view))
                odds.append(view.log_odds_p.astype(np.float16))
                self.histograms.add(view)
                if self.options.scores:
                    chunk_scores = self.options.scores.score(view.pairs)
                    for name, score_p in chunk_scores.items():
                        scores.setdefault(name, []).append(score_p)
                start += len(view)
                progress.add(len(view))
        self.mask_p = np.concatenate(masks)
        self._odds_p = np.concatenate(odds)
        for name, parts in scores.items():
            self._judge_scores(name, np.concatenate(parts))

    def _apply(self, view: View) -> np.ndarray:
        mask_p = np.zeros(len(view), np.uint64)
        dropped = []
        for name, rule in RULES.items():
            if rule.check is None:
                continue
            accused = rule.accuse(view, self.knowledge, self.options.limits[name])
            for place, (severity, note) in sorted(accused.items()):
                mask_p[place] |= BIT[name]
                self._accuse(name, view.first + place, severity, note)
                if name in self.options.drops:
                    dropped.append((view.first + place, name, note))
        self._spool.write(json.dumps(sorted(dropped)) + "\n")
        return mask_p

    def _accuse(self, name: str, place: int, severity: float, note: str) -> None:
        """Counts an accusation, and keeps it if it is among the worst of its rule."""
        self.counts[name] += 1
        item = severity, -place, note  # of equal ones, the first in the text
        heap = self._heaps[name]
        if len(heap) < EXAMPLES:
            heapq.heappush(heap, item)
        elif item > heap[0]:
            heapq.heapreplace(heap, item)

    def _accuse_late(self, name: str, place: int, severity: float, note: str) -> None:
        """Accuses a pair by a rule that needed all pairs."""
        self.mask_p[place] |= BIT[name]
        self._accuse(name, place, severity, note)
        if name in self.options.drops:
            self._late.append((place, name, note))

    def _judge_scores(self, name: str, score_p: np.ndarray) -> None:
        """Accuses the pairs whose scores are far larger than those of others."""
        # Entropies are skewed: their logarithms are judged. A contrast has two signs.
        signed = name == "contrast"
        value_p = score_p if signed else np.log(np.maximum(score_p, 1e-3))
        usual = Spread.fitted(value_p)
        middle = usual.middle if signed else np.exp(usual.middle)
        self.histograms.add_scores(name, score_p)
        flags = usual.z(value_p) > self.options.limits[name]["z"]
        for place in np.flatnonzero(flags).tolist():
            note = f"{score_p[place]:.2f} nats a token, {middle:.2f} is usual"
            self._accuse_late(name, place, float(score_p[place]), note)

    def _find_stretches(self) -> None:
        stretches = find_stretches(self._odds_p, self.sizes)
        pairs = self.lines(wanted_lines(stretches))

        def log_odds(pairs: list[Pair]) -> np.ndarray:
            return self.knowledge.relatedness.log_odds_p(View(pairs))

        self.stretches = [
            with_offset(stretch, pairs, self.bounds(stretch.begin), log_odds)
            for stretch in stretches
        ]
        for stretch in self.stretches:
            name = "misaligned" if stretch.offset else "loose_stretch"
            note = f"{stretch.end - stretch.begin} lines fit at no offset nearby"
            if stretch.offset:
                note = f"its target is {abs(stretch.offset)} lines further "
                note += "down" if stretch.offset > 0 else "up"
            for place in range(stretch.begin, stretch.end):
                self._accuse_late(name, place, stretch.evidence, note)

    def bounds(self, place: int) -> tuple[int, int]:
        """Returns the places of the first pair of a corpus, and behind its last."""
        ends = np.cumsum(self.sizes)
        number = np.searchsorted(ends, place, side="right")
        return int(ends[number] - self.sizes[number]), int(ends[number])

    def locate(self, place: int) -> tuple[Corpus, int]:
        """Returns the corpus of a pair, and its line there, from 1."""
        number = np.searchsorted(np.cumsum(self.sizes), place, side="right")
        corpus = self.corpora[number]
        return corpus, corpus.skipped + place - self.bounds(place)[0] + 1

    def lines(self, places: Iterable[int]) -> dict[int, Pair]:
        """Reads the pairs at some places of the text; leaves out places beyond it."""
        rows = np.array(sorted(p for p in places if 0 <= p < len(self)), np.int64)
        pairs: dict[int, Pair] = {}
        if not len(rows):
            return pairs
        start = 0
        for chunk in read_chunks(self.corpora, self.options.chunk):
            end = start + len(chunk.pairs)
            in_chunk = rows[np.searchsorted(rows, start) : np.searchsorted(rows, end)]
            pairs |= {int(p): chunk.pairs[p - start] for p in in_chunk}
            start = end
            if len(pairs) == len(rows):
                break
        return pairs

    def reasons(self) -> Iterator[tuple[int, list[tuple[str, str]]]]:
        """Yields (place, [(rule, note), ...]) of the pairs to be dropped, in order."""
        self._spool.seek(0)
        rows = (tuple(row) for line in self._spool for row in json.loads(line))
        merged = heapq.merge(rows, sorted(self._late), key=lambda row: row[0])
        for place, group in itertools.groupby(merged, key=lambda row: row[0]):
            yield place, [(name, note) for _, name, note in group]


# ---------------------------------------------------------------------------- stretches
# Lines whose two sides do not belong together, and by how much they slip. A line that
# is lost in one file shifts all lines behind it, up to another slip. A single pair is
# weak evidence, but the log-odds of a stretch add up: its ends are found by cumulative
# sums (CUSUM, Page 1954).

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
      log_odds, offset_log_odds: means of their lines, as they are and at the offset.
    """

    begin: int
    end: int
    evidence: float
    offset: int = 0
    log_odds: float = 0.0
    offset_log_odds: float = 0.0


def find_stretches(log_odds_p: np.ndarray, sizes: Sequence[int]) -> list[Stretch]:
    """Finds stretches of low log-odds, in the order of the text.

    None crosses from one corpus, of so many pairs, into the next.
    """
    stretches, start = [], 0
    for size in sizes:
        stretches += _in_corpus(log_odds_p[start : start + size], start)
        start += size
    strongest = sorted(stretches, key=lambda s: (-s.evidence, s.begin))[:MOST]
    return sorted(strongest)


def _in_corpus(log_odds_p: np.ndarray, start: int) -> list[Stretch]:
    stretches = []
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
                stretches.append(Stretch(start + begin, start + end, best))
            total = best = 0.0
    return stretches


def wanted_lines(stretches: Sequence[Stretch]) -> set[int]:
    """The places of the lines that `with_offset` reads."""
    places: set[int] = set()
    for stretch in stretches:
        end = min(stretch.end, stretch.begin + LOOKED_AT)
        places.update(range(max(0, stretch.begin - REACH), end + REACH))
    return places


def with_offset(
    stretch: Stretch, pairs: dict[int, Pair], bounds: tuple[int, int], log_odds: LogOdds
) -> Stretch:
    """Finds the offset at which a stretch's sides belong together.

    `pairs` are those of `wanted_lines`, by place; `bounds` the places of the first pair
    of the stretch's corpus, and behind its last.
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
    return stretch._replace(
        offset=offset, log_odds=means[0], offset_log_odds=means[offset]
    )


# --------------------------------------------------------------------------- histograms

# Edges of bins. Lengths and ratios are on a logarithmic scale.
LENGTHS = np.unique(np.round(np.geomspace(1, 2_000, 41)))
RATIOS = np.exp(np.linspace(-np.log(8), np.log(8), 49))
ODDS = np.linspace(-LIMIT, LIMIT, 33)


class Histogram:
    """Counts of values in bins; those beyond the edges count in the outermost."""

    def __init__(self, title: str, edges: np.ndarray, log: bool = False):
        self.title, self.edges, self.log = title, edges, log
        self.counts = np.zeros(len(edges) - 1, np.int64)

    def add(self, values: np.ndarray) -> None:
        inside = np.clip(values, self.edges[0], self.edges[-1])
        self.counts += np.histogram(inside, self.edges)[0]

    def to_json(self, name: str) -> dict:
        lists = {"edges": self.edges.tolist(), "counts": self.counts.tolist()}
        return {"name": name, "title": self.title, "log": self.log, **lists}


class Histograms(dict[str, Histogram]):
    """Counts of pairs by length, by ratio of lengths, by evidence, and by score."""

    def __init__(self):
        super().__init__(
            source=Histogram("Characters of a source line", LENGTHS, log=True),
            target=Histogram("Characters of a target line", LENGTHS, log=True),
            ratio=Histogram(
                "Characters of the target for one of the source", RATIOS, log=True
            ),
            odds=Histogram("Log-odds that the sides belong together", ODDS),
        )

    def add(self, view: View) -> None:
        s, t = (side.lengths_p for side in view.sides)
        self["source"].add(s)
        self["target"].add(t)
        filled = (s > 0) & (t > 0)
        self["ratio"].add(t[filled] / s[filled])
        self["odds"].add(view.log_odds_p)

    def add_scores(self, name: str, score_p: np.ndarray) -> None:
        """Counts the scores of all pairs by a model, in a histogram of their own."""
        low, high = np.quantile(score_p, (0.001, 0.999))
        edges = np.linspace(low, max(high, low + 1e-3), 41)
        self[name] = Histogram(f"{name}, nats a token", edges)
        self[name].add(score_p)
