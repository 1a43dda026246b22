"""The pages your-idea.md and your-task.md quote files that train and obey the laws."""

import contextlib
import dataclasses
import json
import math
import re
import sys
from unittest import mock

import pytest

from t2t_jax import train
from t2t_jax.config import SECTIONS
from t2t_jax.extensions.text.damage import AUGMENTATIONS
from t2t_jax.io import ideas
from t2t_jax.sections import known_options, table_of
from t2t_jax.tools.plan.describe import describe_workdir
from t2t_jax.workdir import Workdir
from tests.model import laws
from tests.model.cases import config_of
from tests.model.subject import Subject
from tests.small_run import ROOT, config_for
from tests.tasks import made_up
from tests.tasks.test_laws import OF_EACH_TASK

PAGES = [ROOT / "docs" / name for name in ("your-idea.md", "your-task.md")]
FILES = sorted((ROOT / "docs/ideas").glob("*.py"))
# Each idea is in one of these.
RUNS = {
    "transformer": {
        "model": {
            "positions": "kerple",
            "attention": "cosine",
            "feed_forward": "squared_relu",
            "options": {"attention_temperature": 0.2},
        },
        "train": {
            "loss": "confidence_penalty",
            "schedule": "polynomial",
            "options": {"confidence_penalty": 0.3, "decay_power": 1.5},
        },
    },
    "bag of words": {"model": {"kind": "bag_of_words"}},
    "correction": {"task": {"kind": "correction"}},
}
MODELS = [name for name, run in RUNS.items() if "model" in run]


@pytest.fixture(scope="module")
def imported():
    """The entries that the files add, imported as by --ideas; removed afterwards."""
    tables = {
        (name, field.name): table_of(field)
        for name, section in SECTIONS.items()
        for field in dataclasses.fields(section)
        if field.metadata["table"]
    }
    shipped = {name: {*table} for name, table in tables.items()}
    with contextlib.ExitStack() as stack:
        for field in (*tables.values(), ideas.imported):
            stack.enter_context(mock.patch.dict(field))
        for file in FILES:
            ideas.load(str(file))
        yield {(f, name) for f, table in tables.items() for name in table} - {
            (f, name) for f, names in shipped.items() for name in names
        }
    for file in FILES:
        del sys.modules[file.stem]


@pytest.fixture(scope="module")
def subjects(imported):
    return {name: Subject(config_of(**RUNS[name]["model"])) for name in MODELS}


def test_the_pages_quote_the_files_and_count_their_lines():
    page = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pattern = r"\((ideas/\w+\.py)\), (\d+) lines\.\n\n```python\n(.*?)```"
    quoted = re.findall(pattern, page, re.S)
    assert {name for name, _, _ in quoted} == {f"ideas/{f.name}" for f in FILES}
    for name, count, code in quoted:
        assert code == (ROOT / "docs" / name).read_text(encoding="utf-8"), name
        assert int(count) == sum(map(bool, code.splitlines())), name


def test_the_page_of_variants_has_all_entries_and_options():
    page = (ROOT / "docs/variants.md").read_text(encoding="utf-8")
    options = {name for section in SECTIONS.values() for name in known_options(section)}
    entries = {
        name
        for section in SECTIONS.values()
        for field in dataclasses.fields(section)
        for name in table_of(field)
    }
    named = {*re.findall(r"`(?:[\w.]+[.=])?(\w+)`", page)}
    assert entries | options | {*AUGMENTATIONS} <= named


def test_the_page_of_property_tests_has_every_law_and_its_bound():
    page = (ROOT / "docs/reference/property-tests.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| ([\d.e-]+) \| .* \| (yes)? ?\|$", page, re.M
    )
    bounds = {law: (float(bound), pairs == "yes") for law, bound, pairs in rows}
    in_pairs = {law: law in laws.COMPOSITION for law in laws.LAWS}
    assert bounds == {
        law.__name__: (bound, in_pairs[law]) for law, bound in laws.LAWS.items()
    }


def test_each_idea_is_tried_here(imported):
    tried = {
        ((section, name), entry)
        for run in RUNS.values()
        for section, fields in run.items()
        for name, entry in fields.items()
        if name != "options"
    }
    assert imported <= tried
    assert len(imported) == len(FILES)


@pytest.mark.parametrize("run", MODELS)
@pytest.mark.parametrize(
    "law",
    [laws.packed_is_alone, laws.cached_is_forced, laws.future_is_unseen],
    ids=lambda law: law.__name__,
)
def test_a_model_obeys(subjects, run, law):
    assert law(subjects[run]) <= laws.LAWS[law]


@pytest.mark.parametrize("law", OF_EACH_TASK, ids=lambda law: law.__name__)
def test_a_task_obeys(imported, law, tmp_path):
    made_up.write(tmp_path)
    law("correction", tmp_path)


@pytest.mark.parametrize("run", RUNS)
def test_it_trains_and_decodes_and_is_recorded(imported, run, text, tmp_path):
    scores = train(config_for(text, **RUNS[run]), tmp_path / "work")
    assert math.isfinite(scores["test"]["f_half" if "task" in RUNS[run] else "bleu"])
    workdir = Workdir(tmp_path / "work")
    lines = map(json.loads, (workdir.path / "metrics.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert losses[-1] < losses[0] - 0.1
    recorded = describe_workdir(workdir)["config"]
    for section, values in RUNS[run].items():
        assert values.items() <= recorded[section].items()
