"""Pins every preset, field by field, and the public names, in `tests/golden/`.

A change that is meant is accepted with `python -m tests.test_golden`, and seen in the
diff of the files it writes.

Public are `t2t_jax.__all__` and every name that docs/ideas, the pages on your own idea
and task, experiments/*.py and notebooks/ import: what a fork is written with. A change
of the list is a change for forks, and stands in CHANGELOG.
"""

import ast
import importlib
import json
import re
from pathlib import Path
from unittest import mock

import pytest

import t2t_jax
from t2t_jax import load_config
from t2t_jax.commands.config_files import config_name, shipped_names
from t2t_jax.tools.plan.describe import describe
from tests.small_run import ROOT

FOLDER = ROOT / "tests" / "golden"
# Every file of configs/ as it is, except for those that need an argument, and these,
# which take one.
NEED_ARGUMENTS = {"finetune", "student"}
WITH_ARGUMENTS = [
    *("configs/big.py:en-fr", "configs/multi30k.py:published"),
    *("configs/low_resource.py:half_hour", "configs/multi30k.py:half_hour"),
    "configs/low_resource.py:1500",
    *("configs/lstm.py:multi30k", "configs/conv.py:multi30k"),
    *("configs/bytenet.py:multi30k", "configs/neural_gpu.py:multi30k"),
    *("configs/parse.py:semi", "configs/parse_tiny.py:de", "configs/lm.py:small"),
]
LISTED = FOLDER / "public_names.txt"
CODE = ("docs/ideas/*.py", "experiments/*.py", "notebooks/*.py")
PAGES = ("docs/your-idea.md", "docs/your-task.md")
ACCEPT = "if that is meant, accept it: python -m tests.test_golden"
# What a config comes to on any machine. `paper` and the lengths of texts say no more.
PINNED = ("config", "parameters", "learning_rate", "batches", "run", "decoding")
# Rates are float32, of which a relative difference of 1e-6 is a few units in the last
# place: another XLA or processor may round a power differently, and did nothing wrong.
RELATIVE = 1e-6


def presets() -> list[str]:
    names = [name for name in shipped_names("configs") if name not in NEED_ARGUMENTS]
    return [*(f"configs/{name}.py" for name in names), *WITH_ARGUMENTS]


def file_of(preset: str) -> Path:
    return FOLDER / f"{config_name(preset)}.json"


def flat(value, name="") -> dict:
    """{'config.model.layers': 6, ...}: one line a field, lists whole."""
    if not isinstance(value, dict):
        return {name: value}
    return {
        key: leaf
        for part, inner in value.items()
        for key, leaf in flat(inner, f"{name}.{part}" if name else part).items()
    }


def pinned(preset: str) -> dict:
    # Counting FLOPs takes longest, and is not pinned.
    with mock.patch("t2t_jax.tools.plan.describe._flops", return_value={}):
        told = describe(load_config(ROOT / preset))
    return flat({part: told[part] for part in PINNED})


def write(fields: dict, file: Path) -> None:
    lines = (f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in fields.items())
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def same(name: str, old, new) -> bool:
    if name.startswith("learning_rate.") and isinstance(new, float):
        return new == pytest.approx(old, rel=RELATIVE, abs=0)
    return type(old) is type(new) and old == new


def differences(old: dict, new: dict) -> list[str]:
    """A line for each field that changed, came or went."""
    absent = "(not there)"
    return [
        f"{name}: {old.get(name, absent)!r} -> {new.get(name, absent)!r}"
        for name in dict.fromkeys([*old, *new])
        if name not in old or name not in new or not same(name, old[name], new[name])
    ]


@pytest.mark.parametrize("preset", presets())
def test_a_preset_is_what_it_was(preset):
    file = file_of(preset)
    if not file.is_file():
        pytest.fail(f"{preset} has no {file.relative_to(ROOT)}; {ACCEPT}", False)
    old = json.loads(file.read_text(encoding="utf-8"))
    if changed := differences(old, pinned(preset)):
        told = "\n  ".join(changed)
        pytest.fail(f"{preset} is not what it was:\n  {told}\n{ACCEPT}", False)


def test_no_golden_file_is_left_of_a_preset_that_is_gone():
    assert set(FOLDER.glob("*.json")) == {file_of(preset) for preset in presets()}


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


def test_the_public_names_are_the_listed_ones_and_exist():
    listed = LISTED.read_text().split()
    assert public_names() == listed, ACCEPT
    for name in listed:
        module, _, leaf = name.rpartition(".")
        if not hasattr(importlib.import_module(module), leaf):
            importlib.import_module(name)  # a module


if __name__ == "__main__":
    for preset in presets():
        write(pinned(preset), file_of(preset))
        print(file_of(preset).relative_to(ROOT))
    LISTED.write_text("".join(f"{name}\n" for name in public_names()))
