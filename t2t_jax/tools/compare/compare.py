"""Compares systems on a test set: `compare`."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t2t_jax.metrics.text_measures import chrf_of
from t2t_jax.tools.compare.aspects import ASPECTS, compare_buckets
from t2t_jax.tools.compare.scores import compare_totals, total_measures
from t2t_jax.tools.compare.signs import SIGNS, compare_signs
from t2t_jax.tools.compare.texts import Texts, Words, bleu_words, is_word

if TYPE_CHECKING:
    from t2t_jax.tools.compare.scores import Comet

BINS = 41  # of the histogram, from -100 to 100


class System(NamedTuple):
    """Translations of a test set, and their origin: a file, or a run's checkpoints."""

    name: str
    lines: Sequence[str]
    origin: str = ""


def compare_texts(
    texts: Texts, systems: Sequence[System], comet: "Comet | None" = None
) -> dict:
    """Compares systems with the first of them, the baseline.

    Args:
      systems: two or more.
      comet: adds its scores.

    Returns:
      What JSON can hold: `name`, `direction`, `languages`, `lines` and `references`
      (their numbers), `training` (pairs counted, or why there are none), `systems`
      (`name`, `origin`), `totals` (`compare_totals`), `length_ratio` (words by those of
      the references, for each system), `aspects` (`compare_buckets`), `signs`
      (`compare_signs`), `changes` (`word_changes` for each system but the first), and
      `sentences` (`_sentences`).

    Raises:
      ValueError: fewer than two systems, or a wrong number of lines.
    """
    if len(systems) < 2:
        raise ValueError(f"{len(systems)} systems; want two or more")
    for system in systems:
        if len(system.lines) != len(texts.references):
            raise ValueError(
                f"{system.name} has {len(system.lines)} lines; want "
                f"{len(texts.references)}"
            )
    outputs = [bleu_words(system.lines, texts.target) for system in systems]
    measures = total_measures(texts)
    statistics = {
        name: [measure.statistics(s.lines, texts.pairs) for s in systems]
        for name, measure in measures.items()
    }
    if comet is not None:
        measures["comet"] = comet.measure
        statistics["comet"] = [comet.statistics(texts, s.lines) for s in systems]
    line_statistics = [
        np.concatenate(of_system, axis=1)
        for of_system in zip(statistics["chrf"], statistics["bleu"], strict=True)
    ]
    signs, has_sign = compare_signs(texts, outputs)
    chrf = np.array([chrf_of(counts_nk) for counts_nk in statistics["chrf"]])
    words = max(1, sum(map(len, texts.reference_words)))
    return {
        "name": texts.name,
        "domain": texts.domain,
        "direction": f"{texts.source}-{texts.target}",
        "languages": [texts.source, texts.target],
        "lines": len(texts.references),
        "references": len(texts.further) + 1,
        "training": {"missing": texts.no_training}
        if texts.training is None
        else {"pairs": texts.training.pairs, "counted": texts.training.counted},
        "systems": [{"name": s.name, "origin": s.origin} for s in systems],
        "totals": compare_totals(measures, statistics, texts),
        "length_ratio": [sum(map(len, lines)) / words for lines in outputs],
        "aspects": {
            name: compare_buckets(aspect, texts, outputs, line_statistics)
            for name, aspect in ASPECTS.items()
        },
        "signs": signs,
        "changes": [
            word_changes(texts.reference_words, outputs[0], lines)
            for lines in outputs[1:]
        ],
        "histograms": [histogram(of_system - chrf[0]) for of_system in chrf[1:]],
        "sentences": _sentences(texts, systems, outputs, chrf, has_sign),
    }


def histogram(differences_n: np.ndarray) -> dict:
    """Counts differences of sentence scores in bins from -100 to 100.

    The bins are symmetric, so two systems exchanged have the mirrored counts. `equal`
    are the lines without any difference, which the counts leave out.
    """
    differing = differences_n[differences_n != 0]
    # An odd number of bins: small differences either way share the one in the middle.
    counts, edges = np.histogram(differing, BINS, (-100, 100))
    return {
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "equal": int(len(differences_n) - len(differing)),
        "better": int((differing > 0).sum()),
        "worse": int((differing < 0).sum()),
    }


