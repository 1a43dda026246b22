"""Options that mean nothing for a task are refused; answers of others are checked."""

import types

import pytest

from t2t_jax.analysis.context import Context
from t2t_jax.bridges.exporting import export
from t2t_jax.commands.flags import refuse_unused
from t2t_jax.experiment.measures import MEASURES
from t2t_jax.tasks.table import TASKS
from t2t_jax.terminal.errors import UserError
from tests.tasks.made_up import example_of, opened, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("text")
    write(made)
    return made


@pytest.mark.parametrize("kind", TASKS)
def test_options_that_mean_nothing_are_refused(kind, folder):
    task = example_of(kind).task(kind, folder)
    names = {"beam", "alignments", "nbest", "sample", *task.unused}
    for name in names:
        given = {n: types.SimpleNamespace(present=n == name) for n in names}
        if name in task.unused:
            with pytest.raises(UserError, match=f"--{name}: .*{kind!r}"):
                refuse_unused(task, given)
        else:
            refuse_unused(task, given)
    # What is not searched for has no option of a search.
    assert task.searches or "alignments" in task.unused
    assert ("beam" in task.unused) == (task.predicts != "target")


@pytest.mark.parametrize("kind", [k for k in TASKS if TASKS[k].predicts != "target"])
def test_models_that_write_no_text_are_not_exported(kind, folder, tmp_path):
    config = example_of(kind).config(kind, folder)
    translator = types.SimpleNamespace(members=[None], config=config)
    with pytest.raises(UserError, match=f"{kind!r} cannot be exported"):
        export(translator, "stablehlo", tmp_path / "new")


@pytest.mark.parametrize("measure", ["by_length", "heads", "speed"])
def test_measures_of_translations_are_of_no_other_task(measure, folder, tmp_path):
    config = example_of("classification").config("classification", folder)
    with pytest.raises(UserError, match=f"{measure} measures .*'classification'"):
        MEASURES[measure](Context(tmp_path, config, {}))


@pytest.mark.parametrize("kind", ["parsing", "language_model", "masked_language_model"])
def test_a_baseline_that_is_no_answer_is_named_by_its_line(kind, folder):
    task = example_of(kind).task(kind, folder)
    corpus = opened(task)
    pairs = task.examples(corpus)
    good = [example_of(kind).perfect(task, pair) for pair in pairs]
    with pytest.raises(UserError, match="2"):
        task.compare(good, [good[0], "no answer", *good[2:]], pairs, corpus)
