"""The data of a page: a JSON document and arrays of bytes, compressed into its HTML.

An array becomes a blob of one byte a number, beside the scale that turns the bytes
back into values, and the document holds a reference to it. A page decompresses a blob
when a view first asks for it. All that a user wrote is inside gzip and base64, so no
text can end the element that carries it.
"""

import base64
import gzip
import json
import math
from typing import Any

import numpy as np

from t2t_jax.io.errors import UserError

DIGITS = 5  # significant digits of a number in the document
LIMITS = {"u1": 255, "i1": 127}


class Payload:
    """Collects a page's document and its arrays.

    Attributes:
      content: the document, made of dicts, lists, text and numbers.
      blobs: the bytes of each array, in the order in which they were added.
    """

    def __init__(self, content: dict[str, Any] | None = None):
        self.content = content if content is not None else {}
        self.blobs: list[bytes] = []

    def add(
        self,
        array: Any,
        *,
        signed: bool = False,
        scale: float | None = None,
        by_row: bool = False,
    ) -> dict[str, Any]:
        """Adds an array and returns the reference that stands for it in the document.

        Args:
          array: numbers of any shape; not negative unless `signed`.
          signed: store int8 instead of uint8.
          scale: the value of one step, such as 1/255 for weights up to 1; larger
            values are cut off. By default the largest value is the largest step.
          by_row: give each index of the first axis a scale of its own, so that rows
            of small values keep their digits.
        """
        values = np.asarray(array, np.float64)
        kind = "i1" if signed else "u1"
        low = -LIMITS[kind] if signed else 0
        _check(values, signed, by_row and scale is not None)
        if scale is not None:
            scales = np.float64(scale)
        else:
            axes = tuple(range(1, values.ndim)) if by_row else None
            scales = np.abs(values).max(axis=axes, initial=0) / LIMITS[kind]
        # Rounded as in the document: bytes are steps of the scale that the page reads.
        scales = np.array([_rounded(s) for s in np.ravel(scales)])
        steps = scales.reshape(-1, *[1] * (values.ndim - 1)) if by_row else scales
        raw = np.rint(values / np.where(steps > 0, steps, 1))
        raw = np.clip(raw, low, LIMITS[kind]).astype(kind)
        self.blobs.append(raw.tobytes())
        return {
            "blob": len(self.blobs) - 1,
            "shape": list(values.shape),
            "kind": kind,
            "scale": scales.tolist() if by_row else float(scales[0]),
        }

    def packed(self) -> dict[str, bytes]:
        """Returns the document and the arrays as bytes, by the ids of elements."""
        text = json.dumps(
            rounded(self.content),
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )
        return {"payload": text.encode()} | {
            f"blob-{index}": blob for index, blob in enumerate(self.blobs)
        }


def _check(values: np.ndarray, signed: bool, two_scales: bool) -> None:
    if not np.isfinite(values).all():
        raise UserError("an array of a page holds NaN or infinity; give finite numbers")
    if not signed and (values < 0).any():
        raise UserError(
            "an array of a page has negative values; add it with signed=True"
        )
    if two_scales:
        raise UserError("got both scale and by_row; give one of them")


def pack(named: dict[str, bytes]) -> str:
    """Returns the elements of a page that carry some bytes, by their ids."""
    return "\n".join(
        f'<script type="application/octet-stream" id="{name}">{_packed(data)}</script>'
        for name, data in named.items()
    )


def rounded(value: Any) -> Any:
    """Returns a document with 5 significant digits a number, null if not finite."""
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return rounded(value.tolist())
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, np.generic):
        return rounded(value.item())
    if isinstance(value, float):
        return _rounded(value) if math.isfinite(value) else None
    return value


def _rounded(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def _packed(data: bytes) -> str:
    # Without the time of day, the same explanation is the same file.
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
