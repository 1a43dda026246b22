"""Fields are checked and kept as data; presets are found by name, from any folder."""

import copy
import dataclasses
import json
import math
import shutil
import sys

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import t2t_jax
from t2t_jax import config as fields
from t2t_jax.commands import config_files
from t2t_jax.commands.config_files import load_config
from t2t_jax.config import Config, ModelConfig, from_config_dict
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.sections import table_names, table_of
from t2t_jax.training.schedules import schedule
from tests.small_run import ROOT


def test_a_config_survives_json_and_config_dict():
    config = dataclasses.replace(Config(), model=ModelConfig(layers=3, dropout=0.25))
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    for stored_config in (stored, fields.to_config_dict(config)):
        assert from_config_dict(stored_config) == config


def test_a_config_dict_has_no_methods_and_says_what_has():
    config = load_config("tiny")
    with pytest.raises(AttributeError, match="own_options .*from_config_dict"):
        config.model.own_options(None)
    with pytest.raises(AttributeError, match="no_field"):
        config.model.no_field  # noqa: B018
    assert copy.deepcopy(config).model.width == config.model.width


def test_the_default_is_the_papers_base():
    base = from_config_dict(load_config("base"))
    data = dataclasses.replace(base.data, train="", dev="", test="")
    assert dataclasses.replace(base, data=data) == Config()
    leaves = jax.tree.leaves(build(base.model, 37_000).shapes)  # takes no memory
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("base:en-es", "'en-es' is not a direction of the paper"),
        ("configs/tiny.py:what", "takes no argument"),
        ("tini", "no such preset; did you mean 'tiny'"),
        ("multi30k:day", "'hour', 'half_hour', 'published' or a number of steps"),
        ("low_resource:1501", "such as 1484"),
        ("low_resource:20", "such as 280"),
    ],
)
def test_a_name_that_is_no_config_is_told(path, message):
    with pytest.raises(UserError, match=message):
        load_config(path)


def test_the_learning_rate_curve_is_the_papers():
    for name, width, peak in (("base", 512, 7.0e-4), ("big", 1024, 4.9e-4)):
        rate = schedule(from_config_dict(load_config(name)))
        for step in (1, 100, 3_999, 4_000, 4_001, 100_000):
            by_hand = width**-0.5 * min(step**-0.5, step * 4_000**-1.5)
            assert float(rate(step - 1)) == pytest.approx(by_hand, rel=1e-6)
        assert float(rate(3_999)) == pytest.approx(peak, rel=0.01)
        assert float(rate(3_999)) > max(float(rate(3_998)), float(rate(4_000)))


RELATIVE = {"positions": "relative"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modl": {}}, "config.modl: no such section; did you mean 'model'?"),
        ({"model": {"layers": "2"}}, "of type str; want int"),
        ({"model": {"layers": True}}, "of type bool; want int"),
        ({"model": {"layers": 0}}, "too small; want at least 1"),
        ({"model": {"dropout": math.nan}}, "want a finite number"),
        ({"model": {"dropout": 1.0}}, "want at least 0 and below 1"),
        ({"train": {"seed": 2**32}}, "want at least 0 and below 4,294,967,296"),
        ({"model": {"norm": "pst"}}, "did you mean 'post'?"),
        ({"model": {"attention": "mine"}}, "t2t_jax.model.attention): --ideas=MODULE"),
        ({"model": {"options": {"clip": 3}}}, "no such option"),
        ({"model": {"options": {"rotary_base": 9.0}}}, "of config.model.positions="),
        ({"model": RELATIVE | {"options": {"relative_clip": 0}}}, "=0 is too small"),
        ({"data": {"batching": "sorted"}}, "there are: packed, bucketed"),
        ({"data": {"source": "de"}}, "are both 'de'"),
        ({"data": {"joint_vocabulary": False}}, "choose config.model.tied='target'"),
        ({"data": {"source_tokenizer": "x.model"}}, "set config.data.joint_vocab"),
        ({"train": {"patience": 3}}, "patience=3 goes by the dev score"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(changes, message):
    with pytest.raises(UserError) as error:
        from_config_dict(changes)
    assert message in str(error.value)


def test_a_section_made_in_python_is_checked():
    with pytest.raises(UserError, match="width=-1 is too small"):
        ModelConfig(width=-1)


def test_differences_say_what_is_safe():
    new = from_config_dict({"train": {"steps": 7}, "model": {"layers": 1}})
    assert fields.differences(Config(), new) == {
        "train.steps": (100_000, 7, True),
        "model.layers": (6, 1, False),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "no function get_config; want a get_config"),
        ("def get_config():\n    return nothing", "line 2: NameError: .* 'nothing'"),
    ],
)
def test_a_mistake_in_a_config_is_reported_with_its_line(text, message, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UserError, match=rf"{file}.*{message}"):
        load_config(file)


