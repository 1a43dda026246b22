"""Hash tables of 64-bit keys in NumPy arrays, which take whole arrays of keys.

They use open addressing with linear probing: a key that finds its slot taken tries the
next one.
"""

import numpy as np


class HashTable:
    """Different keys, uint64 and not 0, which marks a free slot.

    The upper bits of a key are its first slot, so they should be as good as random.

    Args:
      bits: The table has 2 ** bits slots.
    """

    def __init__(self, bits: int):
        self.keys = np.zeros(1 << bits, np.uint64)
        self._shift, self._last = np.uint64(64 - bits), np.int64((1 << bits) - 1)

    def insert(self, keys: np.ndarray) -> np.ndarray:
        """Inserts different keys; returns a mask of those that were not there."""
        slots = (keys >> self._shift).view(np.int64)
        added, pending = np.zeros(len(keys), bool), np.arange(len(keys))
        while len(pending):
            free = self.keys[slots] == 0
            # A free slot ends a probe: a key in the table would have been met before.
            added[pending[free]] = True
            # If several keys want one slot, NumPy stores the last; the others find it
            # taken and probe on.
            self.keys[slots[free]] = keys[pending[free]]
            collided = self.keys[slots] != keys[pending]
            pending, slots = pending[collided], (slots[collided] + 1) & self._last
        return added

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The slot of each key; a free one if the table does not have it."""
        slots = (keys >> self._shift).view(np.int64)
        stored = self.keys[slots]
        probing = np.flatnonzero((stored != keys) & (stored != 0))
        while len(probing):
            slots[probing] = (slots[probing] + 1) & self._last
            stored = self.keys[slots[probing]]
            probing = probing[(stored != keys[probing]) & (stored != 0)]
        return slots


class HashSet:
    """A set of 64-bit hashes, in a table that is at most two thirds full.

    36 million pairs take 0.5 GB, and 0.8 GB while the array grows; a Python set of
    strings would take ten times that. Two different pairs with the same hash would be
    taken for duplicates; among 36 million pairs the chance of any is 1 in 28,000.
    """

    def __init__(self, bits: int = 16):
        self._bits, self._count = bits, 0
        self._table = HashTable(bits)

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Adds hashes, uint64 [n]; returns a mask of the new ones.

        Of equal new ones, only the first is set.
        """
        new = np.zeros(len(keys), bool)
        # 0 means free, so a hash of 0 is stored as 1.
        keys, first_index = np.unique(np.maximum(keys, np.uint64(1)), return_index=True)
        while 3 * (self._count + len(keys)) > 2 * len(self._table.keys):
            self._grow()
        added = self._table.insert(keys)
        self._count += int(added.sum())
        new[first_index[added]] = True
        return new

    def _grow(self) -> None:
        """Doubles the table and inserts every hash again."""
        self._bits += 1
        old, self._table = self._table.keys, HashTable(self._bits)
        for begin in range(0, len(old), 1 << 16):  # in parts, to bound memory
            part = old[begin : begin + (1 << 16)]
            self._table.insert(part[part != 0])
