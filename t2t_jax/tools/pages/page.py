"""Bundles a page: one HTML file made of a template, a style sheet, modules and data.

All but a loader is compressed: readable, the program would be most of a page. The
modules are ordinary ES modules. A page opened from disk may not import files, so
they are put one after the other into a single script, imported ones first: each becomes
a function that is called at once and returns what the module exports. Their names stay
apart, as in files of their own.
"""

import html
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import PurePosixPath

from t2t_jax.tools.pages.payload import Payload, pack

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\.[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)


def page(
    payload: Payload, main: str = "main.js", styles: Sequence[str] = ("style.css",)
) -> str:
    """Returns the HTML of a page that shows `payload`.

    Args:
      payload: the document, whose "title" names the page, and its arrays.
      main: the module that starts the page.
      styles: its style sheets.
    """
    pieces = {
        "title": html.escape(str(payload.content.get("title", ""))),
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
        lambda found: f'const {found[1]} = modules["{_joined(name, found[2])}"];', body
    )
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();'


def in_order(main: str) -> list[str]:
    """Returns the names of a module and of what it imports, imported ones first."""
    done: list[str] = []

    def visit(name: str, open_: tuple[str, ...]) -> None:
        if name in open_:
            raise ValueError(f"modules import each other: {' > '.join([*open_, name])}")
        if name in done:
            return
        for _, imported in _IMPORT.findall(read(name)):
            visit(_joined(name, imported), (*open_, name))
        done.append(name)

    visit(main, ())
    return done


def _joined(name: str, imported: str) -> str:
    """Resolves `imported`, a path relative to the module `name`."""
    parts = list(PurePosixPath(name).parent.parts)
    for part in PurePosixPath(imported).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)
