"""Languages of lines, from models that are learnt from the two sides of the text.

No list of languages is needed to tell the two sides apart: a model of character
trigrams (Cavnar and Trenkle 1994) of each side, learnt from a sample, says which side a
line looks like. A third language with the same script is guessed; one that is common on
a side of this text is none.
"""

import collections
import weakref
from collections.abc import Iterable, Sequence

import numpy as np

from t2t_jax.extensions.text.language_identification import probabilities
from t2t_jax.text.characters import FIRST_SCRIPT, SCRIPTS
from t2t_jax.text.view import Side

BUCKETS = 1 << 17  # of hashed trigrams
MARKERS = 400  # words of each side
GUESSED = 1_000  # lines of each side


def trigrams(side: Side) -> tuple[np.ndarray, np.ndarray]:
    """Hashes the character trigrams of the words of each line.

    Returns:
      (bucket of each trigram int64, line of each trigram int64).
    """
    # A space before, between and after words: each line has some trigrams.
    texts = [f"  {key} " for key in side.keys]
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4")
    codes = codes.astype(np.uint64)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    line_c = np.repeat(np.arange(len(texts)), lengths)
    if len(codes) < 3:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    mixed = (codes[:-2] * np.uint64(0x9E3779B1) + codes[1:-1]) * np.uint64(0x85EBCA77)
    mixed = (mixed + codes[2:]) * np.uint64(0xC2B2AE3D27D4EB4F)
    within = line_c[:-2] == line_c[2:]
    bucket = (mixed >> np.uint64(47)).astype(np.int64)  # the upper 17 bits
    return bucket[within], line_c[2:][within]


