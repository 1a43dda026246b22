"""A finished run passes the checks of `verify --workdir`; each damage fails one.

A check is told by the figure that it was not held, or by the reason why it could not
judge. Nothing is written into the workdir.
"""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from t2t_jax.io import atomic
from t2t_jax.tools.verify import workdir_files, workdir_results
from t2t_jax.tools.verify.check import Context, Unavailable
from t2t_jax.workdir import Workdir
from tests.faults.damage import largest
from tests.small_run import files

QUICK = {
    "checkpoints": workdir_files.checkpoints,
    "tokenizer": workdir_files.tokenizer,
    "metrics": workdir_files.metrics,
    "scores": workdir_results.scores,
}
SLOWER = {  # these compile
    "translations": workdir_results.translations,
    "trains": workdir_files.trains,
}
UNAVAILABLE = "unavailable"


@pytest.fixture
def copy(trained, tmp_path):
    """A copy of a finished run, for a test to damage."""
    return Workdir(shutil.copytree(trained[0], tmp_path / "run"))


def outcome(workdir, check, full=False):
    """True or False as the check was held, None if reported, or why it could not."""
    context = Context(None, workdir and str(workdir), full)
    try:
        return check(context).held
    except Unavailable:
        return UNAVAILABLE


def judged(workdir, checks=QUICK):
    """The checks that were not held, and those that could not judge."""
    found = {name: outcome(workdir, check) for name, check in checks.items()}
    return (
        {name for name, held in found.items() if held is False},
        {name for name, held in found.items() if held == UNAVAILABLE},
    )


@pytest.mark.usefixtures("compiled_once")
def test_a_finished_run_is_held_and_nothing_is_written(trained):
    before = files(trained[0])
    assert judged(trained[0], QUICK | SLOWER) == (set(), set())
    assert files(trained[0]) == before


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_once")
def test_with_full_all_scores_come_out_again(trained):
    assert outcome(trained[0], workdir_results.scores, full=True) is True
    assert outcome(trained[0], workdir_results.translations, full=True) is True


def test_without_a_workdir_they_say_so():
    for check in (QUICK | SLOWER).values():
        with pytest.raises(Unavailable, match="no --workdir is given"):
            check(Context(None))


# ---------------------------------------------------------------------------- damage


