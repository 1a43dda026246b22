"""Pins every preset, field by field, and the public names, in `tests/golden/`.

A change that is meant is accepted with `python -m tests.test_golden`, and seen in the
diff of the files it writes.

`presets.json` has all of configs/base.py, and of each other preset what differs from
its parent: `without`, the names or groups of names that it lacks, and its own fields.

Public are `t2t_jax.__all__` and every name that docs/ideas, the pages on Python, your
own idea and task, experiments/*.py and notebooks/ import: what a fork is written with.
A change of the list is a change for forks, and stands in CHANGELOG.
"""

import ast
import collections
import importlib
import json
import re
from unittest import mock

import pytest

import t2t_jax
from t2t_jax import load_config
from t2t_jax.commands.config_files import shipped_names
from t2t_jax.tools.plan.describe import describe
from tests.small_run import ROOT

PRESETS = ROOT / "tests" / "golden" / "presets.json"
BASE = "configs/base.py"
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
LISTED = ROOT / "tests" / "golden" / "public_names.txt"
CODE = ("docs/ideas/*.py", "experiments/*.py", "notebooks/*.py")
PAGES = ("docs/from-python.md", "docs/your-idea.md", "docs/your-task.md")
ACCEPT = "if that is meant, accept it: python -m tests.test_golden"
# What a config comes to on any machine. `paper` and the lengths of texts say no more.
PINNED = ("config", "parameters", "learning_rate", "batches", "run", "decoding")
# Groups of names that a preset has as its parent has them, or all of its own.
WITHOUT, WHOLE = "without", ("parameters.weights", "learning_rate.rates")
# Rates are float32, of which a relative difference of 1e-6 is a few units in the last
# place: another XLA or processor may round a power differently, and did nothing wrong.
RELATIVE = 1e-6


def presets() -> list[str]:
    names = [name for name in shipped_names("configs") if name not in NEED_ARGUMENTS]
    return [*(f"configs/{name}.py" for name in names), *WITH_ARGUMENTS]


def parent(preset: str) -> str:
    """The preset that another one is stored as differences from."""
    file, _, argument = preset.partition(":")
    full = file.replace("_tiny", "")
    if argument:
        return file
    return full if full != file and (ROOT / full).exists() else BASE


def flat(value, name="") -> dict:
    """{'config.model.layers': 6, ...}: one line a field, lists whole."""
    if not isinstance(value, dict):
        return {name: value}
    return {
        key: leaf
        for part, inner in value.items()
        for key, leaf in flat(inner, f"{name}.{part}" if name else part).items()
    }


def by_axes(weights: dict[str, dict]) -> dict:
    """Shapes by the names of their axes, with the size of each axis and the layers.

    An axis that has several sizes has its own in each weight: `hidden 96`.
    """
    sizes, layers = collections.defaultdict(set), collections.defaultdict(set)
    for name, weight in weights.items():
        layers[name.partition(".")[0]].add(weight["layers"])
        for axis, size in zip(weight["axes"], weight["shape"], strict=True):
            sizes[axis].add(size)

    def shape(name: str, weight: dict) -> str:
        axes = ", ".join(
            axis if len(sizes[axis]) == 1 else f"{axis} {size}"
            for axis, size in zip(weight["axes"], weight["shape"], strict=True)
        )
        stack = layers[name.partition(".")[0]]
        return axes if len(stack) == 1 else f"{weight['layers']} of {axes}"

    return {
        "sizes": {axis: min(n) for axis, n in sizes.items() if len(n) == 1},
        "layers": {part: min(n) for part, n in layers.items() if len(n) == 1},
        "weights": {name: shape(name, weight) for name, weight in weights.items()},
    }


def pinned(preset: str) -> dict:
    # Counting FLOPs takes longest, and is not pinned.
    with mock.patch("t2t_jax.tools.plan.describe._flops", return_value={}):
        described = describe(load_config(ROOT / preset))
    parameters = described["parameters"]
    described["parameters"] = parameters | by_axes(parameters["weights"])
    return flat({part: described[part] for part in PINNED})


def equal(name: str, old, new) -> bool:
    if name.startswith("learning_rate.") and isinstance(new, float):
        return new == pytest.approx(old, rel=RELATIVE, abs=0)
    return type(old) is type(new) and old == new


def is_below(name: str, group: str) -> bool:
    return name == group or name.startswith(f"{group}.")


def changes(old: dict, new: dict) -> dict:
    """What makes the fields of one preset those of another."""
    gone = [*old.keys() - new.keys()]
    groups = sorted({next((g for g in WHOLE if is_below(n, g)), n) for n in gone})
    return ({WITHOUT: groups} if groups else {}) | {
        name: value
        for name, value in new.items()
        if name not in old
        or not equal(name, old[name], value)
        or any(is_below(name, group) for group in groups)
    }


def changed(fields: dict, changes: dict) -> dict:
    """The fields after `changes`."""
    groups = changes.get(WITHOUT, [])
    left = {n: x for n, x in fields.items() if not any(is_below(n, g) for g in groups)}
    return left | {name: x for name, x in changes.items() if name != WITHOUT}


def stored(preset: str, presets: dict) -> dict:
    """All fields of a preset in `presets.json`."""
    fields = {} if preset == BASE else stored(parent(preset), presets)
    return changed(fields, presets[preset])


def differences(old: dict, new: dict) -> list[str]:
    """A line for each field that changed, came or went."""
    absent = "(not there)"
    return [
        f"{name}: {old.get(name, absent)!r} -> {new.get(name, absent)!r}"
        for name in dict.fromkeys([*old, *new])
        if name not in old or name not in new or not equal(name, old[name], new[name])
    ]


@pytest.fixture(scope="module")
def golden():
    return json.loads(PRESETS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("preset", presets())
def test_a_preset_is_what_it_was(preset, golden):
    if preset not in golden:
        pytest.fail(f"{preset} is not in {PRESETS.name}; {ACCEPT}", False)
    if lines := differences(stored(preset, golden), pinned(preset)):
        listed = "\n  ".join(lines)
        pytest.fail(f"{preset} is not what it was:\n  {listed}\n{ACCEPT}", False)


def test_no_preset_is_left_that_is_gone(golden):
    assert {*golden} == {*presets()}


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


def accept() -> None:
    now = {preset: pinned(preset) for preset in presets()}
    written = {
        preset: fields if preset == BASE else changes(now[parent(preset)], fields)
        for preset, fields in now.items()
    }
    assert all(not differences(stored(name, written), now[name]) for name in now)
    blocks = (
        f"{json.dumps(preset)}: {{\n"
        + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in fields.items())
        + "\n}"
        for preset, fields in written.items()
    )
    PRESETS.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")
    LISTED.write_text("".join(f"{name}\n" for name in public_names()))


if __name__ == "__main__":
    accept()
