"""A run whose workdir is damaged says so, and ends in the same bytes or is refused."""

import contextlib
import dataclasses
import json
import shutil
from random import Random
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax import Translator, UserError
from t2t_jax.data.feeding import Position
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.evaluation.dev_answers import DevAnswers
from t2t_jax.io import sealed
from t2t_jax.training.divergence import Rollback, Rollbacks
from t2t_jax.training.metrics_log import MetricsLog
from t2t_jax.workdir import CHECK, Workdir
from tests.faults.damage import (
    EVERY,
    become_a_file,
    become_a_folder,
    delete,
    empty,
    files_of,
    flip,
    garbage,
    go_on,
    largest,
    swap,
    truncate,
    zeros,
)
from tests.small_run import assert_same, assert_same_run, contents, final_parameters


def test_a_run_that_is_left_alone_ends_as_one_that_never_stopped(whole, trained, text):
    assert_same(*(final_parameters(w, text) for w in (whole, trained[0])))


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


def put_parameters_there(state):
    shutil.rmtree(state)
    shutil.copytree(state.parents[1] / "parameters/8", state)


def damage_both(checkpoints):
    for kind in ("state", "parameters"):
        garbage(largest(checkpoints / kind / "8"), Random(3))


def with_random(damage, name="", seed=1):
    """Damages a file of a checkpoint: its largest, or that of a name."""
    return lambda folder: damage(
        folder / name if name else largest(folder), Random(seed)
    )


STATE, PARAMETERS = "checkpoints/state/8", "checkpoints/parameters/8"
SURVIVED = {
    "a flipped bit": (
        STATE,
        with_random(flip),
        "was changed after it was written: its SHA-256 differs",
        4,
    ),
    "a file cut off": (
        STATE,
        with_random(truncate, "state/_METADATA"),
        "when written",
        4,
    ),
    "no manifest": (STATE, with_random(delete, "manifest.json"), "has no manifest", 4),
    "an empty folder": (STATE, with_random(become_a_folder, "."), "has no manifest", 4),
    "parameters as a state": (STATE, put_parameters_there, "is damaged", 4),
    "a file as a state": (
        STATE,
        lambda state: become_a_file(state, Random(5)),
        "is a file, not a checkpoint",
        4,
    ),
    "damaged parameters": (PARAMETERS, with_random(flip), "and is saved again", 8),
    "both": ("checkpoints", damage_both, "is damaged", 4),
    "what a kill leaves": ("checkpoints", leave_as_a_kill_does, "", 8),
    "starts": (
        "starts.jsonl",
        lambda file: garbage(file, Random(2)),
        "starts.jsonl is damaged or missing, so the machine",
        8,
    ),
}


@pytest.mark.parametrize("what", SURVIVED)
def test_damage_is_told_set_aside_and_changes_nothing(
    workdir, whole, text, capsys, what
):
    name, damage, told, step = SURVIVED[what]
    place, aside = workdir / name, workdir / "checkpoints/set_aside"
    damage(place)
    damaged = contents(place) if place.is_dir() else {}
    go_on(workdir, text)
    said = capsys.readouterr().err
    assert told in said
    assert ("warning" in said) == bool(told)
    # A file in the place of a state is not one that the run goes back from.
    word = "after" if step == 8 or what == "a file as a state" else "from"
    assert f"continuing {word} step {step}\n" in said
    if what == "starts":
        assert json.loads((workdir / name).read_bytes().splitlines()[-1])["step"] == 8
    elif what == "what a kill leaves":
        for kind in ("state", "parameters"):
            there = sorted(p.name for p in (workdir / "checkpoints" / kind).iterdir())
            assert there == ["12", "8"]
        assert not (workdir / ".lock").exists()
    elif name != "checkpoints":
        assert f"warning: {place} is " in said
        if damaged:
            kept = aside / name.removeprefix("checkpoints/").replace("/", "-")
            assert f"moved to {kept}\n" in said
            assert contents(kept) == damaged
    assert_same_run(whole, workdir)


def rising(self, parameters, step):
    """Dev BLEU, in place of translations."""
    return {"bleu": float(step)}


MEASURED = {"data": {"dev": "dev"}, "eval_every": 4, "keep_best": 2}


