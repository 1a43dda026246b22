"""A run whose workdir is damaged says so, and ends in the same bytes or is refused."""

import dataclasses
import json
import shutil
from random import Random

import pytest

from t2t_jax import Translator, UserError
from t2t_jax.data.feeding import Position
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.training.divergence import Rollback, Rollbacks
from t2t_jax.training.metrics_log import MetricsLog
from t2t_jax.workdir import Workdir
from tests.faults.damage import (
    EVERY,
    become_a_file,
    flip,
    garbage,
    go_on,
    largest,
    truncate,
)
from tests.small_run import assert_same_run, contents

# ------------------------------------------------------------ it ends in the same bytes


def leave_as_a_kill_does(checkpoints):
    """Half written, half deleted, half a line, a lock: none of it is damage."""
    for kind in ("state", "parameters"):
        for name in ("12.orbax-checkpoint-tmp", "0.deleted"):
            shutil.copytree(checkpoints / kind / "8", checkpoints / kind / name)
            (checkpoints / kind / name / "manifest.json").unlink()
    lock = "process 4194305 on another, since 2017-06-12\n1\n"
    (checkpoints.parent / ".lock").write_text(lock)
    with open(checkpoints.parent / "metrics.jsonl", "a") as file:
        file.write('{"step": 9, "kind": "tra')


def flip_largest(checkpoint):
    flip(largest(checkpoint), Random(1))


def damage_both(checkpoints):
    for kind in ("state", "parameters"):
        garbage(largest(checkpoints / kind / "8"), Random(3))


STATE, PARAMETERS = "checkpoints/state/8", "checkpoints/parameters/8"


def damage_metrics(file):
    file.write_bytes(b"\x00" * 4096 + b"\n" + file.read_bytes()[100:])


# What is damaged, and how; what the run says; the step after which it continues.
SURVIVED = {
    "bit": (STATE, flip_largest, "its SHA-256 differs", 4),
    "lost": (STATE, lambda s: (s / "manifest.json").unlink(), "has no manifest", 4),
    "parameters": (PARAMETERS, flip_largest, "and is saved again", 8),
    "both": ("checkpoints", damage_both, "is damaged", 4),
    "kill": ("checkpoints", leave_as_a_kill_does, "", 8),
    "metrics": ("metrics.jsonl", damage_metrics, "is damaged; ignored", 8),
    "starts": ("starts.jsonl", lambda f: garbage(f, Random(2)), "or missing, so", 8),
}


@pytest.mark.parametrize("damage_name", SURVIVED)
def test_damage_is_told_set_aside_and_changes_nothing(
    workdir, whole, text, capsys, damage_name
):
    name, damage, message, step = SURVIVED[damage_name]
    place, aside = workdir / name, workdir / "checkpoints/set_aside"
    damage(place)
    damaged = contents(place) if place.is_dir() else {}
    go_on(workdir, text)
    log = capsys.readouterr().err
    assert message in log
    assert ("warning" in log) == bool(message)
    assert f"continuing {'after' if step == 8 else 'from'} step {step}\n" in log
    if damage_name == "starts":
        assert json.loads((workdir / name).read_bytes().splitlines()[-1])["step"] == 8
    elif damage_name == "kill":
        for kind in ("state", "parameters"):
            steps = sorted(p.name for p in (workdir / "checkpoints" / kind).iterdir())
            assert steps == ["12", "8"]
        assert not (workdir / ".lock").exists()
    elif name.startswith("checkpoints/"):
        moved = aside / name.removeprefix("checkpoints/").replace("/", "-")
        assert f"warning: {place} is " in log
        assert f"moved to {moved}\n" in log
        assert contents(moved) == damaged
    assert_same_run(whole, workdir, *({damage_name} & {"metrics"}))


# ------------------------------------------------------------------------ it is refused


def flip_every_state(workdir):
    for number, state in enumerate((workdir / "checkpoints/state").iterdir()):
        flip(largest(state), Random(number))


def rolled_back(workdir):
    """Writes a rollback, as if the run had gone back to step 8."""
    rollback = Rollback(8, Position(0, 9), Position(0, 11), "it had diverged")
    Rollbacks(Workdir(workdir)).add(rollback)
    return workdir / "rollbacks.json"


