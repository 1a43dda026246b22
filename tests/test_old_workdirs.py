"""Workdirs of version 0.2 can be used, and give what they gave when they were made.

The three workdirs in `tests/workdirs` are what 0.2.0 wrote, before its modules moved;
they are never made again. `translation` is an encoder-decoder Transformer on packed
rows of the built-in corpus. `language_model` reads one side of files, and has rotary
positions. `lstm` has buckets, two vocabularies, a moving average, accumulation and the
scores of a test set. `expected.json` is what 0.2.0 answered, and how it continued them
for four steps. Their folders of text are relative: all runs in the repository's root.
"""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from t2t_jax import Translator, train
from t2t_jax.config import changed
from t2t_jax.tools.compare.runs import compare_runs
from t2t_jax.training.checkpoint_folders import damage
from t2t_jax.workdir import Workdir
from tests.small_run import ROOT

STORED = ROOT / "tests/workdirs"
EXPECTED = json.loads((STORED / "expected.json").read_text(encoding="utf-8"))
# Other processors and versions of XLA round otherwise, and training amplifies that.
ROUNDING = 1e-4
KEPT = ("kind", "step", "loss", "gradient_norm", "learning_rate", "tokens")


@pytest.fixture(scope="module", params=EXPECTED)
def run(request, tmp_path_factory):
    """A copy of a workdir as it was stored, and one that was continued."""
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        old = shutil.copytree(STORED / name, folder / "old")
        continued = shutil.copytree(old, folder / "continued")
        before = answers(name, old)
        train(changed(Workdir(old).config(), "train", steps=204), continued)
        yield SimpleNamespace(
            name=name,
            old=old,
            continued=continued,
            before=before,
            after=answers(name, continued),
            expected=EXPECTED[name],
        )


def answers(name, workdir):
    """Translations and log-probabilities of the test lines."""
    translator = Translator.load(workdir)
    sources, targets = (
        (STORED / f"text/test.{language}").read_text(encoding="utf-8").splitlines()
        for language in ("en", "de")
    )
    pairs = [*zip(sources, targets, strict=True)]
    if name == "language_model":
        pairs = [("", target) for target in targets]
        sources = [target[: len(target) // 2] for target in targets]
    translations = translator.translate(sources, beam=1)
    return {
        "steps": [*translator.steps],
        "greedy": [translation.text for translation in translations],
        "log_probs": [translation.log_prob for translation in translations],
        "scores": [score.log_prob for score in translator.score(pairs)],
    }


def logged(workdir):
    """The losses and dev scores in the log, by step."""
    entries = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in entry.items() if k in KEPT} for entry in entries]


def assert_close(actual, expected):
    """Texts and steps are equal, numbers nearly."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if name in ("greedy", "steps"):
            assert actual[name] == value, name
        else:
            np.testing.assert_allclose(actual[name], value, ROUNDING, err_msg=name)


def test_it_answers_as_it_did(run):
    assert_close(run.before, run.expected["before"])
    sealed = [path.parent for path in run.old.glob("checkpoints/*/*/manifest.json")]
    assert len(sealed) >= 2
    assert {damage(path) for path in sealed} == {""}


def test_it_goes_on_as_it_did(run):
    """No line of the log is lost, and new ones are those of then."""
    log, expected = logged(run.continued), run.expected["log"]
    assert log[: len(logged(run.old))] == logged(run.old)
    assert len(log) == len(expected)
    for entry, expected_entry in zip(log, expected, strict=True):
        assert entry.pop("kind") == expected_entry["kind"]
        numbers = {name: x for name, x in expected_entry.items() if name != "kind"}
        assert entry == pytest.approx(numbers, rel=ROUNDING)
    assert_close(run.after, run.expected["after"])


def test_scores_that_were_stored_are_there(run):
    """`lstm` has a test set: it is scored again, and what was stored is kept."""
    files = {path.name for path in run.continued.glob("scores/*")}
    assert files == ({"test.json", "test.1.json"} if run.name == "lstm" else set())
    if files:
        old = run.old / "scores/test.json"
        earlier, later = (run.continued / "scores" / name for name in sorted(files))
        assert earlier.read_bytes() == old.read_bytes()
        scores = [json.loads(file.read_text())["bleu"] for file in (old, later)]
        assert scores[0] == pytest.approx(scores[1], abs=0.5)


def test_it_is_compared_with_the_run_that_went_on(run):
    sections = compare_runs([str(run.old), str(run.continued)])
    differs = {title: section.differs for title, section in sections.items()}
    expected = {"data": False, "arrays": False, "config": True}
    assert expected.items() <= differs.items()
    assert "train.steps" in json.dumps(sections, default=str)