@pytest.fixture(scope="module")
def measured(compiled_once, text, tmp_path_factory):
    """A stopped run whose dev BLEU was measured; 4 and 8 are kept as the best two."""
    workdir = tmp_path_factory.mktemp("measured") / "work"
    with mock.patch.object(DevAnswers, "__call__", rising):
        go_on(workdir, text, steps=8, **MEASURED)
    return workdir


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["state", "parameters", "best"])
def test_damage_of_any_file_of_a_checkpoint_changes_nothing(
    measured, whole, text, tmp_path, capsys, kind
):
    """One bit of each file, and some files cut, emptied and taken away."""
    random, folder = Random(0), measured / "checkpoints" / kind / "8"
    names = [str(file.relative_to(folder)) for file in files_of(folder)]
    cases = [(flip, name) for name in names]
    some = ["manifest.json", *random.sample(names, 3)]
    cases += [(damage, n) for damage in (truncate, empty, delete) for n in some]
    for damage, name in cases:
        workdir = shutil.copytree(measured, tmp_path / "work")
        place = workdir / "checkpoints" / kind / "8"
        if damage not in (truncate, flip) or (place / name).stat().st_size:
            damage(place / name, random)
        with mock.patch.object(DevAnswers, "__call__", rising):
            go_on(workdir, text, **MEASURED)
        Translator.load(workdir, "best:2")
        assert f"warning: {place} is" in capsys.readouterr().err, (damage, name)
        assert_same_run(whole, workdir, "best", "metrics", "config", "names")
        shutil.rmtree(workdir)


@pytest.mark.parametrize("damage", [flip, truncate, delete])
def test_a_damaged_best_is_named_and_the_next_is_used(
    measured, text, tmp_path, capsys, damage
):
    workdir = shutil.copytree(measured, tmp_path / "work")
    best = workdir / "checkpoints" / "best" / "8"
    damage(largest(best), Random(6))
    assert Translator.load(workdir, "best").steps == (4,)
    assert f"warning: {best} is damaged (" in capsys.readouterr().err
    with pytest.raises(UserError, match="only 1 of the 2 requested checkpoints"):
        Translator.load(workdir, "best:2")
    damage(largest(workdir / "checkpoints" / "best" / "4"), Random(6))
    with pytest.raises(UserError, match="only 0 of the 1 requested checkpoints"):
        Translator.load(workdir, "best")
    with mock.patch.object(DevAnswers, "__call__", rising):
        go_on(workdir, text, **MEASURED)
    assert Translator.load(workdir, "best").steps == (12,)


# ------------------------------------------------------------------------ it is refused


def flip_every_state(workdir):
    for number, state in enumerate((workdir / "checkpoints/state").iterdir()):
        flip(largest(state), Random(number))


def lose_manifests(workdir):
    for state in (workdir / "checkpoints/state").iterdir():
        (state / "manifest.json").unlink()


def misplace_states(workdir):
    for state in [*(workdir / "checkpoints/state").iterdir()]:
        state.rename(workdir / "checkpoints" / state.name)


def rolled_back(workdir):
    """Writes a rollback, as if the run had gone back to step 8."""
    rollback = Rollback(8, Position(0, 9), Position(0, 11), "it had diverged")
    Rollbacks(Workdir(workdir)).add(rollback)
    return workdir / "rollbacks.json"


def damage_rollbacks(damage):
    return lambda workdir: damage(rolled_back(workdir), Random(3))


def stored(workdir):
    """All that a run continues from."""
    rollbacks = workdir / "rollbacks.json"
    rolled = rollbacks.read_bytes() if rollbacks.exists() else None
    return contents(workdir / "checkpoints"), rolled


# Words of the error -> damages of a workdir.
REFUSED = {
    "every checkpoint that the run(.|\n)*No checkpoint was changed": [flip_every_state],
    "is damaged or lost": [
        lose_manifests,
        lambda workdir: delete(workdir / "checkpoints/state", Random(0)),
        misplace_states,
    ],
    "is a file; want the folder": [
        lambda workdir: become_a_file(workdir / "checkpoints", Random(5)),
        lambda workdir: become_a_file(workdir / "checkpoints/state", Random(5)),
    ],
    "has checkpoints but no config.json": [lambda w: (w / "config.json").unlink()],
    "rollbacks.json is damaged .* restore it": [
        damage_rollbacks(damage) for damage in (truncate, empty, garbage, zeros)
    ],
}