# Words of the error, and a damage of a workdir.
REFUSED = [
    ("every checkpoint that the run(.|\n)*No checkpoint was changed", flip_every_state),
    (
        "is damaged or lost",
        lambda workdir: shutil.rmtree(workdir / "checkpoints/state"),
    ),
    (
        "is a file; want the folder",
        lambda workdir: become_a_file(workdir / "checkpoints/state", Random(5)),
    ),
    (
        "has checkpoints but no config.json",
        lambda workdir: (workdir / "config.json").unlink(),
    ),
    (
        "rollbacks.json is damaged .* restore it",
        lambda workdir: truncate(rolled_back(workdir), Random(3)),
    ),
]


@pytest.mark.parametrize(("message", "damage"), REFUSED)
def test_what_cannot_be_continued_is_refused_and_left_as_it_is(
    workdir, text, message, damage
):
    def stored():
        """All that a run continues from."""
        names = contents(workdir)
        return {n: c for n, c in names.items() if n.startswith(("check", "rollbacks"))}

    damage(workdir)
    before = stored()
    with pytest.raises(UserError, match=message):
        go_on(workdir, text)
    assert stored() == before


def test_lost_rollbacks_are_missed(workdir, text):
    file = rolled_back(workdir)
    go_on(workdir, text, steps=9)  # metrics.jsonl tells of it now
    file.unlink()
    with pytest.raises(UserError, match="rollbacks.json"):
        go_on(workdir, text)


def test_a_copy_that_a_person_made_is_not_cleared_away(workdir, text):
    folders = [workdir / "checkpoints" / kind for kind in ("state", "parameters")]
    for folder in folders:
        shutil.copytree(folder / "8", folder / "8.copy")
    go_on(workdir, text)
    assert all((folder / "8.copy").exists() for folder in folders)


VOUCHED = ("config.json", "training_text.json", "tokenizer.model")


@pytest.mark.parametrize("name", VOUCHED)
def test_what_makes_a_workdir_is_refused_where_it_is_damaged(workdir, text, name):
    before = contents(workdir)
    for number, damage in enumerate(EVERY):
        damage(workdir / name, Random(number))
        damaged = contents(workdir)
        uses = [lambda: go_on(workdir, text)]
        if name != "training_text.json":  # which a translator has no use for
            uses.append(lambda: Translator.load(workdir))
        for use in uses:
            with pytest.raises(UserError, match=name):
                use()
        assert contents(workdir) == damaged
        if (workdir / name).is_dir():
            (workdir / name).rmdir()
        (workdir / name).write_bytes(before[name])


def test_files_of_another_run_are_refused(workdir, text, tmp_path):
    """Each is whole, but they do not belong together."""
    other_run, lines = tmp_path / "other", (text / "dev.en").read_text().splitlines()
    config = Workdir(workdir).config()
    Workdir(other_run).store(
        dataclasses.replace(config, train=dataclasses.replace(config.train, seed=1)),
        Vocabulary(train_tokenizer(lines, 330), "tokenizer.model"),
        Workdir(workdir).text() | {"read": 1},
    )
    for name, message in zip(
        VOUCHED,
        ("train.seed: 1 there, 0 now", "text.json was changed", "model was changed"),
        strict=True,
    ):
        mixed = shutil.copytree(workdir, tmp_path / name)
        shutil.copy(other_run / name, mixed / name)
        with pytest.raises(UserError, match=message):
            go_on(mixed, text)


# ------------------------------------------------------------------------------ metrics


def test_a_damaged_line_is_told_and_left_as_it_is(stopped, tmp_path, capsys):
    """Half a line at the end is not damage: that is how a crash leaves it."""
    file = tmp_path / "metrics.jsonl"
    lines = (stopped / file.name).read_bytes().splitlines(keepends=True)
    lines[1] = b"\x00" * 50 + b"\n"
    damaged_log = b"".join(lines)
    file.write_bytes(damaged_log + b'{"step": 9, "kind": "tr')
    log = MetricsLog(file)
    log.write(10, "train", {"loss": 1.0})
    log.close()
    message = f"warning: {file}, line 2 is damaged; ignored, not removed\n"
    assert capsys.readouterr().err == message
    added = b'{"step": 10, "kind": "train", "loss": 1.0}\n'
    assert file.read_bytes() == damaged_log + added
