"""The benchmark of choices: weights are the best of the grid, and rows are readable."""

import itertools

import numpy as np
import sacrebleu

from benchmarks.reranking import best_weights, columns
from t2t_jax.metrics.text_measures import bleu_statistics

WORDS = ["der", "Hund", "sieht", "die", "Katze", "nicht"]


def test_weights_are_those_of_the_highest_bleu_on_the_whole_set():
    rng = np.random.default_rng(0)
    lines = [[" ".join(rng.choice(WORDS, 7)) for _ in range(4)] for _ in range(5)]
    references = [" ".join(rng.choice(WORDS, 7)) for _ in lines]
    terms = [rng.normal(size=(4, 4)) for _ in lines]
    sums = [
        bleu_statistics(texts, [("", reference)] * 4)
        for texts, reference in zip(lines, references, strict=True)
    ]
    grid = [*itertools.product((0.0, 0.5, 2.0), (0.0, 1.0), (-0.3, 0.0))]

    def bleu(weights):
        chosen = [
            texts[int(np.argmax(terms_nk @ [1.0, *weights]))]
            for texts, terms_nk in zip(lines, terms, strict=True)
        ]
        return sacrebleu.corpus_bleu(chosen, [references], tokenize="none").score

    weights, found = best_weights(terms, sums, grid)
    highest = max(map(bleu, grid))
    assert abs(found - highest) < 1e-9
    equals = [w for w in grid if abs(bleu(w) - highest) < 1e-9]
    assert weights in equals
    assert sum(map(abs, weights)) == min(sum(map(abs, w)) for w in equals)
    # Where no weight changes anything, none is the choice.
    alike = [np.zeros((4, 4)) for _ in lines]
    assert best_weights(alike, sums, grid)[0] == (0.0, 0.0, 0.0)


def test_rows_are_compared_with_the_first():
    found = {"score": 30.0, "difference": 1.5, "low": 0.25, "high": 2.5}
    row = {"name": "beam search", "bleu": found, "chrf": found, "seconds": 0.5}
    other = columns(row | {"name": "mbr", "seconds": 2.0}, row)
    assert columns(row, row)["BLEU: difference, 95%"] == ""
    assert other["chrF: difference, 95%"] == "+1.50 [+0.25, +2.50]"
    assert (other["BLEU"], other["cost"]) == (30.0, 4.0)
