"""Fields are named once, checked, and kept as data; presets are the paper's."""

import dataclasses
import json
import math

import jax
import pytest

from t2t_jax import config as fields
from t2t_jax.commands.config_files import load_config
from t2t_jax.config import (
    Config,
    ModelConfig,
    from_config_dict,
)
from t2t_jax.io.errors import UserError
from t2t_jax.model import positions
from t2t_jax.model.model import build
from t2t_jax.sections import known_options
from t2t_jax.training.schedules import schedule


def preset(name, argument=""):
    path = f"configs/{name}.py" + (f":{argument}" if argument else "")
    return from_config_dict(load_config(path))


def test_a_config_survives_json_and_config_dict():
    config = dataclasses.replace(Config(), model=ModelConfig(layers=3, dropout=0.25))
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    for same in (stored, fields.to_config_dict(config)):
        assert from_config_dict(same) == config


def test_the_default_is_the_papers_base():
    base = preset("base")
    data = dataclasses.replace(base.data, train="", dev="", test="")
    assert dataclasses.replace(base, data=data) == Config()
    leaves = jax.tree.leaves(build(base.model, 37_000).shapes)  # takes no memory
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)


@pytest.mark.parametrize("name", ["base", "big"])
def test_the_papers_directions(name):
    for direction, other, pieces, big_dropout in (
        ("en-de", "de", 37_000, 0.3),
        ("de-en", "de", 37_000, 0.3),
        ("en-fr", "fr", 32_000, 0.1),
        ("fr-en", "fr", 32_000, 0.1),
    ):
        config = preset(name, direction)
        data, wmt = config.data, f"tfds:wmt14_translate/{other}-en"
        assert (f"{data.source}-{data.target}", data.vocab_size) == (direction, pieces)
        texts = (data.train, data.dev, data.test)
        assert texts == (f"{wmt}:train", f"{wmt}:validation", f"{wmt}:test")
        assert config.model.dropout == (big_dropout if name == "big" else 0.1)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("base:en-es", "'en-es' is not a direction of the paper"),
        ("multi30k:houre", "want 'hour' or 'half_hour' or 'published'"),
        ("conv:wmt", "want 'tiny' or 'multi30k'"),
        ("configs/tiny.py:what", "takes no argument"),
        ("finetune:runs/typo", r"\A--config: runs/typo "),
    ],
)
def test_an_argument_that_a_config_does_not_take_is_told(path, told):
    with pytest.raises(UserError, match=told):
        load_config(path)


def test_the_learning_rate_curve_is_the_papers():
    for name, width, peak in (("base", 512, 7.0e-4), ("big", 1024, 4.9e-4)):
        rate = schedule(preset(name))
        for step in (1, 100, 3_999, 4_000, 4_001, 100_000):
            by_hand = width**-0.5 * min(step**-0.5, step * 4_000**-1.5)
            assert float(rate(step - 1)) == pytest.approx(by_hand, rel=1e-6)
        assert float(rate(3_999)) == pytest.approx(peak, rel=0.01)
        assert float(rate(3_999)) > max(float(rate(3_998)), float(rate(4_000)))


