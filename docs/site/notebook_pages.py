"""Pages of the notebooks: the cells of notebooks/*.ipynb and their stored outputs."""

import base64
import json
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PAGES = Path(__file__).parents[1] / "_notebooks"  # written by each build
SETUP = "# Installs t2t_jax if it is missing."  # begins a cell that says nothing more


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Returns a notebook as Markdown, and its pictures by their file names."""
    parts, pictures = [], {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif source and not source.startswith(SETUP):
            parts.append(f"```python\n{source}\n```")
            for output in cell["outputs"]:
                if output["output_type"] == "stream":
                    text = "".join(output["text"]).rstrip()
                    parts.append(f"```text\n{text}\n```")
                else:
                    name = f"{path.stem}-{len(pictures) + 1}.png"
                    pictures[name] = base64.b64decode(output["data"]["image/png"])
                    parts.append(f"![What the cell draws]({name})")
    return "\n\n".join(parts) + "\n", pictures


def listing() -> str:
    """The title and the first paragraph of each notebook."""
    parts = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        title, opening, *_ = page(path)[0].split("\n\n")
        title = title.removeprefix("# ")
        parts.append(f"**[{title}](_notebooks/{path.stem}.md)**\\\n{opening}")
    return "\n\n".join(parts)


def write() -> None:
    """Writes a page for each notebook, and removes those that are gone."""
    PAGES.mkdir(exist_ok=True)
    files = {}
    for path in NOTEBOOKS.glob("*.ipynb"):
        text, pictures = page(path)
        files |= pictures | {f"{path.stem}.md": text.encode()}
    for old in PAGES.iterdir():
        if old.name not in files:
            old.unlink()
    for name, content in files.items():
        place = PAGES / name
        # An unchanged page is not built again.
        if not place.exists() or place.read_bytes() != content:
            place.write_bytes(content)
