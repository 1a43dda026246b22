"""Position encodings, added to the embeddings (section 3.5)."""

import numpy as np


def sinusoids(length: int, width: int) -> np.ndarray:
    """Returns the paper's table: sin at 2i, cos at 2i+1 of pos / 10000^(2i / width).

    Returns:
      float32 [length, width], computed in float64.
    """
    positions = np.arange(length)[:, None]
    angles = positions / 10000 ** (np.arange(0, width, 2) / width)
    table = np.empty((length, width), np.float32)
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)
    return table


POSITIONS = {"sinusoid": None, "learned": None}
