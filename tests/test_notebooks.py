"""The notebooks run from top to bottom and draw; each .ipynb is made from its .py.

Colab and GitHub open .ipynb files only. `python -m tests.test_notebooks` makes them and
keeps the outputs of cells that have not changed. `--run NAME ...` (without a name: all)
runs the notebooks and stores their outputs; that needs '.[notebooks,peers]', and
minutes of two CPU cores for each.
"""

import argparse
import ast
import base64
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jupytext
import pytest

from tests.small_run import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
LARGEST = 300_000  # bytes of a notebook
# Outputs that are not stored: another machine, or a busy one, prints others.
OF_MACHINE = (
    r"^machine  .*\n",
    r"^(?:tokenizer|prepared text) found in .*\n",
    r"  tokens/s .*$",
    r"^the first step took .*\n",
    r"^time of the run: .*\n(?:\w+ +[\d,.]+ s.*\n)+",
    r"^\w+ +(?:tokens_per_second|seconds|seconds_per_step) .*\n",
)
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


def ipynb(path: Path, outputs: dict[str, list]) -> str:
    """The notebook of a script; the outputs are those of cells with these sources."""
    cells = []
    for number, cell in enumerate(jupytext.read(path, fmt="py:percent").cells):
        cell_json = {
            "cell_type": cell.cell_type,
            "id": f"cell-{number}",
            "metadata": {},
        }
        if cell.cell_type == "code":
            cell_json |= {
                "execution_count": None,
                "outputs": outputs.get(cell.source, []),
            }
        cells.append(cell_json | {"source": cell.source.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def code_cells(text: str) -> dict[str, list]:
    """The outputs of each code cell of a notebook, by the cell's source."""
    cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    return {"".join(cell["source"]): cell["outputs"] for cell in cells}


def cells_that_show(sources) -> list[str]:
    """The cells that call, outside a function, what prints, displays or draws.

    A function of the notebook that calls such a function counts as one.
    """
    shows, showing = {"print", "display", "subplots", "plot"}, []
    for source in sources:
        outside = {True: [], False: []}
        for part in ast.parse(source).body:
            outside[not isinstance(part, ast.FunctionDef | ast.ClassDef)].append(part)
        shows |= {part.name for part in outside[False] if shows & calls([part])}
        if shows & calls(outside[True]):
            showing.append(source)
    return showing


def calls(parts: list[ast.stmt]) -> set[str]:
    nodes = [node for part in parts for node in ast.walk(part)]
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    return {getattr(f, "id", getattr(f, "attr", None)) for f in called}


def run(path: Path, folder: Path) -> dict[str, list]:
    """Runs a notebook whose workdirs are in a folder; returns the outputs to store."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.reads(ipynb(path, {}), as_version=4)
    folders = {
        "T2T_JAX_NOTEBOOK_WORKDIR": str(folder / "runs/tiny"),
        "T2T_JAX_NOTEBOOK_IDEAS": str(folder / "runs"),
    }
    resources = {"metadata": {"path": ROOT / "notebooks"}}
    # A busy machine delivers outputs late; by default they would be missing.
    patience = {"iopub_timeout": 300, "raise_on_iopub_timeout": True}
    client = NotebookClient(notebook, timeout=None, resources=resources, **patience)
    client.execute(env=os.environ | folders | {"PYTHONPATH": str(ROOT)})
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return {cell.source: readable(cell.outputs, [folder, ROOT]) for cell in cells}


def readable(outputs: list, folders: list[Path]) -> list:
    """Outputs as stored: without warnings, times, paths, and with small pictures.

    A page in a frame, which GitHub does not show, leaves its one line of text.
    """
    stored, text = [], ""
    for output in outputs:
        if output["output_type"] == "stream":
            if output["name"] == "stdout":
                text += output["text"]
        elif "image/png" in output["data"]:
            picture = {"image/png": smaller(output["data"]["image/png"])}
            stored.append(picture)
        else:
            text += output["data"]["text/plain"] + "\n"
    for folder in folders:
        text = text.replace(f"{folder}/", "").replace(str(folder), ".")
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}/tmp\w+/", "", text)
    text = re.sub("|".join(OF_MACHINE), "", text, flags=re.MULTILINE)
    stored = [
        {"output_type": "display_data", "metadata": {}, "data": data} for data in stored
    ]
    if text:
        lines = text.splitlines(keepends=True)
        stored.insert(0, {"output_type": "stream", "name": "stdout", "text": lines})
    return stored


def smaller(picture: str) -> str:
    """A PNG in base64 with 48 colors, which are enough for plots."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    content = io.BytesIO()
    method = Image.Quantize.MAXCOVERAGE  # it keeps the colors of thin lines
    image = image.quantize(48, method, kmeans=1, dither=Image.Dither.NONE)
    image.save(content, "PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode()


def write(names: list[str], rerun: bool) -> None:
    """Writes each .ipynb; runs those of these names again, 3, which trains, first."""
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(NOTEBOOKS, key=lambda path: path.stem[0] != "3"):
            place = path.with_suffix(".ipynb")
            outputs = code_cells(place.read_text("utf-8")) if place.exists() else {}
            if rerun and (not names or path.stem in names):
                outputs = run(path, Path(folder).resolve())
            text = ipynb(path, outputs)
            place.write_text(text, encoding="utf-8")
            cells = code_cells(text)
            if lost := [cell for cell in cells_that_show(cells) if not cells[cell]]:
                print(
                    f"{place.name}: {len(lost)} cells show nothing, since they were "
                    f"changed or never run: python -m tests.test_notebooks --run "
                    f"{path.stem}"
                )


def test_each_ipynb_is_in_step_and_has_its_outputs():
    stems = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert stems == {path.stem for path in NOTEBOOKS} != set()
    for path in NOTEBOOKS:
        stored = path.with_suffix(".ipynb").read_text(encoding="utf-8")
        outputs = code_cells(stored)
        assert stored == ipynb(path, outputs), (
            f"{path.stem}.ipynb is not what {path.name} makes; change the .py, then "
            "run: python -m tests.test_notebooks"
        )
        lost = [source for source in cells_that_show(outputs) if not outputs[source]]
        assert not lost, (
            f"cells of {path.stem}.ipynb have no output: run python -m "
            f"tests.test_notebooks --run {path.stem}\n\n" + "\n\n".join(lost)
        )
        size = len(stored.encode())
        assert size <= LARGEST, f"{path.stem}.ipynb has {size:,} bytes"
        shown = json.dumps(list(outputs.values()), ensure_ascii=False)
        assert not re.search(r"/(?:home|root|tmp|Users|var|work)/|[Ww]arning:", shown)


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
    ended = subprocess.run(
        [sys.executable, "-c", RUNNER, path, pictures],
        cwd=tmp_path,
        env=quick,
        timeout=600,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-5_000:]
    assert list(pictures.iterdir()), "no picture was drawn"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs="*", metavar="NAME", help="run these, or all")
    flags = parser.parse_args()
    stems = [path.stem for path in NOTEBOOKS]
    if unknown := {*(flags.run or ())} - {*stems}:
        parser.error(f"no notebook {', '.join(unknown)}; there are {', '.join(stems)}")
    write(flags.run or [], rerun=flags.run is not None)
