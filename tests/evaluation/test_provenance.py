"""Provenance of a score: its text, code and machine, and what it is comparable with."""

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess

import pytest

from t2t_jax import Translator
from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation import provenance
from t2t_jax.evaluation.provenance import (
    PUBLISHED,
    ScoredText,
    code_version,
    compare_with,
)
from t2t_jax.evaluation.scores import read_answers
from t2t_jax.io.atomic import read_checked_json
from t2t_jax.io.errors import UserError


def test_a_score_has_its_provenance(trained, text):
    workdir, by_set = trained
    stored = read_checked_json(workdir / "scores/test.json")
    assert stored == by_set["test"]
    for name in ("bleu_lc", "chrf", "ter", "bleu_paper", "bleu_lc_tok"):
        assert stored[f"{name}_signature"]
    for name in ("bleu", "chrf", "ter", "bleu_paper"):
        assert set(stored[f"{name}_interval"]) == {"mean", "half_width"}
    for side, language in (("source", "en"), ("reference", "de")):
        content = (text / f"test.{language}").read_bytes()
        assert stored[f"{side}_sha256"] == hashlib.sha256(content).hexdigest()
    assert stored["config"]["model"]["width"] == 32
    assert stored["bootstrap"] == {"samples": 1_000, "seed": 12345}
    assert set(stored["versions"]) == {"t2t_jax", *provenance.PACKAGES}
    assert sum(stored["machine"]["device_kinds"].values()) == 1
    assert stored["compare_with"].startswith("no published number is known")


def test_translations_of_a_score_are_those_that_were_scored(trained, text, tmp_path):
    workdir = shutil.copytree(trained[0], tmp_path / "work")
    corpus = open_corpus("test", "en", "de", str(text))
    lines = read_answers(trained[1]["test"], corpus, workdir)
    translations = Translator.load(workdir).translate([s for s, _ in corpus.pairs()])
    assert lines == [str(translation) for translation in translations]
    file = workdir / "translations/test.de"
    for damage in (lambda: file.write_text("other\n"), file.unlink):
        damage()
        with pytest.raises(UserError, match="is not what was scored"):
            read_answers(trained[1]["test"], corpus, workdir)


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_the_commit_is_that_of_the_folder_not_of_where_one_is(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir("/")
    repository = tmp_path / "repository"
    package = repository / "package"
    package.mkdir(parents=True)
    (package / "file.py").write_text("x = 1\n")

    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(repository), *identity, *arguments]
        return subprocess.check_output(command, text=True).strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    clean = {"commit": git("rev-parse", "HEAD"), "uncommitted_changes": False}
    (package / "note.txt").write_text("not of the code")
    assert code_version(package) == clean
    (package / "file.py").write_text("x = 2\n")
    assert code_version(package) == clean | {"uncommitted_changes": True}
    # What is installed has no commit, wherever one is, nor has anything without git.
    unknown = {"commit": None, "uncommitted_changes": None}
    installed = repository / "venv/site-packages/package"
    shutil.copytree(package, installed)
    assert code_version(installed) == unknown
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))  # as inside a hook
    assert code_version(tmp_path) == unknown
    monkeypatch.setenv("PATH", "")
    assert code_version(package) == unknown


# --------------------------------------------------------------------- published sets

FULL_DE, FULL_FR, CLEANED, DEV, CAPTIONS = PUBLISHED


def line_of(published, source="en", target="de", averaged=1, **changed):
    """What is said of a score of the published set, as far as its hashes tell."""
    unknown = "0" * 64
    text = ScoredText(
        published.name,
        *(source, target, published.lines),
        *(published.whole.get(side, unknown) for side in (source, target)),
        *(published.first[side] for side in (source, target)),
    )
    return compare_with(dataclasses.replace(text, **changed), averaged)


@pytest.mark.parametrize(
    ("published", "changed", "words"),
    [
        (FULL_DE, {}, "bleu_paper is comparable.*bleu is not"),
        (FULL_DE, {}, r"\(base 27.3, big 28.4: tokenized, compounds split\)"),
        (FULL_FR, {"target": "fr"}, r"\(base 38.1, big 41.8: tokenized, nothing split"),
        (CLEANED, {}, "not comparable with Vaswani et al. 2017"),
        (DEV, {}, r"\(base 25.8, big 26.4: one checkpoint.*perplexity is per subword"),
        (DEV, {"averaged": 5}, "not comparable with Vaswani et al. 2017.*here 5 are"),
        (CAPTIONS, {}, "bleu_lc_tok is comparable with the published 41.02"),
        (FULL_DE, {"source": "de", "target": "en"}, "no published.*for this direction"),
        (DEV, {"synthetic": True}, "synthetic text"),
        (DEV, {"name": "mine", "lines": 77}, "no published.*these 77 lines"),
        # A set that was changed is not that set.
        (DEV, {"lines": 500}, "despite its name: 500 lines instead of 3,000"),
        (DEV, {"reference_first": "1" * 64}, "despite its name: the text differs"),
        (CAPTIONS, {"reference_sha256": "1" * 64}, "starts like.*the text differs"),
    ],
)
def test_a_line_says_what_a_score_is_comparable_with(published, changed, words):
    line = line_of(published, **changed)
    assert re.search(words, line)
    if "no published" in line or "differs" in line:
        assert "is comparable" not in line