def test_the_options_of_a_variant_are_fields():
    """They are set by flags, stored, and compared like any field."""
    config = from_config_dict({"model": RELATIVE | {"options": {"relative_clip": 3}}})
    assert config.model.options == {"relative_clip": 3}
    assert from_config_dict(dataclasses.asdict(config)) == config
    flat = fields.to_config_dict(config)
    assert flat.model.options.relative_clip == 3
    assert flat.model.options.relative_values is True  # settable by a flag
    assert from_config_dict(flat) == config
    assert hash(config) == hash(from_config_dict(flat))
    change = {"model.options.relative_clip": (3, 16, False)}
    default = from_config_dict({"model": RELATIVE})
    assert fields.differences(config, default) == change
    assert {*change} <= {*fields.field_names()}
    with pytest.raises(TypeError, match="read-only"):
        config.model.options["relative_clip"] = 4


def test_the_names_of_a_table_are_known_without_importing_it(monkeypatch):
    for section in fields.SECTIONS.values():
        for chooser in section.choosers():
            address, table = chooser.metadata["table"], table_of(chooser)
            module = f"t2t_jax.{address.rpartition('.')[0]}"
            monkeypatch.delitem(sys.modules, module, raising=False)
            names = table_names(address)
            assert names == [*table]
            assert chooser.default in names


def test_heads_divide_the_width():
    config = from_config_dict({"model": {"width": 100, "heads": 3}})
    with pytest.raises(UserError, match=r"into config.model.heads=3; choose a multip"):
        build(config.model, 10)


def test_a_preset_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config("tiny").data.train == "grammar:train"
    data = load_config("big:fr-en").data
    assert (data.source, data.target) == ("fr", "en")
    assert data.train == "tfds:wmt14_translate/fr-en:train"
    # The README's commands, which name files, work from any folder too.
    assert load_config("configs/tiny.py") == load_config("tiny")
    with pytest.raises(UserError, match=r"configs/mine.py does not exist"):
        load_config("configs/mine.py")


@given(st.integers(10, 5_000))
def test_a_short_recipe_has_any_number_of_steps(parts):
    train = load_config(f"low_resource:{28 * parts}").train
    assert train.steps == 28 * parts
    assert train.steps % train.save_every == train.steps % train.eval_every == 0
    assert train.save_every * 28 <= train.steps <= train.save_every * 56


def write_config(file, base, changes):
    """A config of the user: that of a preset, with fields of its model changed."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        f"from configs import {base}\n\n\ndef get_config():\n"
        f"    config = {base}.get_config()\n    config.model.update({changes})\n"
        "    return config\n"
    )


def test_a_config_of_ones_own_builds_on_presets_and_on_its_neighbours(
    tmp_path, monkeypatch
):
    for folder in ("configs", "ideas"):
        write_config(tmp_path / folder / "wide.py", "big", "width=2048")
        config = load_config(tmp_path / folder / "wide.py")
        assert (config.model.width, config.model.heads) == (2048, 16)
    # A neighbour of the same name comes first, as in a fork.
    write_config(tmp_path / "configs/big.py", "base", "heads=4")
    assert load_config(tmp_path / "configs/wide.py").model.heads == 4
    assert load_config(tmp_path / "ideas/wide.py").model.heads == 16
    # A file comes before the preset of its name, which goes by its own neighbours.
    monkeypatch.chdir(tmp_path)
    assert load_config("configs/big.py").model.heads == 4
    assert load_config("big").model.heads == 16


def test_an_installed_package_has_its_presets_inside(tmp_path, monkeypatch):
    package = tmp_path / "site-packages/t2t_jax"
    package.mkdir(parents=True)
    shutil.copytree(ROOT / "configs", package / "configs")
    monkeypatch.setattr(t2t_jax, "__file__", str(package / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    assert config_files.shipped_folder("configs") == package / "configs"
    assert load_config("big").model.width == 1024  # which imports base
    assert str(package) not in sys.path  # or `config` would be a module
