"""Labeled bracketing of constituency trees, counted as EVALB does with COLLINS.prm.

A bracket is a constituent: its label and the words that it spans. The scores compare
the brackets of an answer with those of the reference over the same words. Brackets are
a multiset: an answer with two NPs over the same words matches one NP of the reference
once. Preterminals are tags, not brackets.

In one respect this is not EVALB: the reference alone decides which words are left out
as punctuation. So an answer needs no tags to be scored. Where both trees agree on the
tags of punctuation, as COLLINS.prm requires, the counts are EVALB's.
"""

import collections
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from t2t_jax.extensions.grammar.trees import Tree


class Scoring(NamedTuple):
    """Which nodes of a tree are scored."""

    # Labels that do not count: a word with such a tag is removed; of a constituent with
    # such a label only the bracket is.
    left_out: frozenset[str]
    equal: Mapping[str, str]  # labels that count as another one


# Tags of punctuation that the scores leave out.
PUNCTUATION = frozenset({",", ":", "``", "''", "."})
# COLLINS.prm; it calls the root TOP, other treebanks give it other names.
ROOTS = frozenset({"TOP", "ROOT", "S1", ""})
COLLINS = Scoring(PUNCTUATION | ROOTS | {"-NONE-"}, {"PRT": "ADVP"})


class Counts(NamedTuple):
    """Numbers of one sentence, or their sums or arrays over several."""

    matched: float | np.ndarray  # brackets in both trees
    answer: float | np.ndarray  # brackets of each tree
    reference: float | np.ndarray
    # Brackets of the answer that overlap one of the reference, and neither contains the
    # other.
    crossing: float | np.ndarray
    complete: float | np.ndarray  # 1 if all brackets match
    tags: float | np.ndarray  # words with the reference's tag
    words: float | np.ndarray  # words that are not left out
    sentences: float | np.ndarray  # 1 if there are such words


def count(answer: "Tree", reference: "Tree", scoring: Scoring = COLLINS) -> Counts:
    """Compares two trees; raises ValueError unless they have the same words."""
    words, reference_words = answer.words(), reference.words()
    if words != reference_words:
        raise ValueError(
            f"the tree has the words {' '.join(words)!r}; want those of its sentence, "
            f"{' '.join(reference_words)!r}"
        )
    tags, reference_tags = answer.tags(), reference.tags()
    is_scored = [tag not in scoring.left_out for tag in reference_tags]
    # Scored words before each word: spans are of scored words.
    scored_before = [0, *itertools.accumulate(is_scored)]
    brackets, reference_brackets = (
        _brackets(tree, scored_before, scoring) for tree in (answer, reference)
    )
    matched = (brackets & reference_brackets).total()
    crossing = sum(
        times
        for (_, start, end), times in brackets.items()
        if any(
            s < start < e < end or start < s < end < e for _, s, e in reference_brackets
        )
    )
    right = sum(
        scoring.equal.get(tag, tag) == scoring.equal.get(reference_tag, reference_tag)
        for tag, reference_tag, scored in zip(
            tags, reference_tags, is_scored, strict=True
        )
        if scored
    )
    exact = matched == brackets.total() == reference_brackets.total()
    # EVALB skips a sentence without scored words.
    sentences = int(any(is_scored))
    return Counts(
        matched=matched,
        answer=brackets.total(),
        reference=reference_brackets.total(),
        crossing=crossing,
        complete=sentences * int(exact),
        tags=right,
        words=sum(is_scored),
        sentences=sentences,
    )


def _brackets(
    tree: "Tree", scored_before: Sequence[int], scoring: Scoring
) -> collections.Counter[tuple[str, int, int]]:
    """Counts the scored brackets (label, start, end) of a tree."""
    return collections.Counter(
        (scoring.equal.get(label, label), scored_before[start], scored_before[end])
        for label, start, end in tree.spans()
        # A constituent of nothing but punctuation is not a bracket.
        if label not in scoring.left_out and scored_before[start] < scored_before[end]
    )


def _percent(part, total):
    """100 * part / total; 0 where there is nothing."""
    return 100 * (part / np.maximum(total, 1))


def precision(counts: Counts):
    """The share of the answer's brackets that match, in percent."""
    return _percent(counts.matched, counts.answer)


def recall(counts: Counts):
    """The share of the reference's brackets that match, in percent."""
    return _percent(counts.matched, counts.reference)


def f1(counts: Counts):
    """The harmonic mean of precision and recall, in percent."""
    return _percent(2 * counts.matched, counts.answer + counts.reference)


def complete_match(counts: Counts):
    """The share of sentences in which all brackets match, in percent."""
    return _percent(counts.complete, counts.sentences)


def crossing(counts: Counts):
    """The mean number of crossing brackets of a sentence."""
    return _percent(counts.crossing, counts.sentences) / 100


def tagging_accuracy(counts: Counts):
    """The share of scored words with the reference's tag, in percent."""
    return _percent(counts.tags, counts.words)
