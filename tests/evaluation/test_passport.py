"""What is told beside a score: text, code, machine."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from t2t_jax import Translator
from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation import provenance, scores
from t2t_jax.evaluation.provenance import code_version, hashed
from t2t_jax.evaluation.scores import read_answers, score_set
from t2t_jax.io.atomic import read_checked_json
from t2t_jax.io.errors import UserError


def test_a_score_has_its_passport(trained, text):
    workdir, by_set = trained
    stored = read_checked_json(workdir / "scores/test.json")
    assert stored == by_set["test"]
    names = ("bleu", "bleu_lc", "bleu_intl", "chrf", "ter", "bleu_paper", "bleu_lc_tok")
    for name in names:
        assert stored["signature" if name == "bleu" else f"{name}_signature"]
    for name in ("bleu", "chrf", "ter", "bleu_paper"):
        assert set(stored[f"{name}_interval"]) == {"mean", "half_width"}
    for side, language in (("source", "en"), ("reference", "de")):
        content = (text / f"test.{language}").read_bytes()
        assert stored[f"{side}_sha256"] == hashlib.sha256(content).hexdigest()
    assert (stored["name"], stored["direction"]) == ("test", "en-de")
    assert stored["config"] == json.loads(json.dumps(stored["config"]))
    assert stored["config"]["model"]["width"] == 32
    assert stored["bootstrap"] == {"samples": 1_000, "seed": 12345}
    assert set(stored["versions"]) == {"t2t_jax", *provenance.PACKAGES}
    assert sum(stored["machine"]["device_kinds"].values()) == 1
    assert stored["compare_with"].startswith("no published number is known")


def test_another_commit_or_machine_scores_nothing_anew(
    trained, text, tmp_path, monkeypatch
):
    workdir = shutil.copytree(trained[0], tmp_path / "work")
    monkeypatch.setattr(provenance, "code_version", lambda: {"commit": "another"})
    monkeypatch.setattr(
        provenance, "describe_machine", lambda: {"processor": "another"}
    )
    corpus = open_corpus("test", "en", "de", str(text))
    translator = Translator.load(workdir)
    assert score_set(translator, corpus, workdir) == trained[1]["test"]
    assert not (workdir / "scores/test.1.json").exists()
    monkeypatch.setattr(scores, "SCORES_VERSION", 3)
    found = score_set(translator, corpus, workdir)
    assert found["code"] == {"commit": "another"}
    assert (workdir / "scores/test.1.json").exists()


def test_translations_of_a_score_are_those_that_were_scored(trained, text, tmp_path):
    workdir = shutil.copytree(trained[0], tmp_path / "work")
    corpus = open_corpus("test", "en", "de", str(text))
    lines = read_answers(trained[1]["test"], corpus, workdir)
    found = Translator.load(workdir).translate([s for s, _ in corpus.pairs()])
    assert lines == [str(translation) for translation in found]
    file = workdir / "translations/test.de"
    for damage in (lambda: file.write_text("other\n"), file.unlink):
        damage()
        with pytest.raises(UserError, match="is not what was just scored"):
            read_answers(trained[1]["test"], corpus, workdir)


def test_a_hash_is_that_of_a_plain_file():
    content = "eins\n\nz\u2028wei\n".encode()
    assert hashed(["eins", "", "z\u2028wei"]) == hashlib.sha256(content).hexdigest()


def git(folder, *arguments):
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A git repository with a package in it."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "repository/package").mkdir(parents=True)
    (tmp_path / "repository/package/file.py").write_text("x = 1\n")
    git(tmp_path / "repository", "init", "-q")
    git(tmp_path / "repository", "add", ".")
    git(tmp_path / "repository", "commit", "-qm", "first")
    return tmp_path / "repository"


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_the_commit_is_that_of_the_folder_not_of_where_one_is(
    checkout, tmp_path, monkeypatch
):
    commit, package = git(checkout, "rev-parse", "HEAD"), checkout / "package"
    monkeypatch.chdir("/")
    clean = {"commit": commit, "uncommitted_changes": False}
    assert code_version(package) == clean
    (package / "note.txt").write_text("not of the code")
    assert code_version(package) == clean
    (package / "file.py").write_text("x = 2\n")
    assert code_version(package) == clean | {"uncommitted_changes": True}
    # What is installed has no commit, wherever one is, nor has anything without git.
    unknown = {"commit": None, "uncommitted_changes": None}
    installed = checkout / "venv/site-packages/package"
    shutil.copytree(package, installed)
    assert code_version(installed) == unknown
    monkeypatch.setenv("GIT_DIR", str(checkout / ".git"))  # as inside a hook
    (tmp_path / "elsewhere").mkdir()
    assert code_version(tmp_path / "elsewhere") == unknown
    assert code_version(package)["commit"] == commit
    monkeypatch.setenv("PATH", "")
    assert code_version(package) == code_version(Path("/nowhere")) == unknown
