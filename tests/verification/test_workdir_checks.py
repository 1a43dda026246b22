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


def largest_file(folder):
    return max(
        (f for f in Path(folder).rglob("*") if f.is_file()),
        key=lambda f: f.stat().st_size,
    )


def flip(file):
    """Flips one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def flip_state(run):
    flip(largest_file(run.path / "checkpoints/state/12"))


def flip_parameters(run):
    flip(largest_file(run.path / "checkpoints/parameters/12"))


def lose_a_manifest(run):
    (run / "checkpoints/parameters/8/manifest.json").unlink()


def flip_tokenizer(run):
    flip(run / "tokenizer.model")


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


def edit_a_score_and_its_checksum(run):
    rewrite_scores(run, chrf=99.0)


def swap_logged_steps(run):
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[1], lines[0], *lines[2:]]))


def lose_a_logged_step(run):
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[1:]))


def break_a_logged_line(run):
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines, lines[-1].replace('"kind"', "kind")]))


def raise_a_logged_score(run):
    file = run / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "dev":
            line["bleu"] += 1
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("damage", "caught_by", "not_judged"),
    [
        (flip_state, "checkpoints", set()),
        (flip_parameters, "checkpoints", set()),
        (lose_a_manifest, "checkpoints", set()),
        (flip_tokenizer, "tokenizer", {"scores"}),
        (edit_config, "tokenizer", {"metrics", "scores"}),
        (edit_a_translation, "scores", set()),
        (edit_a_score, "scores", set()),
        (edit_a_score_and_its_checksum, "scores", set()),
        (swap_logged_steps, "metrics", set()),
        (lose_a_logged_step, "metrics", set()),
        (break_a_logged_line, "metrics", set()),
        (raise_a_logged_score, "metrics", set()),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_damage_is_caught_by_one_check(copy, damage, caught_by, not_judged):
    damage(copy)
    assert judged(copy) == ({caught_by}, not_judged)
    # The others that need what is damaged do not judge it.
    if damage in (flip_tokenizer, edit_config, edit_a_translation, edit_a_score):
        assert outcome(copy, workdir_results.translations) == UNAVAILABLE


def test_a_line_that_is_being_written_is_no_damage(copy):
    with open(copy / "metrics.jsonl", "a") as file:
        file.write('{"step": 13, "ki')
    assert judged(copy) == (set(), set())


def test_a_checkpoint_that_a_killed_run_left_is_no_damage(copy):
    (copy / "checkpoints/parameters/12/manifest.json").unlink()
    assert outcome(copy, workdir_files.checkpoints) is True


def replaced_line(run, line):
    """Replaces the first translation, and records that as what was scored."""
    (file,) = (run / "translations").glob("test.*")
    lines = file.read_text().split("\n")
    file.write_text("\n".join([line, *lines[1:]]))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    rewrite_scores(run, translations_sha256=digest)


@pytest.mark.usefixtures("compiled_once")
def test_a_translation_that_the_model_did_not_make(copy):
    replaced_line(copy, "Das sagt das Modell nicht.")
    result = workdir_results.translations(Context(None, str(copy)))
    assert result.held is False
    assert "Das sagt das Modell nicht." in result.details[0]


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
def test_parameters_that_were_replaced_are_not_those_that_were_scored(copy):
    rewrite_scores(copy, checkpoints=[8])  # it was the average of 8 and 12
    result = workdir_results.translations(Context(None, str(copy)))
    assert result.held is False
    assert "the parameters are not those that translated it" in result.details[0]


@pytest.mark.usefixtures("compiled_once")
def test_a_loss_far_from_the_log_is_not_held(copy):
    file = copy / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line["loss"] /= 2
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert outcome(copy, workdir_files.trains) is False
