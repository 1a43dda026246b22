"""A finished run passes the checks of `verify --workdir`; each damage fails one.

A check is told by the figure that it was not held, or by the reason why it could not
judge. Nothing is written into the workdir.
"""

import hashlib
import json
from pathlib import Path
from random import Random

import pytest

from t2t_jax.io import atomic
from t2t_jax.tools.verify import workdir_checks
from t2t_jax.tools.verify.check import Context, Unavailable
from t2t_jax.workdir import Workdir
from tests.faults.damage import flip, largest
from tests.small_run import files

QUICK = {
    "checkpoints": workdir_checks.checkpoints,
    "tokenizer": workdir_checks.tokenizer,
    "metrics": workdir_checks.metrics,
    "scores": workdir_checks.scores,
}
COMPILED = {
    "translations": workdir_checks.translations,
    "trains": workdir_checks.trains,
}
UNAVAILABLE = "unavailable"


@pytest.fixture
def copy(finished):
    return Workdir(finished)


def outcome(workdir, check):
    """True or False as the check was held, None if reported, or why it could not."""
    try:
        return check(Context(None, str(workdir))).held
    except Unavailable:
        return UNAVAILABLE


def judged(workdir, checks=QUICK):
    """The checks that were not held, and those that could not judge."""
    outcomes = {name: outcome(workdir, check) for name, check in checks.items()}
    return (
        {name for name, held in outcomes.items() if held is False},
        {name for name, held in outcomes.items() if held == UNAVAILABLE},
    )


@pytest.mark.usefixtures("compiled_once")
def test_a_finished_run_is_held_and_nothing_is_written(trained):
    before = files(trained[0])
    assert judged(trained[0], QUICK | COMPILED) == (set(), set())
    assert files(trained[0]) == before


def flip_state(run):
    flip(largest(Path(run.path / "checkpoints/state/12")), Random(0))


def lose_a_manifest(run):
    (run / "checkpoints/parameters/8/manifest.json").unlink()


def flip_tokenizer(run):
    flip(run / "tokenizer.model", Random(0))


def edit_config(run):
    file = run / "config.json"
    file.write_text(file.read_text().replace('"warmup": 6', '"warmup": 7'))


def edit_a_translation(run):
    (file,) = (run / "translations").glob("test.*")
    line, *lines = file.read_text().split("\n")
    file.write_text("\n".join([f"{line}!", *lines]))


def rewrite_scores(run, **changes):
    """Changes scores and their checksum, as one would who knows how they are stored."""
    file = run / "scores/test.json"
    stored = atomic.read_checked_json(file)
    file.write_bytes(atomic.checked_json(stored | changes))


def edit_a_score(run):
    rewrite_scores(run, chrf=99.0)


def lose_a_step(run):
    file = run / "metrics.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))


def change_entries(run, name, change):
    """Changes a number in each entry of the log that has it."""
    file = run / "metrics.jsonl"
    entries = map(json.loads, file.read_text().splitlines())
    changed = [e | ({name: change(e[name])} if name in e else {}) for e in entries]
    file.write_text("".join(json.dumps(entry) + "\n" for entry in changed))


def raise_bleu(run):
    change_entries(run, "bleu", lambda bleu: bleu + 1)


# A damage of a finished run -> the check that catches it, those that cannot judge.
DAMAGES = {
    "a bit of the state": (flip_state, "checkpoints", set()),
    "no manifest": (lose_a_manifest, "checkpoints", set()),
    "a bit of the tokenizer": (flip_tokenizer, "tokenizer", {"scores"}),
    "another config": (edit_config, "tokenizer", {"metrics", "scores"}),
    "another translation": (edit_a_translation, "scores", set()),
    "another score and its checksum": (edit_a_score, "scores", set()),
    "a lost step": (lose_a_step, "metrics", set()),
    "a raised score": (raise_bleu, "metrics", set()),
}
# The checks that compile do not judge what these have damaged.
NOT_TRANSLATED = (flip_tokenizer, edit_config, edit_a_translation)


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_caught_by_one_check(copy, name):
    damage, caught_by, not_judged = DAMAGES[name]
    damage(copy)
    assert judged(copy) == ({caught_by}, not_judged)
    if damage in NOT_TRANSLATED:
        assert outcome(copy, workdir_checks.translations) == UNAVAILABLE


def test_what_a_killed_run_leaves_is_no_damage(copy):
    with open(copy / "metrics.jsonl", "a") as file:
        file.write('{"step": 13, "ki')
    (copy / "checkpoints/parameters/12/manifest.json").unlink()
    names = ("checkpoints", "metrics")
    assert judged(copy, {name: QUICK[name] for name in names}) == (set(), set())


def replaced_line(run, line):
    """Replaces the first translation, and records that as what was scored."""
    (file,) = (run / "translations").glob("test.*")
    lines = file.read_text().split("\n")
    file.write_text("\n".join([line, *lines[1:]]))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    rewrite_scores(run, translations_sha256=digest)


@pytest.mark.usefixtures("compiled_once")
def test_a_translation_that_the_model_did_not_make_is_caught(copy):
    replaced_line(copy, "Das sagt das Modell nicht.")
    result = workdir_checks.translations(Context(None, str(copy)))
    assert result.held is False
    assert "Das sagt das Modell nicht." in result.details[0]
    # Other machines may round otherwise, but not in many lines.
    stored = atomic.read_checked_json(copy / "scores/test.json")
    rewrite_scores(copy, machine=stored["machine"] | {"processor": "another"})
    result = workdir_checks.translations(Context(None, str(copy)))
    assert (result.held, result.bound) == (True, "<= 1")  # 1 of 10
    assert "processor another -> " in result.details[-1]


@pytest.mark.usefixtures("compiled_once")
def test_a_loss_far_from_the_log_is_not_held(copy):
    change_entries(copy, "loss", lambda loss: loss / 2)
    assert outcome(copy, workdir_checks.trains) is False
