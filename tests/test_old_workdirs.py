"""Workdirs of version 0.2.0 open, go on and answer as they did when they were made.

tests/workdirs/make.py tells how they were made.
"""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from t2t_jax import train
from t2t_jax.tools.compare.runs import compare_runs
from t2t_jax.training.checkpoint_folders import damage
from t2t_jax.workdir import Workdir
from tests.workdirs import make

EXPECTED = json.loads((make.HERE / "expected.json").read_text(encoding="utf-8"))
# Other processors and versions of XLA round otherwise, and training amplifies that.
ROUNDING = 1e-4


@pytest.fixture(scope="module", params=make.MADE)
def run(request, tmp_path_factory):
    """A copy of a workdir as it was stored, and one that was continued."""
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(make.ROOT)
        old = shutil.copytree(make.HERE / name, folder / "old")
        continued = shutil.copytree(old, folder / "continued")
        before = make.answers(name, old)
        train(make.config_of(name, make.SEEN + make.MORE), continued)
        yield SimpleNamespace(
            name=name,
            old=old,
            continued=continued,
            before=before,
            after=make.answers(name, continued),
            expected=EXPECTED[name],
        )


def checkpoints(workdir):
    return {
        str(path.parent.relative_to(workdir / "checkpoints")): path.parent
        for path in sorted(workdir.glob("checkpoints/*/*/manifest.json"))
    }


def close(found: dict, wanted: dict) -> None:
    """Texts and steps are equal, numbers nearly."""
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if name in ("greedy", "steps"):
            assert found[name] == value, name
        else:
            np.testing.assert_allclose(found[name], value, ROUNDING, err_msg=name)


def test_its_files_are_as_they_were_sealed(run):
    workdir = Workdir(run.old)  # reading checks hashes
    assert workdir.config().train.steps == make.SEEN
    assert len(workdir.vocabulary()) > 300
    assert workdir.text()["kept"] > 50
    sealed = checkpoints(run.old)
    assert {f"state/{make.SEEN}", f"parameters/{make.SEEN}"} <= sealed.keys()
    assert {name: damage(path) for name, path in sealed.items()} == dict.fromkeys(
        sealed, ""
    )


def test_it_answers_as_it_did(run):
    close(run.before, run.expected["before"])


def test_it_goes_on_as_it_did(run):
    """No line of the log is lost, and new ones are those of then."""
    log, wanted = make.logged(run.continued), run.expected["log"]
    assert log[: len(make.logged(run.old))] == make.logged(run.old)
    assert [(e["kind"], e["step"]) for e in log] == [
        (e["kind"], e["step"]) for e in wanted
    ]
    for entry, then in zip(log, wanted, strict=True):
        del entry["kind"], then["kind"]
        assert entry == pytest.approx(then, rel=ROUNDING)
    close(run.after, run.expected["after"])


def test_scores_that_were_stored_are_there(run):
    """`lstm` has a test set; the same checkpoints count, so its scores stay."""
    files = [path.name for path in run.continued.glob("scores/*")]
    assert files == (["test.json"] if run.name == "lstm" else [])
    for name in files:
        old, new = (w / "scores" / name for w in (run.old, run.continued))
        assert old.read_bytes() == new.read_bytes()


def test_it_is_compared_with_the_run_that_went_on(run):
    sections = compare_runs([str(run.old), str(run.continued)])
    told = json.dumps(sections, default=str)
    differs = {title: section.differs for title, section in sections.items()}
    assert differs["data"] is False, told
    assert differs["arrays"] is False, told
    assert differs["config"] is True, told
    assert "train.steps" in told