class Languages:
    """Models of the lines of both sides of a text: letters, frequent words, scripts.

    Args:
      pairs: the sides of a sample of the text.

    Attributes:
      differ: False if the two sides are too similar to be told apart.
      scripts: for each side, the classes of its letters that make up a fiftieth of
        them or more, as indices of `SCRIPTS`.
    """

    def __init__(self, sides: Sequence[Side]):
        # Several rules ask for the same side.
        self._means = weakref.WeakKeyDictionary()
        side_trigrams = [trigrams(side) for side in sides]
        keep = [np.ones(len(side), bool) for side in sides]
        # Twice: lines of the first model's wrong side do not shape the second.
        for _ in range(2):
            counts = [
                np.bincount(bucket[flags[line]], minlength=BUCKETS)
                for (bucket, line), flags in zip(side_trigrams, keep, strict=True)
            ]
            self._log_p = np.stack([_log_probabilities(c) for c in counts])
            means = [
                self._side_means(*line_trigrams, len(s))
                for line_trigrams, s in zip(side_trigrams, sides, strict=True)
            ]
            centers = [np.median(mean) if len(mean) else 0.0 for mean, _, _ in means]
            self._middle = sum(centers) / 2
            self._reach = (centers[0] - centers[1]) / 2
            keep = [
                ((mean - self._middle) / max(self._reach, 1e-6)) * sign > 0
                for (mean, _, _), sign in zip(means, (1, -1), strict=True)
            ]
        self.differ = self._reach > 0.25
        self._likely = []
        for n, (_, fit_l2, count) in enumerate(means):
            spread = (fit_l2[:, n] - np.median(fit_l2[:, n])) * np.sqrt(
                np.maximum(count, 1)
            )
            deviation = 1.4826 * np.median(np.abs(spread)) if len(spread) else 1.0
            self._likely.append((np.median(fit_l2[:, n]), max(deviation, 1e-3)))
        self.scripts = [_main_scripts(side) for side in sides]
        self._usual = [_usual_languages(side) for side in sides]
        self._markers = _markers(sides)

    def _side_means(self, bucket, line, lines: int):
        """Mean log-odds of the source's language, mean log-likelihoods, trigrams."""
        count = np.bincount(line, minlength=lines)
        divisor = np.maximum(count, 1)
        fit_l2 = np.stack(
            [np.bincount(line, p[bucket], lines) / divisor for p in self._log_p], axis=1
        )
        return fit_l2[:, 0] - fit_l2[:, 1], fit_l2, count

    def _means_of(self, side: Side):
        if side not in self._means:
            self._means[side] = self._side_means(*trigrams(side), len(side))
        return self._means[side]

    def place_p(self, side: Side) -> tuple[np.ndarray, np.ndarray]:
        """Places each line between the languages of the two sides.

        Returns:
          (place: 1 for a typical source line, -1 for a typical target line, 0 between;
          the number of trigrams that it rests on).
        """
        mean, _, count = self._means_of(side)
        if not self.differ:
            return np.zeros(len(side)), count
        return (mean - self._middle) / self._reach, count

    def unlikeness_p(self, side: Side, number: int) -> np.ndarray:
        """Standard deviations by which lines are less likely than those of a side.

        Args:
          side: the lines.
          number: of the side whose model is asked: 0 the source, 1 the target.
        """
        _, fit_l2, count = self._means_of(side)
        center, deviation = self._likely[number]
        return (center - fit_l2[:, number]) * np.sqrt(np.maximum(count, 1)) / deviation

    def foreign_script_p(self, side: Side, number: int) -> np.ndarray:
        """The share of each line's letters in scripts that its side seldom has."""
        counts = side.counts_pk[:, FIRST_SCRIPT:].copy()
        counts[:, self.scripts[number]] = 0
        return counts.sum(1) / np.maximum(side.letters_p, 1)

    def markers(self, words: Iterable[str], number: int) -> int:
        """Counts the different words of a line that mark the language of a side.

        They are words that are frequent on that side and rare on the other one, in
        this text. Names, numbers and commands are none.
        """
        return len(self._markers[number].intersection(words))

    def suspects(self, line: str, number: int) -> tuple[str, float]:
        """Compares the likeliest language that a side hardly has with its own.

        Returns:
          (its code, its share of the probability of both, 0 to 1; 0 if the language of
          the side is unknown).
        """
        shares = probabilities(line)
        usual = max((shares.pop(name) for name in self._usual[number]), default=1.0)
        shares.pop("zxx", None)  # no language
        name = max(shares, key=shares.get)
        return name, shares[name] / (shares[name] + usual)


def _log_probabilities(counts: np.ndarray) -> np.ndarray:
    smoothed = counts + 0.1
    return np.log(smoothed / smoothed.sum())


def _main_scripts(side: Side) -> np.ndarray:
    total = side.counts_pk[:, FIRST_SCRIPT:].sum(0)
    main = np.flatnonzero(total * 50 >= max(total.sum(), 1))
    return main if len(main) else np.arange(len(SCRIPTS))


def _usual_languages(side: Side) -> list[str]:
    """Languages of a fiftieth of the lines; none if half are in no single one."""
    lines = side.lines[:: -(-len(side) // GUESSED) or 1]
    guesses = map(probabilities, lines)
    counts = collections.Counter(max(guess, key=guess.get) for guess in guesses)
    if 2 * max(counts.values(), default=0) < len(lines):
        return []
    return [name for name, n in counts.items() if n * 50 >= len(lines)]


def _markers(sides: Sequence[Side]) -> list[frozenset[str]]:
    counts = [collections.Counter() for _ in sides]
    for count, side in zip(counts, sides, strict=True):
        for words in side.words:
            count.update(words)
    totals = [max(1, count.total()) for count in counts]
    markers = []
    for number, opposite in ((0, 1), (1, 0)):
        scale = 10 * totals[number] / totals[opposite]
        markers.append(
            frozenset(
                word
                for word, n in counts[number].most_common(MARKERS)
                if n > scale * counts[opposite][word] and word.isalpha() and n > 1
            )
        )
    return markers
