"""What `describe` tells of a config is what the program then does."""

import json
import math
import re
import shlex

import jax
import numpy as np
import pytest

from t2t_jax import load_config
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data.shapes import static_shapes
from t2t_jax.model.model import build
from t2t_jax.tools.plan.describe import beside_paper, describe, describe_workdir
from t2t_jax.tools.plan.describe_command import description_text
from t2t_jax.training.step import initial_state
from t2t_jax.workdir import Workdir
from tests.decoding.small_translator import vocabulary
from tests.small_run import ROOT

SMALL = {"layers": 2, "width": 16, "heads": 2, "head_width": 4, "hidden": 24}


def small(**sections):
    sections["model"] = SMALL | sections.get("model", {})
    sections["data"] = {"vocab_size": 50} | sections.get("data", {})
    return from_config_dict(load_config(ROOT / "configs/tiny.py", **sections))


def test_the_papers_models_differ_nowhere():
    for path, model in (("base.py", "base"), ("big.py:en-fr", "big")):
        paper = beside_paper(from_config_dict(load_config(f"{ROOT}/configs/{path}")))
        assert all(model in fact["same"] for fact in paper.values())
    changes = {"feed_forward": "swiglu", "encoder_layers": 3}
    paper = beside_paper(small(model=changes, train={"clip_norm": 1.0}))
    new = {"model.feed_forward", "model.encoder_layers", "train.clip_norm"}
    # What the paper has not is told where it is changed.
    assert {*paper} - {*beside_paper(small())} == new


def test_what_differs_from_the_paper_is_told_with_its_value_and_section():
    description = describe(small(model={"dropout": 0.2}, train={"adam_b2": 0.5}))
    lines = {
        line.split()[0]: line
        for line in description_text(description).splitlines()
        if line.strip()
    }
    for field, remark in (
        ("dropout", "paper: 0.1 (base), 0.3 (big), section 5.4, Table 3"),
        ("adam_b2", "paper: 0.98, section 5.3"),
        ("norm", "the paper's, section 3.1"),
    ):
        assert lines[field].endswith(remark)


def test_the_parts_and_the_weights_are_all_parameters():
    config = small(model={"norm": "pre", "positions": "learned"})
    parameters = describe(config)["parameters"]
    shapes = jax.eval_shape(build(config.model, 50).init, jax.random.key(0))
    assert parameters["total"] == sum(x.size for x in jax.tree.leaves(shapes))
    weights, parts = parameters["weights"], parameters["parts"]
    sizes = [math.prod(w["shape"]) * w["layers"] for w in weights.values()]
    assert parameters["total"] == sum(sizes) == sum(parts.values())
    # Scale and bias; 2 layers, of 2 norms in the encoder and 3 in the decoder; 2 last.
    assert parts["norms"] == 2 * 16 * (2 * 2 + 2 * 3 + 2)
    assert (parts["embedding"], parts["decoder_positions"]) == (50 * 16, 1024 * 16)
    query = {"shape": [16, 2, 4], "axes": ["width", "heads", "head"], "layers": 2}
    assert weights["decoder.*.cross.query"] == query


def test_the_bytes_are_those_of_a_state():
    config = small(train={"ema_decay": 0.9})
    sizes = describe(config)["bytes"]
    parameters = build(config.model, 50).shapes
    state = jax.eval_shape(lambda p: initial_state(p, config), parameters)
    real = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    assert sizes["state"] <= real <= sizes["state"] + 64  # a few counters
    assert sizes["parameters"] == 4 * build(config.model, 50).count()


@pytest.mark.parametrize(
    ("batching", "max_length"), [("packed", 20), ("packed", 256), ("bucketed", 100)]
)
def test_no_text_makes_batches_beyond_the_bounds(batching, max_length):
    """Random texts, some with the longest sentences that there may be."""
    limits = {"batching": batching, "row_length": 64, "batch_tokens": 4_096}
    limits["buckets"] = 4
    bounds = describe(small(data=limits | {"max_length": max_length}))["batches"]
    least_rows, longest = bounds["longest"]
    packed = batching == "packed"
    assert (bounds["shortest"] is not None) == packed
    most_rows, shortest = bounds["shortest"] or (math.inf, 0)
    generator = np.random.default_rng(0)
    reached = []
    for highest in (3, 30, max_length, max_length):
        lengths = generator.integers(1, min(highest, max_length) + 1, (2, 400))
        lengths[0, 0] = min(highest, max_length)
        lengths[1] = np.maximum(1, lengths[1] // generator.integers(1, 4))
        if reached:  # one long sentence beside short ones, for which rows are stretched
            lengths[1] = 1
            lengths[1, 0] = lengths[0, 0]
        shapes = static_shapes(*lengths, **limits)
        assert len(shapes) <= bounds["shapes"]
        for shape in shapes:
            reached.append(max(shape.source, shape.target))
            assert shortest <= reached[-1] <= longest
            assert least_rows <= shape.rows <= most_rows
    assert max(reached) * 1.25 >= min(longest, max_length)  # no idle bound


def test_a_workdir_is_told_with_its_own_vocabulary(tmp_path):
    train = {"steps": 12, "eval_every": 5, "save_every": 4}
    config = small(train=train, decode={"average": 2})
    Workdir(tmp_path).store(config, vocabulary(), {})
    description = describe_workdir(tmp_path)
    assert description["vocabulary"]["pieces"] == 290
    embedding = description["parameters"]["weights"]["embedding.tokens"]
    assert embedding["shape"] == [290, 16]
    run = description["run"]
    assert (run["evaluations"], run["saves"], run["averaged"]) == (3, 3, 2)


def test_the_command_prints_what_python_gives(commands):
    changes = ("--config=configs/tiny.py", "--config.model.layers=1")
    process = commands("describe", *changes, "--json")
    assert process.returncode == 0, process.stderr
    config = load_config(ROOT / "configs/tiny.py", model={"layers": 1})
    description, printed = describe(config), json.loads(process.stdout)
    assert description.pop("compute").keys() == printed.pop("compute").keys()
    assert printed == json.loads(json.dumps(description))


def test_the_table_of_reproducing_has_the_counts_of_its_commands():
    text = (ROOT / "docs/reproducing.md").read_text(encoding="utf-8")
    row = re.compile(r"^\|.*`(--config=[^`]+)`.*\| ([\d,]{9,}) \|", re.MULTILINE)
    rows = row.findall(text)
    assert len(rows) >= 24
    for flags, count in rows:
        config_flag, *changes = shlex.split(flags)
        sections: dict[str, dict] = {}
        for change in changes:
            name, _, value = change.removeprefix("--config.").partition("=")
            section, field = name.split(".")
            kind = type(getattr(getattr(Config(), section), field))
            sections.setdefault(section, {})[field] = kind(value)
        config = load_config(ROOT / config_flag.partition("=")[2], **sections)
        config = from_config_dict(config)
        parameters = build(config.model, config.data.vocab_size).count()
        assert f"{parameters:,}" == count, flags
