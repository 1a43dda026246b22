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
    """

    def __init__(self, seed: str):
        self.random = random.Random(digest(seed)).random

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.random() < probability

    def pick(self, items):
        """One of the items, each with equal probability."""
        return items[int(self.random() * len(items))]

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
