"""Pages of the notebooks: the cells of notebooks/*.py, without being run."""

import re
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "notebooks"
PAGES = Path(__file__).parents[1] / "_notebooks"  # written by each build
SETUP = "# Installs t2t_jax if it is missing."  # begins a cell that says nothing more
CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)


def page(script: str) -> str:
    """Returns a notebook in the percent format as Markdown."""
    _, *parts = CELL.split(script)
    cells = []
    for kind, body in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in kind:
            cells.append(re.sub(r"^# ?", "", body, flags=re.MULTILINE).strip())
        elif body.strip() and not body.startswith(SETUP):
            cells.append(f"```python\n{body.strip()}\n```")
    return "\n\n".join(cells) + "\n"


def listing() -> str:
    """The title and the first paragraph of each notebook."""
    parts = []
    for path in sorted(SCRIPTS.glob("*.py")):
        title, opening, *_ = page(path.read_text(encoding="utf-8")).split("\n\n")
        title = title.removeprefix("# ")
        parts.append(f"**[{title}](_notebooks/{path.stem}.md)**\\\n{opening}")
    return "\n\n".join(parts)


def write() -> None:
    """Writes a page for each notebook, and removes those that are gone."""
    PAGES.mkdir(exist_ok=True)
    scripts = {f"{path.stem}.md": path for path in SCRIPTS.glob("*.py")}
    for old in PAGES.glob("*.md"):
        if old.name not in scripts:
            old.unlink()
    for name, path in scripts.items():
        text, place = page(path.read_text(encoding="utf-8")), PAGES / name
        # An unchanged page is not built again.
        if not place.exists() or place.read_text(encoding="utf-8") != text:
            place.write_text(text, encoding="utf-8")
