"""The public names of the package are those that are listed, and exist.

Public are `t2t_jax.__all__` and every name that docs/ideas, the pages on your own idea
and task, experiments/ and notebooks/ import: what a fork is written with. A change of
the list is a change for forks, and stands in CHANGELOG. To accept one:

    python -m tests.test_public_names
"""

import ast
import importlib
import re
from pathlib import Path

import t2t_jax

ROOT = Path(__file__).parent.parent
LISTED = ROOT / "tests/golden/public_names.txt"
CODE = ("docs/ideas/*.py", "experiments/*.py", "notebooks/*.py")
PAGES = ("docs/your-idea.md", "docs/your-task.md")


def imported(code: str) -> set[str]:
    """The names below t2t_jax that a piece of Python imports."""
    return {
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if node.module.split(".")[0] == "t2t_jax"
    }


def public_names() -> list[str]:
    names = {f"t2t_jax.{name}" for name in t2t_jax.__all__}
    for pattern in CODE:
        for file in ROOT.glob(pattern):
            names |= imported(file.read_text(encoding="utf-8"))
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.M):
            names |= imported(block)
    return sorted(names)


def test_they_are_the_listed_ones():
    assert public_names() == LISTED.read_text().split()


def test_each_listed_name_exists():
    for name in LISTED.read_text().split():
        module, _, leaf = name.rpartition(".")
        if not hasattr(importlib.import_module(module), leaf):
            importlib.import_module(name)  # a module


if __name__ == "__main__":
    LISTED.write_text("".join(f"{name}\n" for name in public_names()))
