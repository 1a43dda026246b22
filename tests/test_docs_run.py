"""The code of the documentation runs: what is cheap always, the rest by slow tests.

Commands run as they stand on the page, in a folder with text and trained workdirs of
the names that the page uses; only models and the number of steps are small.
"""

import ast
import gzip
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import t2t_jax
from t2t_jax.io import ideas
from t2t_jax.model.positions import POSITIONS
from t2t_jax.tools.experiment import Experiment
from tests.documents import PAGES, PYTHON, TO_RUN, Block, blocks
from tests.small_run import FIELDS, ROOT, config_for

TEXTS = ("train", "dev", "test", "val", "test_2016_flickr")  # names in the pages


def needed_package(block: Block) -> str:
    """The package without which a block of a tutorial is not run here, or ""."""
    match = re.fullmatch(r"run by: tests/test_docs_run.py, with (\w+)", block.mark)
    return match[1] if match else ""


def is_cheap(block: Block) -> bool:
    """Needs no other process and no trained model."""
    return block.language == "python" and "runs/" not in block.code


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_can_be_read_and_finds_its_imports(block):
    for node in ast.walk(ast.parse(block.code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                entire = f"{node.module}.{name}"  # it may be a module of a package
                assert hasattr(module, name) or importlib.util.find_spec(entire), entire


@pytest.mark.parametrize("block", [b for b in TO_RUN if is_cheap(b)], ids=str)
def test_python_runs(block):
    """With the idea of the pages, as if a command had been given `--ideas`."""
    names: dict = {"__name__": "page"}
    with mock.patch.dict(POSITIONS), mock.patch.dict(ideas.imported):
        ideas.load(str(ROOT / "docs/ideas/kerple.py"))
        exec(compile(block.code, str(block), "exec"), names)
        if "get_experiment" in names:
            experiment = names["get_experiment"]()
            assert isinstance(experiment, Experiment)
            assert len(experiment.rows) >= 2
    del sys.modules["kerple"]


@pytest.fixture
def workplace(tmp_path, text):
    """A folder as the pages' commands expect it: text, the idea, a small `python`."""
    for name in ("mine", "news", "multi30k", "tatoeba"):
        (tmp_path / name).mkdir()
        for part in TEXTS:
            source = part if part in ("train", "dev") else "test"
            for language in ("en", "de"):
                copy = tmp_path / name / f"{part}.{language}"
                shutil.copy(text / f"{source}.{language}", copy)
    for language in ("en", "de"):
        shutil.copy(text / f"test.{language}", tmp_path / f"news.{language}")
    shutil.copy(text / "test.en", tmp_path / "source.en")
    with gzip.open(tmp_path / "big.en.gz", "wb") as big:
        big.write((text / "test.en").read_bytes())
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    fields = {s: dict(values) for s, values in FIELDS.items()}
    # Whole paths, which hold whatever `config.data.dir` a page names.
    fields["data"] |= {n: tmp_path / "mine" / n for n in ("train", "dev", "test")}
    # Translations have to end by themselves, or a student has no text.
    fields["train"] |= {"steps": 160, "eval_every": 160, "save_every": 40}
    fields["train"] |= {"log_every": 40, "warmup": 20, "peak_learning_rate": 0.01}
    small = [
        f"--config.{section}.{name}={value}"
        for section, values in fields.items()
        for name, value in values.items()
    ]
    # Before the page's own flags, which come last and so count; but few steps.
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        "words = sys.argv[1:]\n"
        "if {'t2t_jax.main', 'main', 'prepare'} & {*words[1:3]}:\n"
        "    at = 1 + [w.startswith('--config=') for w in words].index(True)\n"
        f"    words[at:at] = {small}\n"
        f"    words.append('--config.train.steps={fields['train']['steps']}')\n"
        "os.execv(sys.executable, [sys.executable, *words])\n"
    )
    python.chmod(0o755)
    return tmp_path


def needed(block: Block) -> set[str]:
    """The workdirs that a block reads and does not train itself."""
    trained = set()
    for words in block.commands if block.language == "bash" else ():
        if {"t2t_jax.main", "main", "distill"} & {*words}:
            trained |= {word[10:] for word in words if word.startswith("--workdir=")}
    if re.search(r"^train\(", block.code, re.MULTILINE):
        trained |= {"runs/tiny"}
    trained |= {*re.findall(r'\.save\("(runs/\w+)"\)', block.code)}
    return {*re.findall(r"\bruns/[\w-]+|\bDIR\b", block.code)} - trained


def run(block: Block, folder: Path) -> None:
    """Runs a block in a folder as its reader would type it."""
    if block.language == "python":
        code = f"exec(compile({block.code!r}, {str(block)!r}, 'exec'))"
        words = [sys.executable, "-c", code]
    else:
        words = ["bash", "-euo", "pipefail", "-c", block.code]
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    ended = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == 0, f"{block}\n{ended.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.parent.name == "tutorials"], ids=lambda p: p.stem
)
def test_a_tutorial_runs_in_order(page, workplace):
    """Each workdir that a block reads was made by a block before it."""
    for block in blocks(page):
        package = needed_package(block)
        if block in TO_RUN or (package and importlib.util.find_spec(package)):
            run(block, workplace)


@pytest.mark.slow
@pytest.mark.parametrize(
    "block",
    [b for b in TO_RUN if not is_cheap(b) and not b.page.startswith("docs/tutorials/")],
    ids=str,
)
def test_blocks_run(block, workplace, trained, text, monkeypatch):
    for name in needed(block):
        shutil.copytree(trained[0], workplace / name)
    if block.language != "python":
        return run(block, workplace)
    monkeypatch.chdir(workplace)
    small = config_for(text)
    monkeypatch.setattr(t2t_jax, "load_config", lambda *_, **__: small, raising=False)
    exec(compile(block.code, str(block), "exec"), {"__name__": "page"})
    return None
