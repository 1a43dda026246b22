"""Laws that every task of TASKS obeys, on the text of `made_up.py`."""

import json
import math
import shutil
import types

import numpy as np
import pytest

from t2t_jax import train
from t2t_jax.commands.flags import refuse_unused
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import read_answers
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import measured
from t2t_jax.model.model import MODELS, build
from t2t_jax.tasks.table import TASKS, check_model
from t2t_jax.tools.bridges.exporting import check_task
from t2t_jax.tools.bridges.table import EXPORTS
from tests.small_run import contents, logged
from tests.tasks.made_up import example_of, opened, write

pytestmark = pytest.mark.usefixtures("compiled_once")
each_task = pytest.mark.parametrize("kind", TASKS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    text_folder = tmp_path_factory.mktemp("text")
    write(text_folder)
    return text_folder


def answered(kind, folder):
    """The task that scores the test set, the set, its examples, and two systems."""
    example = example_of(kind)
    task = example.task(kind, folder)
    corpus = opened(task)
    scorer = task.of(corpus)
    pairs = scorer.examples(corpus)
    systems = [
        [answer(scorer, pair) for pair in pairs]
        for answer in (example.perfect, example.poor)
    ]
    return scorer, corpus, pairs, *systems


@each_task
def test_examples_are_encoded_without_loss(kind, folder):
    task = example_of(kind).task(kind, folder)
    corpus = opened(task, "train")
    pairs = list(corpus.pairs())
    vocabulary = task.vocabulary([corpus])
    encoded = task.encode(pairs, vocabulary)
    for side, vocabulary_of_side in enumerate((vocabulary.source, vocabulary)):
        texts = [pair[side] for pair in pairs]
        rows = [encoded[side][i].tolist() for i in range(len(pairs))]
        if side not in task.sides:
            assert not any(texts)
            assert not any(rows)
            continue
        # A label is not followed by EOS; text is.
        ends = {row[-1] == vocabulary_of_side.eos for row in rows}
        assert ends == {task.predicts != "label" or side == 0}
        bare = [row[:-1] if row[-1] == vocabulary_of_side.eos else row for row in rows]
        assert vocabulary_of_side.decode(bare) == texts
    # The tokenizer of another run is taken over.
    inherited = task.vocabulary([corpus], vocabulary)
    assert [side.model for side in inherited.sides] == [
        s.model for s in vocabulary.sides
    ]


@each_task
def test_the_fingerprint_is_that_of_the_examples(kind, folder, tmp_path):
    example = example_of(kind)
    corpus = opened(example.task(kind, folder))
    shutil.copytree(folder, tmp_path / "copy")
    copy = opened(example.task(kind, tmp_path / "copy"))
    assert copy.fingerprint() == corpus.fingerprint()
    for file in (tmp_path / "copy").glob("test.*"):
        lines = file.read_text(encoding="utf-8").splitlines()
        lines[0], lines[1] = lines[1].replace("cat", "bird"), lines[0]
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    changed = opened(example.task(kind, tmp_path / "copy"))
    assert changed.fingerprint() != corpus.fingerprint()


@each_task
def test_a_wrong_model_is_refused_and_the_right_ones_named(kind, folder):
    fitting = set()
    for name in MODELS:
        # Of two vocabularies no matrix is tied, whatever the model.
        tied = {"tied": "none"} if kind == "classification" else {}
        config = example_of(kind).config(kind, folder, model={"kind": name, **tied})
        task, model = TASKS[kind](config), build(config.model, 60, 60)
        try:
            check_model(task, model)
            fitting.add(name)
        except UserError as e:
            message = str(e)
            assert f"config.model.kind={name!r}" in message
            choices = message.partition("choose ")[2]
    assert example_of(kind).config(kind, folder).model.kind in fitting
    assert choices == " or ".join(repr(name) for name in MODELS if name in fitting)


# ------------------------------------------------------------------------------ scores


@each_task
def test_scores_follow_from_the_answers(kind, folder):
    task, corpus, pairs, perfect, poor = answered(kind, folder)
    best, worse = (task.scores(lines, pairs, corpus) for lines in (perfect, poor))
    assert task.scores(perfect, pairs, corpus) == best
    assert best.get("accuracy", 100) == 100  # in percent
    for name, measure in task.measures.items():
        higher = measure.higher_is_better
        assert (best[name] >= worse[name]) == higher or best[name] == worse[name], name
    assert best[task.chosen_by] != worse[task.chosen_by]
    # What is logged in training is of the same kind, and its first chooses checkpoints.
    quick = task.quick_scores(perfect, pairs)
    assert task.chosen_by in quick
    assert quick.items() <= best.items()
    json.dumps(best, allow_nan=False)


@each_task
def test_measures_are_made_of_sums(kind, folder):
    task, _, pairs, perfect, poor = answered(kind, folder)
    answers = [*perfect[: len(pairs) // 2], *poor[len(pairs) // 2 :]]
    for measure in task.measures.values():
        statistics = measure.statistics(answers, pairs)
        assert statistics.shape[0] == len(pairs)
        # Each row is that of its example, wherever it stands and however often. (What
        # is counted may depend on the set, such as on the classes in it.)
        order = [*reversed(range(len(pairs))), *range(len(pairs))]
        drawn = [[side[i] for i in order] for side in (answers, pairs)]
        np.testing.assert_array_equal(measure.statistics(*drawn), statistics[order])
        score = measured(measure, statistics)
        assert math.isfinite(score)
        sums = statistics.sum(0)
        np.testing.assert_allclose(measure.of(np.stack([sums, sums])), [score] * 2)


@each_task
def test_a_system_is_compared_with_another_and_with_itself(kind, folder):
    task, corpus, pairs, perfect, poor = answered(kind, folder)
    for row in task.compare(perfect, list(perfect), pairs, corpus).values():
        assert (row["difference"], row["p_value"]) == (0, 1)
    row = task.compare(perfect, poor, pairs, corpus)[task.chosen_by]
    better = row["difference"] if task.higher_is_better else -row["difference"]
    assert better > 0
    assert row["p_value"] < 0.05
    tests = task.significance(task.chosen_by, perfect, poor, pairs, corpus)
    assert tests["difference"] == pytest.approx(row["difference"])
    assert tests["bootstrap"] == row["p_value"]
    assert tests["randomisation"] < 0.05


# ---------------------------------------------------------------- options and answers


@each_task
def test_options_that_mean_nothing_are_refused(kind, folder):
    task = example_of(kind).task(kind, folder)
    names = {"beam", "alignments", "nbest", "sample", *task.unused}
    for name in names:
        flags = {n: types.SimpleNamespace(present=n == name) for n in names}
        if name in task.unused:
            with pytest.raises(UserError, match=f"--{name}: .*{kind!r}"):
                refuse_unused(task, flags)
        else:
            refuse_unused(task, flags)
    # What is not searched for has no option of a search.
    assert task.searches or "alignments" in task.unused
    assert ("beam" in task.unused) == (task.predicts != "target")


@each_task
def test_models_without_a_source_or_a_search_export_their_weights_alone(kind, folder):
    config = example_of(kind).config(kind, folder)
    translator = types.SimpleNamespace(members=[None], config=config)
    check_task(translator, "safetensors", EXPORTS["safetensors"])
    if TASKS[kind].predicts != "target" or not TASKS[kind].has_source:
        with pytest.raises(UserError, match=f"{kind!r} does not"):
            check_task(translator, "stablehlo", EXPORTS["stablehlo"])


# For ideas, by tests/test_your_idea.py.
OF_EACH_TASK = [
    test_examples_are_encoded_without_loss,
    test_a_wrong_model_is_refused_and_the_right_ones_named,
    test_scores_follow_from_the_answers,
    test_measures_are_made_of_sums,
    test_a_system_is_compared_with_another_and_with_itself,
]

# --------------------------------------------------------------------------- whole runs

# The others take seconds each to compile.
ALWAYS = ("classification", "masked_language_model")


@pytest.mark.parametrize(
    "kind",
    [k if k in ALWAYS else pytest.param(k, marks=pytest.mark.slow) for k in TASKS],
)
def test_a_run_is_trained_scored_and_resumed(kind, folder, tmp_path):
    example = example_of(kind)
    config = example.config(kind, folder)
    scores = train(config, tmp_path / "whole")
    (dev_scores,) = logged(tmp_path / "whole", "dev")
    task = TASKS[kind](config)
    assert math.isfinite(dev_scores[task.chosen_by])
    # What is stored follows from the answers that are stored.
    for place in config.data.test.split(","):
        corpus = task.open(place, config.data.dir)
        scorer, stored = task.of(corpus), scores[corpus.name]
        answers = read_answers(stored, corpus, tmp_path / "whole")
        recomputed = scorer.scores(answers, scorer.examples(corpus), corpus)
        assert recomputed.items() <= stored.items()
        assert recomputed
    # Half a run that is continued ends in the same bytes.
    half = example.config(kind, folder, train={"steps": 2})
    train(half, tmp_path / "half")
    shutil.rmtree(tmp_path / "half/scores")
    shutil.rmtree(tmp_path / "half/translations")
    train(config, tmp_path / "half")
    translations = [
        contents(tmp_path / name / "translations") for name in ("whole", "half")
    ]
    assert translations[0] == translations[1]
    hashes = [
        Translator.load(tmp_path / name).provenance()["parameters_sha256"]
        for name in ("whole", "half")
    ]
    assert hashes[0] == hashes[1]
