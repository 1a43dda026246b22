"""Options that mean nothing for a task are refused; answers of others are checked."""

import types
from contextlib import nullcontext as nothing
from unittest import mock

import pytest

from t2t_jax.commands.flags import refuse_unused
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.table import TASKS
from t2t_jax.tools.bridges.checks import peer_process
from t2t_jax.tools.bridges.exporting import check_task, export
from t2t_jax.tools.bridges.table import EXPORTS
from t2t_jax.tools.experiment.measures import MEASURES
from t2t_jax.tools.experiment.results import Context
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


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize("kind", TASKS)
def test_models_without_a_source_or_a_search_export_their_weights_alone(
    kind, name, folder
):
    config = example_of(kind).config(kind, folder)
    translator = types.SimpleNamespace(members=[None], config=config)
    task = TASKS[kind]
    refused = name != "safetensors" and (
        task.predicts != "target" or not task.has_source
    )
    with pytest.raises(UserError, match=f"{kind!r} does not") if refused else nothing():
        check_task(translator, name, EXPORTS[name])


def test_quantized_weights_of_other_tasks_have_no_bleu(folder, tmp_path):
    config = example_of("parsing").config("parsing", folder)
    translator = types.SimpleNamespace(members=[None], config=config)
    with (
        mock.patch.object(peer_process, "missing_packages", return_value=[]),
        pytest.raises(UserError, match="by BLEU .*'parsing'; leave"),
    ):
        export(translator, "ctranslate2", tmp_path / "new", quantization="int8")
    assert not [*tmp_path.iterdir()]


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