@pytest.mark.parametrize(
    ("told", "damage"),
    [(told, each) for told, all_ in REFUSED.items() for each in all_],
)
def test_what_cannot_be_continued_is_refused_and_left_as_it_is(
    workdir, text, told, damage
):
    damage(workdir)
    before = stored(workdir)
    with pytest.raises(UserError, match=told):
        go_on(workdir, text)
    assert stored(workdir) == before


def test_a_state_that_is_put_back_is_continued_from(workdir, whole, text, capsys):
    kept = shutil.copytree(workdir / "checkpoints/state/4", workdir.parent / "kept")
    flip_every_state(workdir)
    with pytest.raises(UserError, match="every checkpoint"):
        go_on(workdir, text)
    shutil.copytree(kept, workdir / "checkpoints/state/4", dirs_exist_ok=True)
    go_on(workdir, text)
    assert "continuing from step 4\n" in capsys.readouterr().err
    assert_same_run(whole, workdir)


@pytest.mark.parametrize("name", ["8.copy", "008"])
def test_a_copy_that_a_person_made_is_not_cleared_away(workdir, text, name):
    folders = [workdir / "checkpoints" / kind for kind in ("state", "parameters")]
    for folder in folders:
        shutil.copytree(folder / "8", folder / name)
    go_on(workdir, text)
    assert all((folder / name).exists() for folder in folders)


@pytest.mark.parametrize("kind", ["state", "parameters"])
def test_checkpoints_that_took_each_others_place_are_told(workdir, text, capsys, kind):
    folder, told = workdir / "checkpoints" / kind, ""
    swap(folder / "4", folder / "8")
    try:
        go_on(workdir, text)
    except UserError as error:  # both states are not what they seem
        told = str(error)
    assert f"{folder / '8'}" in told + capsys.readouterr().err


def test_lost_rollbacks_are_missed(workdir, text):
    file = rolled_back(workdir)
    go_on(workdir, text, steps=9)  # metrics.jsonl tells of it now
    file.unlink()
    with pytest.raises(UserError, match="rollbacks.json"):
        go_on(workdir, text)


# ---------------------------------------------------------------------------- not a bit


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_not_one_bit_of_a_checkpoint_may_be_another(stopped, data):
    """But in its manifest the word `notes`, where there is nothing to note."""
    kind = data.draw(st.sampled_from(["state", "parameters"]), "kind")
    folder = stopped / "checkpoints" / kind / "8"
    file = data.draw(st.sampled_from(files_of(folder)), "file")
    written = file.read_bytes()
    try:
        flip(file, data.draw(st.randoms(use_true_random=False), "random"))
        found = sealed.damage(folder)
        assert found or (file.name, sealed.notes(folder)) == (sealed.MANIFEST, {})
    finally:
        file.write_bytes(written)
    assert sealed.damage(folder) == ""


def read_all(workdir):
    readers = (Workdir.config, Workdir.vocabulary, Workdir.text)
    config, vocabulary, text = (read(Workdir(workdir)) for read in readers)
    rollbacks = Rollbacks(Workdir(workdir)).all
    return config, [side.model for side in vocabulary.sides], text, rollbacks


VOUCHED = ("config.json", "training_text.json", "tokenizer.model")
OF_SOURCE = "source_tokenizer.model"
SEPARATE = {"model": {"tied": "target"}, "data": {"joint_vocabulary": False}}


def give_it_a_source_tokenizer(workdir):
    """As if the run had begun with one."""
    run = Workdir(workdir)
    config, vocabulary, text = run.config(), run.vocabulary(), run.text()
    for section, values in SEPARATE.items():
        changed = dataclasses.replace(getattr(config, section), **values)
        config = dataclasses.replace(config, **{section: changed})
    separate = Vocabulary(vocabulary.model, source=vocabulary)
    (workdir / "config.json").unlink()
    run.store(config, separate, text)


@pytest.mark.parametrize("name", [*VOUCHED, OF_SOURCE])
def test_what_makes_a_workdir_is_refused_where_it_is_damaged(workdir, text, name):
    sections = SEPARATE if name == OF_SOURCE else {}
    if sections:
        give_it_a_source_tokenizer(workdir)
    before = contents(workdir)
    for number, damage in enumerate(EVERY):
        damage(workdir / name, Random(number))
        damaged = contents(workdir)
        uses = [lambda: go_on(workdir, text, **sections)]
        if name != "training_text.json":  # which a translator has no use for
            uses.append(lambda: Translator.load(workdir))
        for use in uses:
            with pytest.raises(UserError, match=name):
                use()
        assert contents(workdir) == damaged
        if (workdir / name).is_dir():
            (workdir / name).rmdir()
        (workdir / name).write_bytes(before[name])


