"""Measures where tags land in a translation, against places made from gold links.

    python -m benchmarks.markup --links=FILE

Each line of the file is JSON: {"source": text, "target": its translation, "links":
[[s, t], ...]}, numbers of `text.units.units`. Without a file, sentences are made up.
Random elements of one to four source units are put into each source, the target is
given as its translation, and the tags are placed by links of: the gold file (the most
that one span can reach); IBM Model 1, learnt from these sentences; nothing, which puts
all tags at the end; and the proportion of lengths. A model's links go through `score`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

from benchmarks import made_up, measuring, run
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import Measure, interval, measured, percent
from t2t_jax.text.markup import parse
from t2t_jax.text.units import Aligned, units
from t2t_jax.text.word_alignment import align_words

LONGEST = 4  # source units of an element
Links = Sequence[tuple[int, int]]


class Linked(NamedTuple):
    """A sentence, its translation, and the numbers of units that are linked."""

    source: str
    target: str
    links: Links

    @property
    def aligned(self) -> Aligned:
        return Aligned(units(self.source), units(self.target), self.links)


class Tagged(NamedTuple):
    """A source with elements, and for each the source units [low, high)."""

    text: str
    spans: Sequence[tuple[int, int]]


def tagged(source: str, rng: np.random.Generator) -> Tagged:
    """Puts elements around random units, which do not overlap."""
    spans, at, words = [], int(rng.integers(0, 3)), units(source)
    while at < len(words):
        end = min(len(words), at + int(rng.integers(1, LONGEST + 1)))
        spans.append((at, end))
        at = end + int(rng.integers(1, 6))
    text, at = "", 0
    for n, (low, high) in enumerate(spans):
        begin, end = words[low][0], words[high - 1][1]
        text += escaped(source[at:begin])
        text += f'<b id="{n}">{escaped(source[begin:end])}</b>'
        at = end
    return Tagged(text + escaped(source[at:]), spans)


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def found_spans(text: str) -> dict[int, tuple[int, int]]:
    """The characters of the text without tags that each element encloses."""
    begins, spans, length = {}, {}, 0
    for part in re.findall(r'<b id="\d+">|</b>|&\w+;|.', text):
        if part.startswith("<b"):
            begins[int(part[7:-2])] = length
        elif part == "</b>":
            n, begin = begins.popitem()
            spans[n] = begin, length
        else:
            length += 1
    return spans


def statistics(pair: Linked, source: Tagged, links: Links) -> np.ndarray:
    """[exact, elements, words in both spans, words of the two spans in all]."""
    document = parse(source.text, "html")
    if document.segments != [pair.source]:
        raise UserError(f"{pair.source!r} has other white space than single spaces")
    output = document.assemble([pair.target], [pair.aligned._replace(links=links)])
    spans, counts = found_spans(output), np.zeros(4)
    for n, (low, high) in enumerate(source.spans):
        gold = {t for s, t in pair.links if low <= s < high}
        if not gold:
            continue
        target = pair.aligned.target
        # An element around the whole text has its tags outside of the segment.
        begin, end = spans[n]
        inside = {t for t, span in enumerate(target) if begin <= span[0] < end}
        whole = target[min(gold)][0], target[max(gold)][1]
        both = len(inside & gold)
        counts += spans[n] == whole, 1, both, (len(inside) + len(gold)) / 2
    return counts


MEASURES = {
    "exact": Measure("exact places", None, lambda sums: percent(sums[..., :2])),
    "F1": Measure("F1 of covered words", None, lambda sums: percent(sums[..., 2:])),
}


def score(
    pairs: Sequence[Linked], links: Sequence[Links], seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Scores places of tags by the given links of each pair.

    Returns:
      For each of `MEASURES`, (percent, half of the 95% interval over sentences).
    """
    rows = []
    for n, (pair, of_pair) in enumerate(zip(pairs, links, strict=True)):
        source = tagged(pair.source, np.random.default_rng([seed, n]))
        rows.append(statistics(pair, source, of_pair))
    table = np.array(rows)
    scores = {}
    for name, measure in MEASURES.items():
        half = (interval(measure, table) or {"half_width": float("nan")})["half_width"]
        scores[name] = measured(measure, table), half
    return scores


# ------------------------------------------------------------------------------ links


def by_proportion(pair: Linked) -> Links:
    """Links each source unit to the target units at the same share of the length."""
    source, target = (len(side) for side in pair.aligned[:2])
    return [
        (s, t)
        for s in range(source)
        for t in range(target)
        if s * target < (t + 1) * source and t * source < (s + 1) * target
    ]


def by_model_1(pairs: Sequence[Linked]) -> list[Links]:
    """Links each target unit to a source unit, by IBM Model 1 learnt from the pairs."""
    words = [
        tuple([text[a:b].lower() for a, b in units(text)] for text in pair[:2])
        for pair in pairs
    ]
    linked = align_words(words, len(words))
    return [[(s, t) for t, s in enumerate(each) if s >= 0] for each in linked]


SYSTEMS: Mapping[str, Callable[[Sequence[Linked]], list[Links]]] = {
    "gold links": lambda pairs: [pair.links for pair in pairs],
    "IBM Model 1": by_model_1,
    "all at the end": lambda pairs: [() for _ in pairs],
    "by proportion": lambda pairs: list(map(by_proportion, pairs)),
}


def made_up_pairs(count: int) -> list[Linked]:
    """Sentences whose words have one translation each, some of them moved."""
    pairs = []
    for n, (source, _) in enumerate(made_up.made_up(count, 12).pairs()):
        rng = np.random.default_rng(n)
        words = source.removesuffix(".").split()
        order = np.argsort(np.arange(len(words)) + rng.normal(0, 1.5, len(words)))
        target = " ".join(words[s][::-1] for s in order) + "."
        links = [(int(s), t) for t, s in enumerate(order)]
        pairs.append(Linked(source, target, [*links, (len(words), len(words))]))
    return pairs


def read_pairs(file: str) -> list[Linked]:
    lines = map(json.loads, Path(file).read_text("utf-8").splitlines())
    return [
        Linked(line["source"], line["target"], list(map(tuple, line["links"])))
        for line in lines
    ]


def define_flags():
    flags.DEFINE_string("links", None, "File of pairs with gold links; made up.")
    flags.DEFINE_integer("pairs", 1_000, "Sentences that are made up.")
    measuring.define_flags(rounds=None)


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    pairs = read_pairs(args.links) if args.links else made_up_pairs(args.pairs)
    table = []
    for name, system in SYSTEMS.items():
        scores = score(pairs, system(pairs))
        cells = {
            key: f"{mean:.1f} ± {half:.1f}" for key, (mean, half) in scores.items()
        }
        table.append({"links": name, **cells})
    measuring.publish(table, args.output)


if __name__ == "__main__":
    run(define_flags, main)