def flip_middle(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def flip_state(run):
    flip_middle(largest(Path(run.path / "checkpoints/state/12")))


def flip_parameters(run):
    flip_middle(largest(Path(run.path / "checkpoints/parameters/12")))


def lose_a_manifest(run):
    (run / "checkpoints/parameters/8/manifest.json").unlink()


def flip_tokenizer(run):
    flip_middle(run / "tokenizer.model")


def edit_config(run):
    file = run / "config.json"
    file.write_text(file.read_text().replace('"warmup": 6', '"warmup": 7'))


def edit_a_translation(run):
    (file,) = (run / "translations").glob("test.*")
    first, *rest = file.read_text().split("\n")
    file.write_text("\n".join([f"{first}!", *rest]))


def edit_a_score(run):
    file = run / "scores/test.json"
    bleu = json.loads(file.read_text())["bleu"]
    file.write_text(file.read_text().replace(str(bleu), str(bleu + 1), 1))


def rewrite_scores(run, **changes):
    """Changes scores and their checksum, as one would who knows how they are stored."""
    file = run / "scores/test.json"
    stored = atomic.read_checked_json(file)
    file.write_bytes(atomic.checked_json(stored | changes))


def change_log(change):
    """A damage that changes the lines of the log."""

    def damage(run):
        file = run / "metrics.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(change(lines)))

    return damage


def change_entries(kind, name, change):
    """A damage of the log that changes a number in each entry of a kind."""

    def changed(line):
        entry = json.loads(line)
        if kind in ("", entry["kind"]):
            entry[name] = change(entry[name])
        return json.dumps(entry) + "\n"

    return change_log(lambda lines: map(changed, lines))


# A damage of a finished run -> the check that catches it, those that cannot judge.
DAMAGES = {
    "a bit of the state": (flip_state, "checkpoints", set()),
    "a bit of the parameters": (flip_parameters, "checkpoints", set()),
    "no manifest": (lose_a_manifest, "checkpoints", set()),
    "a bit of the tokenizer": (flip_tokenizer, "tokenizer", {"scores"}),
    "another config": (edit_config, "tokenizer", {"metrics", "scores"}),
    "another translation": (edit_a_translation, "scores", set()),
    "another score": (edit_a_score, "scores", set()),
    "another score and its checksum": (
        lambda run: rewrite_scores(run, chrf=99.0),
        "scores",
        set(),
    ),
    "swapped steps": (
        change_log(lambda lines: [lines[1], lines[0], *lines[2:]]),
        "metrics",
        set(),
    ),
    "a lost step": (change_log(lambda lines: lines[1:]), "metrics", set()),
    "a broken line": (
        change_log(lambda lines: [*lines, lines[-1].replace('"kind"', "kind")]),
        "metrics",
        set(),
    ),
    "a raised score": (
        change_entries("dev", "bleu", lambda bleu: bleu + 1),
        "metrics",
        set(),
    ),
}
# The checks that compile do not judge what these have damaged.
NOT_TRANSLATED = (flip_tokenizer, edit_config, edit_a_translation, edit_a_score)


@pytest.mark.parametrize("what", DAMAGES)
def test_each_damage_is_caught_by_one_check(copy, what):
    damage, caught_by, not_judged = DAMAGES[what]
    damage(copy)
    assert judged(copy) == ({caught_by}, not_judged)
    if damage in NOT_TRANSLATED:
        assert outcome(copy, workdir_results.translations) == UNAVAILABLE


def test_what_a_killed_run_leaves_is_no_damage(copy):
    with open(copy / "metrics.jsonl", "a") as file:
        file.write('{"step": 13, "ki')
    (copy / "checkpoints/parameters/12/manifest.json").unlink()
    of_a_run = ("checkpoints", "metrics")
    assert judged(copy, {name: QUICK[name] for name in of_a_run}) == (set(), set())


def replaced_line(run, line):
    """Replaces the first translation, and records that as what was scored."""
    (file,) = (run / "translations").glob("test.*")
    lines = file.read_text().split("\n")
    file.write_text("\n".join([line, *lines[1:]]))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    rewrite_scores(run, translations_sha256=digest)


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            lambda run: replaced_line(run, "Das sagt das Modell nicht."),
            "Das sagt das Modell nicht.",
        ),
        (  # it was the average of 8 and 12
            lambda run: rewrite_scores(run, checkpoints=[8]),
            "the parameters are not those that translated it",
        ),
    ],
)
def test_a_translation_that_the_model_did_not_make(copy, damage, told):
    damage(copy)
    result = workdir_results.translations(Context(None, str(copy)))
    assert result.held is False
    assert told in result.details[0]


@pytest.mark.usefixtures("compiled_once")
def test_other_machines_may_round_otherwise_but_not_in_many_lines(copy):
    stored = atomic.read_checked_json(copy / "scores/test.json")
    rewrite_scores(copy, machine=stored["machine"] | {"processor": "another"})
    assert outcome(copy, workdir_results.translations) is True
    replaced_line(copy, "Das sagt das Modell nicht.")  # 1 of 10
    result = workdir_results.translations(Context(None, str(copy)))
    assert (result.held, result.bound) == (True, "<= 1")
    assert "processor another -> " in result.details[-1]


@pytest.mark.usefixtures("compiled_once")
def test_a_loss_far_from_the_log_is_not_held(copy):
    change_entries("", "loss", lambda loss: loss / 2)(copy)
    assert outcome(copy, workdir_files.trains) is False
