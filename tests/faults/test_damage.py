"""A run whose checkpoints are damaged says so, and ends in the same bytes."""

import shutil
from random import Random
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax import Translator, UserError
from t2t_jax.evaluation.dev_answers import DevAnswers
from t2t_jax.io import sealed
from tests.faults.damage import (
    become_a_file,
    become_a_folder,
    contents,
    delete,
    files_of,
    flip,
    garbage,
    largest,
    same_arrays,
    swap,
    truncate,
)
from tests.faults.stopped_run import assert_same_end, go_on, metrics_of
from tests.small_run import assert_same, final_parameters


def test_a_run_that_is_left_alone_ends_as_one_that_never_stopped(whole, trained, text):
    assert_same(*(final_parameters(w, text) for w in (whole, trained[0])))


@pytest.mark.parametrize(
    ("damage", "name", "why"),
    [
        (flip, "", "was changed after it was written: its SHA-256 differs"),
        (truncate, "state/_METADATA", "as when written"),
        (delete, "manifest.json", "it has no manifest.json: it was not completely"),
        (become_a_folder, ".", "it has no manifest.json"),
    ],
)
def test_a_damaged_state_gives_way_to_the_one_before(
    workdir, whole, text, capsys, damage, name, why
):
    state = workdir / "checkpoints" / "state" / "8"
    damage(state / name if name else largest(state), Random(1))
    damaged = contents(state)
    go_on(workdir, text)
    told = capsys.readouterr().err
    aside = workdir / "checkpoints" / "set_aside"
    assert f"warning: {state} is damaged (" in told
    assert why in told
    assert f"; moved to {aside / 'state-8'}\ncontinuing from step 4\n" in told
    assert [p.name for p in aside.iterdir()] == ["state-8"]
    assert contents(aside / "state-8") == damaged
    assert_same_end(workdir, whole)


def test_what_a_killed_process_leaves_is_cleared_away(workdir, whole, text, capsys):
    """Half written, half deleted, half a line, a lock: none of it is damage."""
    for kind in ("state", "parameters"):
        folder = workdir / "checkpoints" / kind
        for name in ("12.orbax-checkpoint-tmp", "0.deleted"):
            shutil.copytree(folder / "8", folder / name)
            (folder / name / "manifest.json").unlink()
    (workdir / ".lock").write_text("process 4194305 on another, since 2017-06-12\n1\n")
    with open(workdir / "metrics.jsonl", "a") as file:
        file.write('{"step": 9, "kind": "tra')
    go_on(workdir, text)
    told = capsys.readouterr().err
    assert "warning" not in told
    assert "continuing after step 8" in told
    for kind in ("state", "parameters"):
        there = sorted(p.name for p in (workdir / "checkpoints" / kind).iterdir())
        assert there == ["12", "8"]
    assert not (workdir / ".lock").exists()
    assert_same_end(workdir, whole)


def test_damaged_parameters_are_made_again_from_the_state(workdir, whole, text, capsys):
    place = workdir / "checkpoints" / "parameters" / "8"
    flip(largest(place), Random(2))
    damaged = contents(place)
    go_on(workdir, text)
    told = capsys.readouterr().err
    aside = workdir / "checkpoints" / "set_aside" / "parameters-8"
    assert f"warning: {place} is damaged (parameters/" in told
    assert f"and is saved again; moved to {aside}\n" in told
    assert "continuing after step 8" in told
    assert contents(aside) == damaged
    assert_same_end(workdir, whole)


def test_a_state_and_its_parameters_may_be_damaged_at_once(
    workdir, whole, text, capsys
):
    for kind in ("state", "parameters"):
        garbage(largest(workdir / "checkpoints" / kind / "8"), Random(3))
    go_on(workdir, text)
    assert "continuing from step 4\n" in capsys.readouterr().err
    assert_same_end(workdir, whole)


