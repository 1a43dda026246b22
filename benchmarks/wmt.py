"""Simulates the size of WMT 2014 English-German, without its text."""

from pathlib import Path

import numpy as np

PAIRS = 4_500_000  # "about 4.5 million sentence pairs", section 5.1 of the paper
LONGEST = 256  # pieces; `config.data.max_length`
MEAN = (28, 31)  # pieces of a sentence and its translation, with EOS
SPREAD = 0.6  # standard deviation of the logarithm of a length
SHARED = 0.95  # share of that logarithm's variance that both sides have in common


def lengths(pairs: int = PAIRS, seed: int = 0) -> list[np.ndarray]:
    """Draws the lengths of source and target sentences, int32 [pairs] in 1 .. LONGEST.

    They are log-normal, and correlated: long sentences have long translations.
    """
    rng = np.random.default_rng(seed)
    shared_p = SHARED**0.5 * rng.standard_normal(pairs)
    sides = []
    for mean in MEAN:
        own_p = (1 - SHARED) ** 0.5 * rng.standard_normal(pairs)
        # exp of a normal variable has the mean exp(variance / 2), taken off here.
        log_p = SPREAD * (shared_p + own_p) - SPREAD**2 / 2
        sides.append(np.clip(np.rint(mean * np.exp(log_p)), 1, LONGEST))
    return [side.astype(np.int32) for side in sides]


def write_text(folder: Path, pairs: int, languages=("en", "de")) -> str:
    """Writes random text of about these lengths; returns its prefix.

    Frequencies of words follow Zipf's law, as in a language. One word in forty is a
    name with a number, so that it has to be spelled by several pieces.
    """
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(
        ["".join(rng.choice(letters, n)) for n in rng.integers(2, 11, 50_000)]
    )
    for language, length_p in zip(languages, lengths(pairs), strict=True):
        with open(folder / f"text.{language}", "w", encoding="utf-8") as f:
            for begin in range(0, pairs, 50_000):
                # 1.3 pieces for a word.
                words_p = (length_p[begin : begin + 50_000] / 1.3).astype(int) + 1
                # Log-uniform ranks: the probability of a word is about 1 / rank.
                drawn = len(words) ** rng.random(words_p.sum())
                text = words[drawn.astype(int) - 1].tolist()
                for i in range(0, len(text), 40):
                    text[i] = f"{text[i]}{rng.integers(1_000)}".capitalize()
                last = 0
                for end in np.cumsum(words_p).tolist():
                    f.write(" ".join(text[last:end]) + ".\n")
                    last = end
    return str(folder / "text")
