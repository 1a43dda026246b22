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


def test_each_ipynb_is_in_step():
    made = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert made == {path.stem for path in NOTEBOOKS} != set()
    for path in NOTEBOOKS:
        there = path.with_suffix(".ipynb").read_text(encoding="utf-8")
        assert there == ipynb(path), (
            f"{path.stem}.ipynb is not what {path.name} makes; change the .py, then "
            "run: python -m tests.test_notebooks"
        )


@pytest.fixture(scope="module")
def quick(text, tmp_path_factory):
    """The environment of notebooks that train for seconds, in a folder they share."""
    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "quick.py").write_text(CONFIG.format(text=str(text)), encoding="utf-8")
    return os.environ | {
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
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, path, pictures],
        cwd=tmp_path,
        env=quick,
        timeout=600,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    assert list(pictures.iterdir()), "no picture was drawn"


if __name__ == "__main__":
    for path in NOTEBOOKS:
        path.with_suffix(".ipynb").write_text(ipynb(path), encoding="utf-8")
