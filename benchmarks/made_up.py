"""Made-up text, and the lengths of WMT 2014 English-German, without its text."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from t2t_jax.data.corpus import Corpus
from t2t_jax.data.filling import Ragged
from t2t_jax.data.pairs import Pairs
from t2t_jax.tools.verify.random_models import SPECIAL

# ---------------------------------------------------------------------------- lengths

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


def random_pairs(lengths: Iterable[np.ndarray], pieces: int) -> Pairs:
    """Random tokens in sentences of these lengths, int [pairs] for each side."""
    rng = np.random.default_rng(0)
    sides = []
    for length_p in lengths:
        offsets = np.append(0, np.cumsum(length_p, dtype=np.int64))
        tokens = rng.integers(SPECIAL, min(pieces, 1 << 16), offsets[-1], np.uint16)
        sides.append(Ragged(tokens, offsets))
    return Pairs(*sides, {}, sizes=(len(offsets) - 1,))


# ------------------------------------------------------------------------------- text

WORDS = 200_000  # of each language
PART = 1_000  # pairs made at a time
LANGUAGES = "en", "de"


def made_up(count: int, words: int, seed: int = 0) -> Corpus:
    """Returns a corpus of random sentences, the same in each reading.

    Words are drawn by Zipf's law; each has one translation, in almost the same order.
    Every hundredth pair is damaged.

    Args:
      count: of pairs.
      words: of a source, on average.
    """

    def pairs():
        vocabularies = [_vocabulary(seed) for seed in (1, 2)]
        weights = 1 / np.arange(10, WORDS + 10)
        shares = np.cumsum(weights) / weights.sum()
        for part in range(-(-count // PART)):
            rng = np.random.default_rng([seed, part])
            lengths = rng.poisson(words - 3, PART) + 3
            drawn = np.searchsorted(shares, rng.random(lengths.sum()))
            # A place of its own, and some that moved by a word or two.
            order = np.arange(len(drawn)) + rng.normal(0, 0.7, len(drawn))
            ends = np.cumsum(lengths)
            for n in range(min(PART, count - part * PART)):
                sentence = slice(ends[n] - lengths[n], ends[n])
                source = [vocabularies[0][w] for w in drawn[sentence]]
                moved = drawn[sentence][np.argsort(order[sentence])]
                target = [vocabularies[1][w] for w in moved]
                if n % 100 == 0:
                    target = target[: len(target) // 3]
                yield " ".join(source) + ".", " ".join(target) + "."

    # Without a hash, as nothing is cached.
    return Corpus("made up", "made up", *LANGUAGES, pairs, lambda: "")


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


def write_text(folder: Path, pairs: int, words: int = 22) -> str:
    """Writes made-up pairs as text files, by default as long as WMT's; their prefix."""
    prefix = folder / "text"
    files = [prefix.with_suffix(f".{language}") for language in LANGUAGES]
    sides = zip(*made_up(pairs, words).pairs(), strict=True)
    for file, lines in zip(files, sides, strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return str(prefix)
