"""Measures where tags land in a translation, against places made from gold links.

    python -m benchmarks.markup --workdir=DIR --test=grammar:test
    python -m benchmarks.markup --workdir=DIR --test=test_2016_flickr \\
        --gold=benchmarks/links_multi30k.json

Random elements of one to four source units are put into each source of a test set, its
reference is given as the translation, and tags are placed by links: sure gold links
(the most that one span can reach), those of the model, those of an `Aligner` that has
read these pairs alone, none (all tags go to the end), and those of units at the same
share of the length. The right place encloses the units that gold links lead to, from
the first to the last. With 95% intervals: bootstrap samples of the pairs.
"""

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from benchmarks import alignment, measuring, run
from t2t_jax.commands.flags import (
    test_sets,
    workdirs_of,
)
from t2t_jax.data.corpus import Pair
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.text.markup import parse
from t2t_jax.extensions.text.word_alignment import align_words
from t2t_jax.io.messages import say
from t2t_jax.metrics.measures import Measure, percent
from t2t_jax.text.units import Aligned, units

Links = Sequence[tuple[int, int]]
LONGEST = 4  # source units of an element


class Tagged(NamedTuple):
    """A source with elements, and for each the source units [low, high)."""

    text: str
    spans: Sequence[tuple[int, int]]


def tagged(source: str, rng: np.random.Generator) -> Tagged:
    """Puts elements around random units, which do not overlap."""
    spans, position, words = [], int(rng.integers(0, 3)), units(source)
    while position < len(words):
        end = min(len(words), position + int(rng.integers(1, LONGEST + 1)))
        spans.append((position, end))
        position = end + int(rng.integers(1, 6))
    text, position = "", 0
    for n, (low, high) in enumerate(spans):
        begin, end = words[low][0], words[high - 1][1]
        text += html.escape(source[position:begin])
        text += f'<b id="{n}">{html.escape(source[begin:end])}</b>'
        position = end
    return Tagged(text + html.escape(source[position:]), spans)


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


def statistics(pair: Pair, tags: Tagged, gold: Links, aligned: Aligned) -> np.ndarray:
    """[exact, elements, units in both spans, half of those in each]."""
    document = parse(tags.text, "html")
    changed = [text != pair[0] for text in document.segments]
    if len(changed) != 1 or changed[0] or pair[0] == pair[1]:
        return np.zeros(4)  # no words, odd white space, or nothing to translate
    spans = found_spans(document.assemble(pair[1:], [aligned]))
    counts = np.zeros(4)
    for n, (low, high) in enumerate(tags.spans):
        right = {t for s, t in gold if low <= s < high}
        if not right:
            continue
        begin, end = spans[n]
        linked = {t for t, (a, _) in enumerate(aligned.target) if begin <= a < end}
        place = aligned.target[min(right)][0], aligned.target[max(right)][1]
        sizes = (len(linked) + len(right)) / 2
        counts += spans[n] == place, 1, len(linked & right), sizes
    return counts


MEASURES = {
    "exact": Measure(
        "exact places", None, lambda sums: percent(sums[..., :2]), digits=1
    ),
    "F1": Measure(
        "F1 of covered units", None, lambda sums: percent(sums[..., 2:]), digits=1
    ),
}


def row(
    name: str, pairs: Sequence[Pair], gold: Sequence[Links], links: Sequence[Links]
) -> dict:
    """The row of a way to place tags.

    Args:
      name: of the way.
      pairs: of the test set.
      gold, links: gold links of each pair, and those that the tags are placed by.
    """
    table = []
    for n, (pair, right, guess) in enumerate(zip(pairs, gold, links, strict=True)):
        tags = tagged(pair[0], np.random.default_rng(n))
        aligned = Aligned(units(pair[0]), units(pair[1]), [*guess])
        table.append(statistics(pair, tags, right, aligned))
    counts_nk = np.array(table)
    cells = {"links": name}
    for score, measure in MEASURES.items():
        cells |= measuring.with_interval(score, measure, counts_nk)
    return cells | {"elements": int(counts_nk[:, 1].sum())}


def by_proportion(pair: Pair) -> Links:
    """Links each source unit to the target units at the same share of the length."""
    source, target = (len(units(side)) for side in pair)
    return [
        (s, t)
        for s in range(source)
        for t in range(target)
        if s * target < (t + 1) * source and t * source < (s + 1) * target
    ]


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    translator = Translator.load(workdirs_of(args), args.checkpoint, args.dtype)
    say(repr(translator))
    corpus = test_sets(args, translator.config)[0]
    pairs, gold = alignment.with_gold(corpus, args.gold)
    pairs, gold = pairs[: args.lines or None], gold[: args.lines or None]
    sure = [line.sure for line in gold]
    text = [tuple(map(alignment.words, pair)) for pair in pairs]
    links = {
        "gold": sure,
        "attention": [line.links for line in translator.align_units(pairs)],
        "Aligner": align_words(text, len(text)),
        "all at the end": [()] * len(pairs),
        "by proportion": list(map(by_proportion, pairs)),
    }
    rows = [row(name, pairs, sure, linked) for name, linked in links.items()]
    measuring.publish(rows, args.output, test=corpus.spec, gold=args.gold)


if __name__ == "__main__":
    run(main, alignment.define_gold_flags)