def test_where_every_state_is_damaged_nothing_is_touched(workdir, whole, text, capsys):
    states = workdir / "checkpoints" / "state"
    kept = contents(states / "4")
    for random, state in enumerate(sorted(states.iterdir())):
        flip(largest(state), Random(random))
    before = contents(workdir / "checkpoints")
    with pytest.raises(UserError, match="every checkpoint that the run") as error:
        go_on(workdir, text)
    assert all(f"\n  {state}: state/" in str(error.value) for state in states.iterdir())
    assert "Nothing was changed here" in str(error.value)
    assert contents(workdir / "checkpoints") == before
    assert metrics_of(workdir) == metrics_of(whole)[:4]
    for name, content in kept.items():  # from a copy, as it says
        (states / "4" / name).write_bytes(content)
    go_on(workdir, text)
    assert "continuing from step 4\n" in capsys.readouterr().err
    assert_same_end(workdir, whole)


def lose_manifests(checkpoints):
    for state in (checkpoints / "state").iterdir():
        delete(state / "manifest.json", Random(0))


def lose_states(checkpoints):
    delete(checkpoints / "state", Random(0))


def misplace_states(checkpoints):
    for state in [*(checkpoints / "state").iterdir()]:
        state.rename(checkpoints / state.name)


@pytest.mark.parametrize("lose", [lose_manifests, lose_states, misplace_states])
def test_a_run_that_lost_its_states_does_not_begin_anew(workdir, text, lose):
    """No kill leaves parameters of two steps, and a state of neither."""
    lose(workdir / "checkpoints")
    before = contents(workdir / "checkpoints")
    with pytest.raises(UserError, match="checkpoints"):
        go_on(workdir, text)
    assert contents(workdir / "checkpoints") == before


@pytest.mark.parametrize("name", ["8.copy", "008"])
def test_a_copy_that_a_person_made_is_not_cleared_away(workdir, text, name):
    for kind in ("state", "parameters"):
        folder = workdir / "checkpoints" / kind
        shutil.copytree(folder / "8", folder / name)
    go_on(workdir, text)
    for kind in ("state", "parameters"):
        assert (workdir / "checkpoints" / kind / name).exists()


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


@pytest.mark.parametrize("kind", ["state", "parameters"])
def test_checkpoints_that_took_each_others_place_are_told(workdir, text, capsys, kind):
    folder = workdir / "checkpoints" / kind
    swap(folder / "4", folder / "8")
    told = ""
    try:
        go_on(workdir, text)
    except UserError as error:  # both states are not what they seem
        told = str(error)
    assert f"{folder / '8'}" in told + capsys.readouterr().err


def test_a_checkpoint_of_another_kind_is_no_state(workdir, whole, text, capsys):
    state = workdir / "checkpoints" / "state" / "8"
    delete(state, Random(0))
    shutil.copytree(workdir / "checkpoints" / "parameters" / "8", state)
    go_on(workdir, text)
    assert f"warning: {state}" in capsys.readouterr().err
    assert_same_end(workdir, whole)


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/state"])
def test_a_file_in_the_place_of_a_folder_is_told(workdir, text, name):
    become_a_file(workdir / name, Random(5))
    with pytest.raises(UserError, match=name):
        go_on(workdir, text)


def test_a_file_in_the_place_of_a_state_is_named(workdir, whole, text, capsys):
    state = workdir / "checkpoints" / "state" / "8"
    become_a_file(state, Random(5))
    go_on(workdir, text)
    told = capsys.readouterr().err
    assert f"warning: {state} is a file, not a checkpoint" in told
    assert "continuing after step 4" in told
    assert_same_end(workdir, whole)


@pytest.fixture(scope="module")
def measured(stopped, text, tmp_path_factory):
    """A run whose dev BLEU was measured; steps 4 and 8 are kept as the best two."""
    workdir = tmp_path_factory.mktemp("measured") / "work"
    with mock.patch.object(DevAnswers, "__call__", rising):
        go_on(workdir, text, steps=8, **MEASURED)
    return workdir


MEASURED = {"data": {"dev": "dev"}, "eval_every": 4, "keep_best": 2}


def rising(self, parameters, step):
    """Dev BLEU, in place of translations."""
    return {"bleu": float(step)}


@pytest.mark.parametrize("damage", [flip, truncate, delete])
def test_a_damaged_best_is_named_and_the_next_is_used(
    measured, whole, text, tmp_path, capsys, damage
):
    workdir = tmp_path / "work"
    shutil.copytree(measured, workdir)
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
    place = "checkpoints/parameters/12"
    assert same_arrays(workdir / "checkpoints/best/12", whole / place)
    assert same_arrays(workdir / place, whole / place)
