"""Modules of a user's own, given as --ideas, add entries to the tables."""

import hashlib
import json
import sys
import types

import pytest

from t2t_jax.config import from_config_dict
from t2t_jax.io import ideas
from t2t_jax.io.errors import UserError
from t2t_jax.model import attention
from t2t_jax.tools.plan.describe_command import description_text
from t2t_jax.training.provenance_log import record_start
from t2t_jax.workdir import Workdir
from tests import conftest
from tests.decoding.small_translator import vocabulary

MINE = """
import dataclasses
from t2t_jax.model.attention import ATTENTION, AttentionFunction

@dataclasses.dataclass(frozen=True)
class Options:
    window: int = 3

def mine(*arguments, options):
    return ATTENTION["dense"].attend(*arguments)

ATTENTION["mine"] = AttentionFunction(mine, Options=Options)
"""
SHA256 = hashlib.sha256(MINE.encode()).hexdigest()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a module; what it changes is put back after the test."""
    monkeypatch.setattr(ideas, "imported", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(attention, "ATTENTION", {**attention.ATTENTION})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_idea.py").write_text(MINE)
    yield tmp_path
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("my_idea", "package"):
            del sys.modules[name]


@pytest.fixture
def workdir(folder, monkeypatch):
    """A workdir trained with the module, in a program that does not have it."""
    ideas.load("my_idea.py")
    workdir = Workdir(folder / "work")
    model = {"layers": 1, "width": 8, "attention": "mine", "options": {"window": 5}}
    config = from_config_dict({"model": model, "data": {"vocab_size": 290}})
    workdir.store(config, vocabulary(), {})
    record_start(workdir, 0, {"cores": 1})
    del attention.ATTENTION["mine"]
    monkeypatch.setattr(ideas, "imported", {})
    return workdir


@pytest.mark.parametrize("written", ["package.helper", ".helper", "."])
def test_what_a_module_imports_is_part_of_it(folder, written):
    (folder / "package").mkdir()
    (folder / "package/helper.py").write_text("x = 1\n")
    names = "helper" if written == "." else "x"
    (folder / "package/my_idea.py").write_text(f"from {written} import {names}\n")
    ideas.load("package.my_idea")
    sha256 = ideas.imported["package.my_idea"]
    module = sys.modules["package.my_idea"]
    assert ideas._sha256(module) == sha256
    (folder / "package/helper.py").write_text("x = 2\n")
    assert ideas._sha256(module) != sha256


class Scaled:
    def __init__(self, factor):
        self.factor = factor


def test_the_code_of_an_object_is_that_of_its_class_and_what_it_has():
    assert ideas.code_of(Scaled(2)) == ideas.code_of(Scaled(2))
    assert ideas.code_of(Scaled(2)) != ideas.code_of(Scaled(3))
    assert dict(ideas.code_of(Scaled(2)))[f"{__name__}.Scaled"]

    def unbound():
        return name

    assert ideas.code_of(unbound)
    name = 1
    assert unbound() == name


@pytest.mark.parametrize("name", ["my_idea", "my_idea.py", "package.my_idea"])
def test_a_module_is_imported_once_and_recorded(folder, name):
    (folder / "package").mkdir()
    (folder / "package/my_idea.py").write_text(MINE)
    ideas.load(name)
    del attention.ATTENTION["mine"]
    assert ideas.imported == {name: SHA256}
    ideas.load(name)
    assert "mine" not in attention.ATTENTION


def test_a_command_has_the_entries_and_their_options(folder, commands):
    flags = ["--ideas", folder / "my_idea.py", "--config=tiny", "--json"]
    flags += ["--config.model.attention=mine", "--config.model.options.window=4"]
    result = commands("describe", *flags)
    assert result.returncode == 0, result.stderr
    described = json.loads(result.stdout)
    model = described["config"]["model"]
    assert (model["attention"], model["options"]) == ("mine", {"window": 4})
    # The options of all chosen entries, also those at their defaults.
    options = described["options"]["model"]
    assert (options["window"], options["position_offset"]) == (4, 0)
    assert f"options              {options}\n" in description_text(described)


def test_the_laws_of_an_idea_say_why_one_does_not_apply(folder):
    option = types.SimpleNamespace(reportchars="")
    conftest.pytest_configure(
        types.SimpleNamespace(getoption=lambda _: ["my_idea"], option=option)
    )
    assert "s" in option.reportchars
    assert "mine" in attention.ATTENTION


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("my_ideas", ["no module 'my_ideas'", "did you mean 'my_idea.py'?"]),
        ("my_ideas.py", ["no such file", "did you mean 'my_idea.py'?"]),
        ("json.py", ["another module 'json' is already imported", "rename the file"]),
        ("wrong.py", ["wrong.py", "line 2", "def f(:", "SyntaxError"]),
        ("lacks", ["lacks.py", "import missing_one", "'missing_one'"]),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(folder, name, parts):
    (folder / "json.py").write_text("")
    (folder / "wrong.py").write_text("\ndef f(:\n")
    (folder / "lacks.py").write_text("import missing_one\n")
    with pytest.raises(UserError) as e:
        ideas.load(name)
    message = str(e.value)
    assert message.startswith(f"--ideas={name}")
    assert [part for part in parts if part not in message] == []
    assert ideas.imported == {}


def test_a_workdir_names_the_module_that_it_needs(workdir, commands):
    needed = "attention='mine', .* was trained with --ideas=my_idea.py: give it"
    with pytest.raises(UserError, match=needed):
        workdir.config()
    module = workdir.path.parent / "my_idea.py"
    result = commands("describe", f"--workdir={workdir}", f"--ideas={module}")
    assert result.returncode == 0, result.stderr
