"""Task: grammatical error correction; a sentence with errors in, the sentence out.

A corpus is text whose target side is correct, such as `grammar:train`. The
errors are made, as a function of the sentence: one word in four loses an "s" at its end
or gets one, or is left out if it is an article.
"""

import difflib
from collections import Counter
from typing import ClassVar

import numpy as np

from t2t_jax.data.corpus import derived, open_corpus
from t2t_jax.extensions.grammar.dice import Dice
from t2t_jax.metrics.measures import Measure
from t2t_jax.tasks.table import TASKS
from t2t_jax.tasks.task import Task

ARTICLES = {"a", "an", "the", "der", "die", "das", "ein", "eine"}


def with_errors(line):
    """Returns a sentence with errors."""
    dice, words = Dice(line), []
    for word in line.split():
        if not word.isalpha() or dice.chance(0.75):
            words.append(word)
        elif word.lower() not in ARTICLES:
            words.append(word[:-1] if word.endswith("s") else f"{word}s")
    return " ".join(words) or line


def corrections(pairs):
    """The target side of a corpus, with errors as the source."""
    return ((with_errors(line), line) for _, line in pairs)


def edits(source, target):
    """The edits from a sentence to another: (place, words, words in their place)."""
    a, b = source.split(), target.split()
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    return Counter(
        (i, *a[i:k], "->", *b[j:m])
        for kind, i, k, j, m in matcher.get_opcodes()
        if kind != "equal"
    )


def counts(answers, pairs):
    """Edits that are right, those of the answer and those wanted, of each example."""
    rows = []
    for answer, (source, target) in zip(answers, pairs, strict=True):
        made, wanted = edits(source, answer), edits(source, target)
        rows.append([(made & wanted).total(), made.total(), wanted.total()])
    return np.array(rows, np.float64)


def f_half(sums):
    """F0.5: precision counts twice as much as recall; 100 if nothing was to be done."""
    right, made, wanted = np.moveaxis(sums, -1, 0)
    both = made + 0.25 * wanted
    return np.where(both > 0, 125 * right / np.maximum(both, 1), 100.0)


class Correction(Task):
    measures: ClassVar = {"f_half": Measure("F0.5 of edits", counts, f_half)}

    def open(self, spec, folder=""):
        data = self.config.data
        text = open_corpus(spec, data.source, data.target, folder)
        return derived(text, "correction 1", corrections)


TASKS["correction"] = Correction
