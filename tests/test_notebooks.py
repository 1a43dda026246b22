"""The notebooks run from top to bottom and draw; each .ipynb is made from its .py.

Colab opens .ipynb files only. They are made, without outputs, by
`python -m tests.test_notebooks`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jupytext
import pytest

from tests.small_run import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
# A script draws without a screen; that every figure holds something, and that no letter
# lacks a glyph (a warning), is looked at when it has ended.
RUNNER = """
import pathlib, runpy, sys, warnings
import matplotlib.pyplot as plt
runpy.run_path(sys.argv[1], run_name="__main__")
warnings.simplefilter("error")
for number in plt.get_fignums():
    figure = plt.figure(number)
    drawn = any(ax.has_data() or ax.texts for ax in figure.axes)
    assert drawn, f"figure {number} is empty"
    figure.savefig(pathlib.Path(sys.argv[2]) / f"{number}.png")
"""
CONFIG = """
from tests.small_run import FIELDS
from t2t_jax import config as fields

def get_config():
    config = fields.defaults()
    for name, values in FIELDS.items():
        config[name].update(values)
    config.data.dir = {text!r}
    return config
"""


def ipynb(path: Path) -> str:
    """The notebook of a script: the same bytes whenever and wherever it is made."""
    cells = []
    for number, cell in enumerate(jupytext.read(path, fmt="py:percent").cells):
        made = {"cell_type": cell.cell_type, "id": f"cell-{number}", "metadata": {}}
        if cell.cell_type == "code":
            made |= {"execution_count": None, "outputs": []}
        cells.append(made | {"source": cell.source.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def setup_cell(path: Path) -> str:
    cells = jupytext.read(path, fmt="py:percent").cells
    return next(cell.source for cell in cells if cell.cell_type == "code")


def run(code, *arguments, **options):
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(
        words, stderr=subprocess.PIPE, text=True, timeout=600, **options
    )


def test_all_have_an_ipynb_and_begin_with_one_cell():
    made = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert made == {path.stem for path in NOTEBOOKS} != set()
    (cell,) = {setup_cell(path) for path in NOTEBOOKS}
    assert cell.startswith("# Installs t2t_jax if it is missing.")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_ipynb_is_in_step(path):
    made = path.with_suffix(".ipynb")
    there = made.read_text(encoding="utf-8") if made.exists() else ""
    assert there == ipynb(path), (
        f"{made.name} is not what {path.name} makes; change the .py, then run: "
        "python -m tests.test_notebooks"
    )


@pytest.fixture(scope="module")
def quick(text, tmp_path_factory):
    """The environment of notebooks that train for seconds, in a folder they share."""
    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "quick.py").write_text(CONFIG.format(text=str(text)), encoding="utf-8")
    return {
        "MPLBACKEND": "Agg",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
        "PYTHONPATH": str(ROOT),
        "T2T_JAX_NOTEBOOK_CONFIG": str(folder / "quick.py"),
        "T2T_JAX_NOTEBOOK_STEPS": "20",
        "T2T_JAX_NOTEBOOK_SEEDS": "2",
        "T2T_JAX_NOTEBOOK_WORKDIR": str(folder / "shared"),
        "T2T_JAX_NOTEBOOK_IDEAS": str(folder),
    }


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_draws(path, quick, tmp_path):
    if "from IPython" in path.read_text(encoding="utf-8"):
        pytest.importorskip("IPython", reason="needs pip install -e '.[notebooks]'")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    environment = os.environ | quick
    done = run(RUNNER, path, pictures, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-5_000:]
    assert list(pictures.iterdir()), "no picture was drawn"


def test_what_is_missing_is_said(tmp_path):
    """Neither installed nor in a checkout, and nowhere to clone from."""
    hide = "import importlib.util; importlib.util.find_spec = lambda name: None\n"
    done = run(hide + setup_cell(NOTEBOOKS[0]), cwd=tmp_path)
    assert done.returncode
    assert "set REPOSITORY" in done.stderr


if __name__ == "__main__":
    for path in NOTEBOOKS:
        path.with_suffix(".ipynb").write_text(ipynb(path), encoding="utf-8")