def _sentences(texts: Texts, systems, outputs, chrf, has_sign) -> list[dict]:
    """Puts the lines side by side.

    Returns:
      For each line `source`, `reference` and `outputs`: a text as a list of (word with
      the white space before it, mark), where a mark is as in `word_changes.marks`;
      `chrf` of each system's line; `signs`: names for each system.
    """
    signs, lines = [*SIGNS], []

    def marked(text: str, words: Words, word_marks: list[int]) -> list:
        return list(zip(parts(text, words), word_marks, strict=True))

    for n, (source, reference) in enumerate(texts.pairs):
        words = texts.reference_words[n]
        outputs_s = [of_system[n] for of_system in outputs]
        reference_marks, marks_s = marks(words, outputs_s)
        lines.append(
            {
                "source": source,
                "reference": marked(reference, words, reference_marks),
                "outputs": [
                    marked(system.lines[n], *sides)
                    for system, *sides in zip(systems, outputs_s, marks_s, strict=True)
                ],
                "chrf": [float(score) for score in chrf[:, n]],
                "signs": [
                    [signs[i] for i in np.flatnonzero(has_sign[:, s, n])]
                    for s in range(len(systems))
                ],
            }
        )
    return lines


# -------------------------------------------------------------------------------- words

EXAMPLES = 5  # lines that are named for each word


def word_changes(
    references: Sequence[Words],
    baseline: Sequence[Words],
    system: Sequence[Words],
    limit: int = 50,
) -> dict[str, list[dict]]:
    """Counts the reference's words that only one of two systems gets.

    A system gets a word of a reference as often as both have it, as in BLEU.
    Punctuation is left out; of the others, the most frequent are returned.

    Returns:
      `right` (the system gets them, the baseline does not) and `wrong` (the reverse).
      Each word has `word`, `count`, `reverse` (its count in the other list),
      `in_references` (how often references have it) and `lines` (numbers, from 0, of
      the first lines).
    """
    changed = {"right": Counter(), "wrong": Counter()}
    lines = {name: defaultdict(list) for name in changed}
    in_references: Counter[str] = Counter()
    for line, sides in enumerate(zip(references, baseline, system, strict=True)):
        reference, *outputs = map(Counter, sides)
        in_references.update(reference)
        hit = [reference & output for output in outputs]
        for name, gained in (("right", hit[1] - hit[0]), ("wrong", hit[0] - hit[1])):
            for word, count in gained.items():
                if is_word(word):
                    changed[name][word] += count
                    lines[name][word].append(line)

    def rows(name: str, opposite: str) -> list[dict]:
        # Words of the same count in the order of the alphabet: a sorted list does not
        # depend on the order of the lines.
        ordered = sorted(changed[name].items(), key=lambda c: (-c[1], c[0]))
        return [
            {
                "word": word,
                "count": count,
                "reverse": changed[opposite][word],
                "in_references": in_references[word],
                "lines": lines[name][word][:EXAMPLES],
            }
            for word, count in ordered[:limit]
        ]

    return {"right": rows("right", "wrong"), "wrong": rows("wrong", "right")}


def marks(
    reference: Words, outputs: Sequence[Words]
) -> tuple[list[int], list[list[int]]]:
    """Marks each word by the systems that have it right.

    Bit s of a mark is set if system s has this word of the reference: its k-th
    occurrence, if the system's line has the word k times. Returns the marks of the
    reference's words, and of each system's; in the latter, the system's own bit is 0
    where its word is not in the reference.
    """
    # How often each system has a word right.
    counts = [Counter(words) & Counter(reference) for words in outputs]

    def marked(words: Words) -> list[int]:
        occurrences: Counter[str] = Counter()
        masks = []
        for word in words:
            occurrences[word] += 1
            right = (occurrences[word] <= count[word] for count in counts)
            masks.append(sum(has << s for s, has in enumerate(right)))
        return masks

    return marked(reference), [marked(words) for words in outputs]


def parts(text: str, words: Words) -> list[str]:
    """Cuts a text into its words, each with the white space before it.

    BLEU's tokenizer also unescapes entities; a text with such is shown as its words.
    """
    cuts, end = [], 0
    for word in words:
        start = end
        while start < len(text) and text[start].isspace():
            start += 1
        if not text.startswith(word, start):
            return [f" {w}" if n else w for n, w in enumerate(words)]
        cuts.append(text[end : start + len(word)])
        end = start + len(word)
    return cuts
