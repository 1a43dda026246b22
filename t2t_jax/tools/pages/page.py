"""Bundles a page: one HTML file made of a template, a style sheet, modules and data.

All but a loader is compressed: readable, the program would be most of a page. The
modules are ordinary ES modules. A page opened from disk may not import files, so
they are put one after the other into a single script, imported ones first: each becomes
a function that is called at once and returns what the module exports. Their names stay
apart, as in files of their own.
"""

import base64
import gzip
import html
import json
import math
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from t2t_jax.io.errors import UserError

# --------------------------------------------------------------------------------- data
# An array becomes a blob of one byte a number, next to the scale that turns the bytes
# back into values, and the document holds a reference to it. A page decompresses a blob
# when a view first asks for it. All that a user wrote is inside gzip and base64, so no
# text can end the element that carries it.

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
        if not np.isfinite(values).all():
            raise UserError(
                "an array of a page holds NaN or infinity; give finite numbers"
            )
        if not signed and (values < 0).any():
            raise UserError(
                "an array of a page has negative values; add it with signed=True"
            )
        if by_row and scale is not None:
            raise UserError("got both scale and by_row; give one of them")
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


# ------------------------------------------------------------------------------ program

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\.[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)


def page(
    payload: Payload,
    main: str = "main.js",
    styles: Sequence[str] = ("style.css",),
    served: bool = False,
) -> str:
    """Returns the HTML of a page that shows `payload`.

    Args:
      payload: the document, whose "title" names the page, and its arrays.
      main: the module that starts the page.
      styles: its style sheets.
      served: it may send requests to the server that it comes from, and to no other.
    """
    pieces = {
        "title": html.escape(str(payload.content.get("title", ""))),
        "connections": "connect-src 'self'" if served else "connect-src 'none'",
        "program": pack(
            {
                "packed-style": "\n".join(map(read, styles)).encode(),
                "packed-program": bundle(main).encode(),
            }
        ),
        "payload": pack(payload.packed()),
        "loader": bundle("loader.js"),
    }
    # One pass: what is put in is not searched for further places.
    return re.sub(r"\{\{(\w+)\}\}", lambda m: pieces[m[1]], read("template.html"))


def read(name: str) -> str:
    """Returns the text of one of the page's files."""
    folder = resources.files("t2t_jax.tools.pages") / "page"
    return (folder / name).read_text(encoding="utf-8")


def bundle(main: str) -> str:
    """Returns a module and all that it imports as one script."""
    modules = "\n\n".join(map(_as_function, in_order(main)))
    return f"const modules = {{}};\n\n{modules}"


def _as_function(name: str) -> str:
    """Returns a module as a function's call, which keeps its exports in `modules`."""
    source = read(name).strip()
    exports = ", ".join(export[1] for export in _EXPORT.findall(source))
    body = _EXPORT.sub(r"\1 \2", source)
    body = _IMPORT.sub(
        lambda match: f'const {match[1]} = modules["{_joined(name, match[2])}"];', body
    )
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();'


def in_order(main: str) -> list[str]:
    """Returns the names of a module and of what it imports, imported ones first."""
    ordered: list[str] = []

    def visit(name: str, open_: tuple[str, ...]) -> None:
        if name in open_:
            raise ValueError(f"modules import each other: {' > '.join([*open_, name])}")
        if name in ordered:
            return
        for _, imported in _IMPORT.findall(read(name)):
            visit(_joined(name, imported), (*open_, name))
        ordered.append(name)

    visit(main, ())
    return ordered


def _joined(name: str, imported: str) -> str:
    """Resolves `imported`, a path relative to the module `name`."""
    parts = list(PurePosixPath(name).parent.parts)
    for part in PurePosixPath(imported).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def frame(content: str, title: str) -> str:
    """Returns a page in a frame of its own: in a notebook, its styles do not mix."""
    return (
        f'<iframe srcdoc="{html.escape(content)}" title="{html.escape(title)}" '
        'style="width: 100%; height: 46rem; border: 1px solid #8888"></iframe>'
    )
