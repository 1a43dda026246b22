"""Memory and speed of the doctor on made-up pairs.

    python -m benchmarks.doctor --pairs=4500000 [--words=25] [--fix=PREFIX]

The pairs are made as they are read, so the text itself takes no memory: sentences of
words drawn by Zipf's law from 200,000 words a side, each of which has one translation,
in almost the same order. A dev set of 3,000 such pairs is indexed. Every hundredth pair
is damaged, so that something is accused.
"""

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_jax.tools.doctor.examination import Examination
from t2t_jax.tools.doctor.findings import findings
from t2t_jax.tools.doctor.fixing import write_fix
from t2t_jax.tools.doctor.overlap import Reference
from t2t_jax.tools.verify.own_process import megabytes

WORDS = 200_000  # of each language
PART = 1_000  # pairs made at a time
LANGUAGES = "en", "de"


class Random(NamedTuple):
    """A corpus of random sentences, the same in each reading."""

    count: int
    words: int
    seed: int = 0
    place: str = "random"
    name: str = "random"
    source: str = LANGUAGES[0]
    target: str = LANGUAGES[1]
    weight: float = 1.0

    def pairs(self):
        """Yields the pairs."""
        vocabularies = [_vocabulary(seed) for seed in (1, 2)]
        weights = 1 / np.arange(10, WORDS + 10)
        shares = np.cumsum(weights) / weights.sum()
        for part in range(-(-self.count // PART)):
            rng = np.random.default_rng([self.seed, part])
            lengths = rng.poisson(self.words - 3, PART) + 3
            words = np.searchsorted(shares, rng.random(lengths.sum()))
            # A place of its own, and some that moved by a word or two.
            order = np.arange(len(words)) + rng.normal(0, 0.7, len(words))
            ends = np.cumsum(lengths)
            for n in range(min(PART, self.count - part * PART)):
                here = slice(ends[n] - lengths[n], ends[n])
                source = [vocabularies[0][w] for w in words[here]]
                moved = words[here][np.argsort(order[here])]
                target = [vocabularies[1][w] for w in moved]
                if n % 100 == 0:
                    target = target[: len(target) // 3]
                yield " ".join(source) + ".", " ".join(target) + "."

    def fingerprint(self) -> str:
        """Returns no hash: nothing is cached."""
        return ""


def _vocabulary(seed: int) -> list[str]:
    """Words of 2 to 4 syllables; other syllables for other seeds."""
    rng = np.random.default_rng(seed)
    letters = rng.permutation(list("bcdfghjklmnpqrstvwxz"))[:14]
    syllables = [a + b for a in letters for b in "aeiou"]
    sizes, draws = (
        rng.integers(2, 5, WORDS),
        rng.integers(0, len(syllables), (WORDS, 4)),
    )
    return [
        "".join(syllables[d] for d in row[:size])
        for row, size in zip(draws.tolist(), sizes.tolist(), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300_000)
    parser.add_argument("--words", type=int, default=25, help="of a source, on average")
    parser.add_argument("--fix", default="", help="PREFIX to write the kept pairs to")
    given = parser.parse_args()
    before = megabytes("VmHWM")
    started, cpu = time.monotonic(), time.process_time()
    corpus = Random(given.pairs, given.words)
    made = sum(1 for _ in corpus.pairs())
    making = time.process_time() - cpu  # the text is made anew in each reading
    started, cpu = time.monotonic(), time.process_time()
    dev = [*Random(3_000, given.words, seed=1).pairs()]
    examination = Examination([corpus], [Reference("dev", dev)])
    content = findings(examination, LANGUAGES)
    if given.fix:
        write_fix(examination, Path(given.fix), LANGUAGES)
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    peak = megabytes("VmHWM")  # None without /proc
    row = {
        "pairs": made,
        "peak_megabytes": peak and round(peak),
        "megabytes_before": before and round(before),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "cpu_seconds_to_make_the_text_once": round(making, 1),
        "pairs_per_second": round(made / seconds),
        "removed": content["dropped"],
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
