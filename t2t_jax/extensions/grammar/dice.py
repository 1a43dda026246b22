"""Random choices that are the same on every machine and in every version of Python."""

import bisect
import functools
import hashlib
import random


def digest(text: str) -> int:
    """A 64-bit hash of a text that is the same on every machine, unlike `hash()`."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


class Dice:
    """A source of random choices.

    It uses only `random.random()`, because Python guarantees the sequence of no other
    method of `random` across versions.

    Args:
      seed: Another seed draws others.
      skew: How much more often the first of many items is picked than the last, by the
        law of Zipf and Mandelbrot; 1 picks uniformly.
    """

    def __init__(self, seed: str, skew: float = 1.0):
        self.random = random.Random(digest(seed)).random
        self.skew = skew

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.random() < probability

    def pick(self, items):
        """One of the items."""
        point = self.random()
        if self.skew != 1:  # the k-th of n in proportion to 1 / (k + n / (skew - 1))
            point = (self.skew**point - 1) / (self.skew - 1)
        return items[int(point * len(items))]

    def weigh(self, choices: str) -> str:
        """One of the names in "name weight name weight ...", by integer weights."""
        names, ends = _weights(choices)
        point = self.random() * ends[-1]
        return names[bisect.bisect_right(ends, point)]


@functools.cache
def _weights(choices: str) -> tuple[list[str], list[int]]:
    """The names, and the running totals of their weights."""
    fields = choices.split()
    ends, total = [], 0
    for weight in fields[1::2]:
        total += int(weight)
        ends.append(total)
    return fields[::2], ends
