"""SIGNS of hallucination and omission, read from text alone.

Each sign is an indication, not a proof: the references show some of them, too, and
their figure is shown next to those of the systems. A new sign is a function and a
line in `SIGNS`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.metrics.measures import sampled_sums
from t2t_jax.tools.compare.aspects import difference
from t2t_jax.tools.compare.texts import NotAvailableError, Texts, Words, is_word

SHORT, LONG = 0.5, 2.0  # words of a translation by those of the reference
LOOP = 4  # words in the longest loop that is looked for
SUPPORTED = 0.01  # translation probability that counts as an explanation
Lines = Sequence[Words]


class Sign(NamedTuple):
    """An entry of SIGNS.

    Attributes:
      about: what is counted, in a sentence.
      unit: "lines" or "words", of which the share is.
      count: (Texts, the words of each translation) -> [n, 2]: the number found in each
        line, and of how many. Raises NotAvailableError if it lacks something.
    """

    about: str
    unit: str
    count: Callable[[Texts, Lines], np.ndarray]


# The functions of the table below, which says what each of them counts.


def empty(texts: Texts, outputs: Lines) -> np.ndarray:
    lines = zip(outputs, texts.source_words, strict=True)
    return _share(not words if source else None for words, source in lines)


def short(texts: Texts, outputs: Lines) -> np.ndarray:
    lines = zip(outputs, texts.reference_words, strict=True)
    return _share(len(words) < SHORT * len(reference) for words, reference in lines)


def long(texts: Texts, outputs: Lines) -> np.ndarray:
    lines = zip(outputs, texts.reference_words, strict=True)
    return _share(len(words) > LONG * len(reference) for words, reference in lines)


def loops(texts: Texts, outputs: Lines) -> np.ndarray:
    lines = zip(outputs, texts.source_words, strict=True)
    return _share(has_loop(words) and not has_loop(source) for words, source in lines)


def has_loop(words: Words) -> bool:
    """True if a word occurs three times in a row, or two to four words twice."""
    for size in range(1, LOOP + 1):
        times = 3 if size == 1 else 2
        for start in range(len(words) - size * times + 1):
            run = words[start : start + size * times]
            if run == run[:size] * times and all(map(is_word, run[:size])):
                return True
    return False


def untranslated(texts: Texts, outputs: Lines) -> np.ndarray:
    # With a training text only those that are commoner in its sources than its targets:
    # "in" is a word of English and of German.
    training, rows = texts.training, []

    def is_foreign(word: str) -> bool:
        if training and training.source_count[word] <= training.target_count[word]:
            return False
        return any(map(str.isalpha, word))

    lines = zip(outputs, texts.source_words, texts.reference_words, strict=True)
    for words, source, reference in lines:
        taken_over = (Counter(words) - Counter(reference)) & Counter(source)
        copied = sum(count for word, count in taken_over.items() if is_foreign(word))
        rows.append([copied, sum(map(is_word, words))])
    return np.array(rows, np.float64).reshape(-1, 2)


def unsupported(texts: Texts, outputs: Lines) -> np.ndarray:
    return _explained(texts.trained().forward, texts.source_words, outputs)


def uncovered(texts: Texts, outputs: Lines) -> np.ndarray:
    return _explained(texts.trained().backward, outputs, texts.source_words)


def _explained(lexicon, contexts: Lines, explained: Lines) -> np.ndarray:
    rows = []
    for context, words in zip(contexts, explained, strict=True):
        unmatched = [w for w in words if is_word(w) and w not in context]
        support = lexicon.support(context, unmatched) if unmatched else np.zeros(0)
        judged = support[~np.isnan(support)]
        rows.append([(judged < SUPPORTED).sum(), len(judged)])
    return np.array(rows, np.float64).reshape(-1, 2)


def _share(flags) -> np.ndarray:
    """Counts lines: None is a line that is not judged."""
    rows = [[bool(flag), flag is not None] for flag in flags]
    return np.array(rows, np.float64).reshape(-1, 2)


SIGNS = {
    "empty": Sign("Translations without a word.", "lines", empty),
    "short": Sign(
        "Translations with less than half the words of the reference.", "lines", short
    ),
    "long": Sign(
        "Translations with more than twice the words of the reference.", "lines", long
    ),
    "loops": Sign(
        "Translations with a word three times in a row, or two to four words twice, "
        "where the source has no such repetition.",
        "lines",
        loops,
    ),
    "untranslated": Sign(
        "Words of the source that stand in the translation and not in the reference; "
        "with a training text, only words that are commoner in its source side.",
        "words",
        untranslated,
    ),
    "unsupported": Sign(
        "Words of the translation that no word of the source explains: a sign of "
        "hallucination.",
        "words",
        unsupported,
    ),
    "uncovered": Sign(
        "Words of the source that no word of the translation explains: a sign of "
        "omission.",
        "words",
        uncovered,
    ),
}


def compare_signs(texts: Texts, outputs: Sequence[Lines]) -> tuple[dict, np.ndarray]:
    """Counts the signs in each system's translations, and in the references.

    Returns:
      By the name of the sign: `title`, `about`, `of`; `reference` and `systems`, each
      with `found`, `total` and `share` (found / total; None of none); `differences` of
      the shares to the baseline with their 95% interval, as `compare_buckets` has them.
      A sign that lacks something has `missing`, the reason, instead. And bool
      [signs, systems, n]: the lines that show a sign more often than their reference.
    """
    results, shows = {}, np.zeros((len(SIGNS), len(outputs), len(texts.sources)), bool)
    for number, (name, sign) in enumerate(SIGNS.items()):
        head = {"title": name.capitalize(), "about": sign.about, "of": sign.unit}
        try:
            counts = [sign.count(texts, lines) for lines in outputs]
            reference = sign.count(texts, texts.reference_words)
        except NotAvailableError as e:
            results[name] = head | {"missing": str(e)}
            continue
        shows[number] = [counts_n2[:, 0] > reference[:, 0] for counts_n2 in counts]
        rows = [_row(counts_n2) for counts_n2 in counts]
        exact = [row["share"] or 0.0 for row in rows]
        sampled = [_sampled_shares(counts_n2) for counts_n2 in counts]
        results[name] = head | {
            "reference": _row(reference),
            "systems": rows,
            "differences": [
                difference(share - exact[0], share_m - sampled[0])
                for share, share_m in zip(exact[1:], sampled[1:], strict=True)
            ],
        }
    return results, shows


def _row(counts_n2: np.ndarray) -> dict:
    count, total = map(int, counts_n2.sum(0))
    return {"found": count, "total": total, "share": count / total if total else None}


def _sampled_shares(counts_n2: np.ndarray) -> np.ndarray:
    count_m, total_m = sampled_sums(counts_n2).T
    return count_m / np.maximum(total_m, 1)
