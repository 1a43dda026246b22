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
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np

from t2t_jax.data.cleaning import CHUNK, read_chunks
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.messages import Progress
from t2t_jax.text.view import View
from t2t_jax.tools.doctor.histograms import Histograms
from t2t_jax.tools.doctor.knowledge import SAMPLE, Knowledge, Spread, sample_blocks
from t2t_jax.tools.doctor.overlap import Reference
from t2t_jax.tools.doctor.rules import BIT, RULES, dropping, with_limits
from t2t_jax.tools.doctor.stretches import (
    Stretch,
    find_stretches,
    wanted_lines,
    with_offset,
)

EXAMPLES = 10  # of each rule, the worst


class Options(NamedTuple):
    """How a text is examined.

    Attributes:
      limits: thresholds, by rule and name; as `rules.with_limits` returns them.
      drops: rules whose pairs a fix would remove.
      vocabulary: the tokenizer whose pieces are counted, or None.
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
      mask_p: the rules that each pair breaks, bits of `rules.BIT`, uint32 [pairs].
      counts: pairs that break each rule.
      worst: for each rule, (severity, place, note) of its worst pairs, worst first.
      stretches: those of lines that do not belong together.
      histograms: of lengths, ratios and evidence.
      known: the models of the text.
    """

    def __init__(
        self,
        corpora: Sequence[Corpus],
        references: Sequence[Reference] = (),
        options: Options | None = None,
    ):
        self.corpora, self.references = corpora, references
        self.options = options or Options()
        blocks, self.sizes = sample_blocks(corpora, self.options.sample)
        self.known = Knowledge(blocks, references, self.options.vocabulary)
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
        """Which pairs a fix removes, bool [pairs]."""
        bits = sum(BIT[name] for name in self.options.drops)
        return self.mask_p & np.uint32(bits) > 0

    def _read(self) -> None:
        """Reads all pairs and applies the rules that need no more than a chunk."""
        masks, odds = [], []
        scores: dict[str, list[np.ndarray]] = {}
        first = 0
        with Progress("examining", "pairs", len(self)) as progress:
            for chunk in read_chunks(self.corpora, self.options.chunk):
                view = View(chunk.pairs, first)
                view.log_odds_p = self.known.relatedness.log_odds_p(view)
                masks.append(self._apply(view))
                odds.append(view.log_odds_p.astype(np.float16))
                self.histograms.add(view)
                if self.options.scores:
                    found = self.options.scores.score(view.pairs)
                    for name, score_p in found.items():
                        scores.setdefault(name, []).append(score_p)
                first += len(view)
                progress.add(len(view))
        self.mask_p = np.concatenate(masks)
        self._odds_p = np.concatenate(odds)
        for name, parts in scores.items():
            self._judge_scores(name, np.concatenate(parts))

    def _apply(self, view: View) -> np.ndarray:
        mask_p = np.zeros(len(view), np.uint32)
        dropped = []
        for name, rule in RULES.items():
            if rule.check is None:
                continue
            accused = rule.check(view, self.known, self.options.limits[name])
            for place, (severity, note) in sorted(accused.items()):
                mask_p[place] |= BIT[name]
                self._accuse(name, view.first + int(place), severity, note)
                if name in self.options.drops:
                    dropped.append((view.first + int(place), name, note))
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
        """As `_accuse`, by a rule that needed all pairs."""
        self.mask_p[place] |= BIT[name]
        self._accuse(name, place, severity, note)
        if name in self.options.drops:
            self._late.append((place, name, note))

    def _judge_scores(self, name: str, score_p: np.ndarray) -> None:
        """Accuses the pairs whose scores are far larger than those of others."""
        # Entropies are skewed: their logarithms are judged. A contrast has two signs.
        signed = name == "contrast"
        value_p = score_p if signed else np.log(np.maximum(score_p, 1e-3))
        usual = Spread.of(value_p)
        middle = usual.middle if signed else np.exp(usual.middle)
        self.histograms.add_scores(name, score_p)
        z = (value_p - usual.middle) / usual.deviation
        for place in np.flatnonzero(z > self.options.limits[name]["z"]).tolist():
            note = f"{score_p[place]:.2f} nats a piece, {middle:.2f} is usual"
            self._accuse_late(name, place, float(score_p[place]), note)

    def _find_stretches(self) -> None:
        found = find_stretches(self._odds_p, self.sizes)
        pairs = self.lines(wanted_lines(found))

        def log_odds(pairs: list[Pair]) -> np.ndarray:
            return self.known.relatedness.log_odds_p(View(pairs))

        self.stretches: list[Stretch] = []
        for stretch in found:
            bounds = self.bounds(stretch.begin)
            stretch = with_offset(stretch, pairs, bounds, log_odds)
            self.stretches.append(stretch)
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
        number = int(np.searchsorted(ends, place, side="right"))
        return int(ends[number] - self.sizes[number]), int(ends[number])

    def where(self, place: int) -> tuple[Corpus, int]:
        """Returns the corpus of a pair, and its line there, from 1."""
        ends = np.cumsum(self.sizes)
        number = int(np.searchsorted(ends, place, side="right"))
        return self.corpora[number], int(place - ends[number] + self.sizes[number]) + 1

    def lines(self, places: Iterable[int]) -> dict[int, Pair]:
        """Reads the pairs at some places of the text; leaves out places beyond it."""
        wanted = np.array(sorted(p for p in places if 0 <= p < len(self)), np.int64)
        found: dict[int, Pair] = {}
        if not len(wanted):
            return found
        first = 0
        for chunk in read_chunks(self.corpora, self.options.chunk):
            end = first + len(chunk.pairs)
            here = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, end)]
            found |= {int(p): chunk.pairs[p - first] for p in here}
            first = end
            if len(found) == len(wanted):
                break
        return found

    def reasons(self) -> Iterator[tuple[int, list[tuple[str, str]]]]:
        """Yields (place, [(rule, note), ...]) of the pairs to be dropped, in order."""
        self._spool.seek(0)
        rows = (tuple(row) for line in self._spool for row in json.loads(line))
        merged = heapq.merge(rows, sorted(self._late), key=lambda row: row[0])
        for place, group in itertools.groupby(merged, key=lambda row: row[0]):
            yield place, [(name, note) for _, name, note in group]