RELATIVE = {"positions": "relative"}
OWN_SOURCE = {
    "joint_vocabulary": False,
    "source_tokenizer": "x.model",
    "source_vocab_size": 9,
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"modl": {}}, "config.modl: no such section; did you mean 'model'?"),
        ({"model": {"layrs": 2}}, "did you mean 'model.layers'?"),
        ({"model": {"layers": 2.5}}, "of type float; want int, such as 6"),
        ({"model": {"layers": "2"}}, "of type str; want int"),
        ({"model": {"layers": True}}, "of type bool; want int"),
        ({"model": {"layers": 0}}, "too small; want at least 1"),
        ({"model": {"dropout": math.nan}}, "want a finite number"),
        ({"decode": {"alpha": math.inf}}, "want a finite number"),
        ({"model": {"dropout": 1.0}}, "want at least 0 and below 1"),
        ({"model": {"norm": "pst"}}, "did you mean 'post'?"),
        ({"model": {"positions": "rotari"}}, "did you mean 'rotary'?"),
        ({"model": {"attention": "mine"}}, "t2t_jax.model.attention): --ideas=MODULE"),
        ({"model": {"options": {"clip": 3}}}, "no such option"),
        ({"model": {"options": {"rotary_base": 9.0}}}, "of config.model.positions="),
        ({"model": RELATIVE | {"options": {"relative_clip": 0}}}, "=0 is too small"),
        ({"data": {"batching": "sorted"}}, "there are: packed, bucketed"),
        ({"data": {"source": "de"}}, "are both 'de'"),
        ({"data": {"max_ratio": 0.5}}, "want at least 1"),
        ({"data": {"joint_vocabulary": False}}, "choose config.model.tied='target'"),
        ({"data": {"source_tokenizer": "x.model"}}, "set config.data.joint_vocab"),
        ({"data": {"source_vocab_size": 9}}, "source_vocab_size=9, but one joint"),
        (
            {"model": {"tied": "target"}, "data": OWN_SOURCE},
            "has a size of its own; leave one of the two out",
        ),
        ({"train": {"ema_decay": 1.0}}, "want at least 0 and below 1"),
        ({"train": {"patience": 3}}, "patience=3 goes by the dev score"),
        ({"decode": {"checkpoint": "best"}}, "'best' goes by the dev score"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(changes, told):
    with pytest.raises(UserError) as error:
        from_config_dict(changes)
    assert told in str(error.value)


def test_sections_made_in_python_are_checked_alike():
    for section, values in (
        ("model", {"width": -1}),
        ("model", {"layers": 2.5}),
        ("train", {"warmup": 0}),
        ("decode", {"beam": 0}),
        ("data", {"batching": "sorted"}),
    ):
        with pytest.raises(UserError) as of_dict:
            from_config_dict({section: values})
        with pytest.raises(UserError) as of_class:
            type(fields.SECTIONS[section])(**values)
        assert str(of_class.value) == str(of_dict.value)


def test_differences_say_what_is_safe():
    new = from_config_dict({"train": {"steps": 7}, "model": {"layers": 1}})
    assert fields.differences(Config(), new) == {
        "train.steps": (100_000, 7, True),
        "model.layers": (6, 1, False),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", "no function get_config; want a get_config"),
        ("def get_config():\n    return 1", "returns 1, a int; want a ConfigDict"),
        ("import t2t_jax\ndef get_config(:", "line 2: SyntaxError: invalid"),
        ("\nimport missing_one", "line 2: ModuleNotFoundError: .* 'missing_one'"),
        ("def get_config():\n    return nothing", "line 2: NameError: .* 'nothing'"),
        ("def get_config(size):\n    return 1", "needs an argument .* 'size'"),
    ],
)
def test_a_mistake_in_a_config_is_reported_with_its_line(text, told, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UserError, match=rf"{file}.*{told}"):
        load_config(file)


@pytest.mark.parametrize(
    ("name", "answer"), [("tini", "; did you mean 'tiny'"), ("xyzzy", "")]
)
def test_presets_are_listed_once(name, answer):
    with pytest.raises(UserError, match=f"no such preset{answer}.*a file ends") as e:
        load_config(name)
    assert str(e.value).count("bytenet") == 1


def test_a_section_is_a_dict():
    with pytest.raises(UserError, match="want a dict of the section's fields"):
        load_config("tiny", steps=5)


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
    other = from_config_dict({"model": RELATIVE})
    assert fields.differences(config, other) == change
    assert {*change} <= {*fields.field_names()}
    with pytest.raises(TypeError, match="read-only"):
        config.model.options["relative_clip"] = 4


def test_values_have_one_form():
    given = from_config_dict({"model": {"options": {"position_offset": 0}}})
    assert (given, given.model.options) == (Config(), {})
    assert type(from_config_dict({"model": {"dropout": 0}}).model.dropout) is float


def test_options_of_one_name_have_one_default(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Other:
        rotary_base: float = 2.0

    other = type("Other", (positions.Position,), {"Options": Other})
    monkeypatch.setitem(positions.POSITIONS, "other", other)
    with pytest.raises(UserError, match="both have an option 'rotary_base'"):
        known_options(Config().model)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"width": 100, "heads": 3}, "into config.model.heads=3; choose a multiple"),
        ({"decoder_heads": 7}, "into config.model.decoder_heads=7"),
        ({"width": 9, "heads": 3}, "odd"),
        ({"positions": "rotary", "head_width": 3}, "want an even"),
    ],
)
def test_sizes_that_a_model_cannot_have_are_named(changes, told):
    config = from_config_dict({"model": changes})
    with pytest.raises(UserError, match=told):
        build(config.model, 10)