@pytest.mark.parametrize("name", [*VOUCHED, OF_SOURCE, "rollbacks.json"])
def test_not_one_bit_of_what_makes_a_workdir_may_be_another(workdir, name):
    """But where JSON says the same in another way, such as 1E-9."""
    if name == OF_SOURCE:
        give_it_a_source_tokenizer(workdir)
    if name == "rollbacks.json":  # or the run would continue with other data
        rolled_back(workdir)
    file, random = workdir / name, Random(4)
    written, wanted = file.read_bytes(), read_all(workdir)
    for _ in range(300):
        flip(file, random)
        with contextlib.suppress(UserError):
            assert read_all(workdir) == wanted
        file.write_bytes(written)


def test_of_damaged_files_the_right_one_is_named(workdir):
    """A hash of tokenizer.model that is another is damage of config.json."""
    file = workdir / "config.json"
    content = json.loads(file.read_bytes())
    for name in VOUCHED[1:]:
        changed = json.loads(json.dumps(content))
        hashed = changed[CHECK][name]
        changed[CHECK][name] = ("1" if hashed[0] == "0" else "0") + hashed[1:]
        file.write_text(json.dumps(changed, indent=2))
        with pytest.raises(UserError, match="config.json"):
            read_all(workdir)


def test_files_of_another_run_are_refused(workdir, text, tmp_path):
    """Each is whole, but they do not belong together."""
    other, lines = tmp_path / "other", (text / "dev.en").read_text().splitlines()
    config = Workdir(workdir).config()
    Workdir(other).store(
        dataclasses.replace(config, train=dataclasses.replace(config.train, seed=1)),
        Vocabulary(train_tokenizer(lines, 330), "tokenizer.model"),
        Workdir(workdir).text() | {"read": 1},
    )
    for name, told in zip(
        VOUCHED,
        ("train.seed: 1 there, 0 now", "text.json was changed", "model was changed"),
        strict=True,
    ):
        mixed = shutil.copytree(workdir, tmp_path / name)
        shutil.copy(other / name, mixed / name)
        with pytest.raises(UserError, match=told):
            go_on(mixed, text)


# ------------------------------------------------------------------------------ metrics


@pytest.mark.parametrize(
    ("damage", "number"),
    [
        (lambda lines: [lines[0], lines[1][:40] + b"\n"], 2),
        (lambda lines: [lines[0], b"\x00" * 50 + b"\n", lines[2]], 2),
        (lambda lines: [*lines, b"\xff\x00\x1f" * 99 + b"\n"], 5),
        (lambda lines: [b"null\n", *lines], 1),
        (lambda lines: [*lines, b'{"step": 9, "kind": "tr'], None),
        (lambda lines: [], None),
    ],
)
def test_a_damaged_line_is_told_and_left_as_it_is(
    stopped, tmp_path, capsys, damage, number
):
    """Half a line at the end is not damage: that is how a crash leaves it."""
    file = tmp_path / "metrics.jsonl"
    damaged = damage((stopped / file.name).read_bytes().splitlines(keepends=True))
    file.write_bytes(b"".join(damaged))
    lines = MetricsLog(file)
    lines.write(10, "train", {"loss": 1.0})
    lines.close()
    told = f"warning: {file}, line {number} is damaged; ignored, not removed\n"
    assert capsys.readouterr().err == (told if number else "")
    kept = b"".join(line for line in damaged if line.endswith(b"\n"))
    added = b'{"step": 10, "kind": "train", "loss": 1.0}\n'
    assert file.read_bytes() == kept + added


def overwrite(damage):
    """More than half a line is gone: no crash does that."""

    def overwritten(file):
        damage(file, Random(1))
        file.write_bytes(file.read_bytes().replace(b"\n", b""))

    return overwritten


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: f.write_bytes(b"\x00" * 4096 + b"\n" + f.read_bytes()[100:]),
        overwrite(garbage),
        overwrite(zeros),
    ],
)
def test_damaged_metrics_are_told_and_do_not_change_what_is_trained(
    workdir, whole, text, capsys, damage
):
    file = workdir / "metrics.jsonl"
    damage(file)
    go_on(workdir, text)
    assert f"warning: {file}" in capsys.readouterr().err
    assert_same_run(whole, workdir, "metrics")
