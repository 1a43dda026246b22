"""Counts how many sentences of a language model the built-in grammar accepts.

    python -m benchmarks.grammatical --workdir=DIR [--lmplz=FILE] [--samples=500]

DIR is a run of configs/lm_tiny.py. Sentences are sampled from nothing at temperature 1.
A chart parser judges them by the rules of the training trees: agreement, word order and
what verbs take, not meaning. Beside them: real sentences that training did not have
(the ceiling: the parser may lack a rule), and samples of n-gram models (`ngrams.py`).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import ngrams
from benchmarks.chart import grammatical
from t2t_jax.decoding.translator import Translator
from t2t_jax.grammar import corpus
from t2t_jax.workdir import Workdir


def shares(lines: Sequence[str], known: set[str], language: str) -> dict[str, float]:
    """Shares of lines that are grammatical, in the training text, and new."""
    accepted = [grammatical(line, language) for line in lines]
    return {
        "grammatical": np.mean(accepted),
        "in training text": np.mean([line in known for line in lines]),
        "grammatical and new": np.mean(
            [ok and line not in known for ok, line in zip(accepted, lines, strict=True)]
        ),
        "distinct": len({*lines}) / len(lines),
    }


def ngram_samples(
    workdir: Workdir, lmplz: Path, order: int, samples: int, seed: int
) -> list[str]:
    """Returns sentences of an n-gram model of the run's training text."""
    vocabulary, lines = ngrams.training_lines(workdir.config(), 0, workdir)
    model = ngrams.train(lmplz, lines, order, len(vocabulary))
    rng = np.random.default_rng(seed)
    return vocabulary.decode(
        [[int(piece) for piece in model.sample(rng)] for _ in range(samples)]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--lmplz", type=Path)
    parser.add_argument("--orders", default="3,5")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    workdir = Workdir.open(given.workdir)
    language = workdir.config().data.target
    side = ("en", "de").index(language)
    known = {pair[side] for pair in corpus.pairs("train")}
    translator = Translator.load(given.workdir)
    sampled = translator.sample([""] * given.samples, seed=given.seed, warn=False)
    systems = {
        "the run": [str(text) for text in sampled],
        "unseen sentences": [pair[side] for pair in corpus.pairs("unseen")],
    }
    if given.lmplz:
        for order in map(int, given.orders.split(",")):
            systems[f"{order}-gram"] = ngram_samples(
                workdir, given.lmplz, order, given.samples, given.seed
            )
    for system, lines in systems.items():
        row = shares(lines, known, language)
        columns = "   ".join(f"{name} {share:6.1%}" for name, share in row.items())
        print(f"{system:18} {columns}")
        refused = [line for line in lines if not grammatical(line, language)]
        for line in refused[:3]:
            print(f"  refused: {line}")


if __name__ == "__main__":
    main()
