"""What is damaged beside the checkpoints: named, refused where it has to be, kept."""

import contextlib
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
from t2t_jax.workdir import CHECK, Workdir
from tests.faults.damage import (
    EVERY,
    contents,
    delete,
    empty,
    flip,
    garbage,
    same_arrays,
    truncate,
    zeros,
)
from tests.faults.stopped_run import assert_same_end, go_on


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
    """Half a line at the end is none: that is how a crash leaves it."""
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


def test_damaged_metrics_do_not_change_what_is_trained(workdir, whole, text, capsys):
    file = workdir / "metrics.jsonl"
    damaged = b"\x00" * 4096 + b"\n" + file.read_bytes()[100:]
    file.write_bytes(damaged)
    go_on(workdir, text)
    told = capsys.readouterr().err
    assert all(f"{file}, line {n} is damaged; ignored" in told for n in (1, 2))
    assert file.read_bytes().startswith(damaged)
    for place in ("checkpoints/state/12", "checkpoints/parameters/12"):
        assert same_arrays(workdir / place, whole / place)


@pytest.mark.parametrize("damage", [garbage, zeros])
def test_metrics_that_were_overwritten_are_told(workdir, text, capsys, damage):
    """More than half a line is gone: no crash does that."""
    file = workdir / "metrics.jsonl"
    damage(file, Random(1))
    file.write_bytes(file.read_bytes().replace(b"\n", b""))
    go_on(workdir, text)
    assert f"warning: {file}" in capsys.readouterr().err


def test_damaged_starts_are_told_and_kept(workdir, whole, text, capsys):
    file = workdir / "starts.jsonl"
    garbage(file, Random(2))
    damaged = file.read_bytes()
    go_on(workdir, text)
    told = capsys.readouterr().err
    assert "starts.jsonl is damaged or missing, so the machine" in told
    kept, _, added = file.read_bytes().removesuffix(b"\n").rpartition(b"\n")
    assert kept == damaged.removesuffix(b"\n")
    assert json.loads(added)["step"] == 8
    assert_same_end(workdir, whole)


def rolled_back(workdir):
    """Writes a rollback, as if the run had gone back to step 8."""
    rollback = Rollback(8, Position(0, 9), Position(0, 11), "it had diverged")
    Rollbacks(Workdir(workdir)).add(rollback)
    return workdir / "rollbacks.json"


@pytest.mark.parametrize("damage", [truncate, empty, garbage, zeros])
def test_damaged_rollbacks_are_refused(workdir, text, damage):
    file = rolled_back(workdir)
    damage(file, Random(3))
    before = contents(workdir / "checkpoints"), file.read_bytes()
    with pytest.raises(UserError, match=f"{file} is damaged .* restore it"):
        go_on(workdir, text)
    assert (contents(workdir / "checkpoints"), file.read_bytes()) == before


def test_not_one_bit_of_the_rollbacks_may_be_another(tmp_path):
    """Or the run would go on with other data."""
    file = rolled_back(tmp_path)
    written, wanted = file.read_bytes(), Rollbacks(Workdir(tmp_path)).all
    for at in range(8 * len(written)):
        changed = bytearray(written)
        changed[at // 8] ^= 1 << at % 8
        file.write_bytes(changed)
        with contextlib.suppress(UserError):
            assert Rollbacks(Workdir(tmp_path)).all == wanted


def test_lost_rollbacks_are_missed(workdir, text):
    file = rolled_back(workdir)
    go_on(workdir, text, steps=9)  # metrics.jsonl tells of it now
    delete(file, Random(0))
    with pytest.raises(UserError, match="rollbacks.json"):
        go_on(workdir, text)


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
            with pytest.raises(UserError) as error:
                use()
            assert name in str(error.value)
        assert contents(workdir) == damaged
        if (workdir / name).is_dir():
            (workdir / name).rmdir()
        (workdir / name).write_bytes(before[name])


@pytest.mark.parametrize("name", [*VOUCHED, OF_SOURCE])
def test_not_one_bit_of_what_makes_a_workdir_may_be_another(workdir, name):
    """But where JSON says the same in another way, such as 1E-9."""
    if name == OF_SOURCE:
        give_it_a_source_tokenizer(workdir)
    file = workdir / name
    written, random = file.read_bytes(), Random(4)
    wanted = read_all(workdir)
    try:
        for _ in range(300):
            flip(file, random)
            with contextlib.suppress(UserError):
                assert read_all(workdir) == wanted
            file.write_bytes(written)
    finally:
        file.write_bytes(written)


def read_all(workdir):
    readers = (Workdir.config, Workdir.vocabulary, Workdir.text)
    config, vocabulary, text = (read(Workdir(workdir)) for read in readers)
    return config, [side.model for side in vocabulary.sides], text


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


def test_a_workdir_that_lost_its_config_is_no_new_one(workdir, text):
    (workdir / "config.json").unlink()
    before = contents(workdir)
    with pytest.raises(UserError, match="has checkpoints but no config.json"):
        go_on(workdir, text)
    with pytest.raises(UserError, match="it has no config.json"):
        Translator.load(workdir)
    assert contents(workdir) == before


def test_files_of_another_run_are_refused(workdir, text, tmp_path):
    """Each is whole, but they do not belong together."""
    other, lines = tmp_path / "other", (text / "dev.en").read_text().splitlines()
    config = Workdir(workdir).config()
    Workdir(other).store(
        dataclasses.replace(config, train=dataclasses.replace(config.train, seed=1)),
        Vocabulary(train_tokenizer(lines, 330), "tokenizer.model"),
        Workdir(workdir).text() | {"read": 1},
    )
    for name, told in (
        ("config.json", "train.seed: 1 there, 0 now"),
        ("training_text.json", "training_text.json was changed after"),
        ("tokenizer.model", "tokenizer.model was changed after"),
    ):
        mixed = tmp_path / name
        shutil.copytree(workdir, mixed)
        shutil.copy(other / name, mixed / name)
        before = contents(mixed)
        with pytest.raises(UserError, match=told):
            go_on(mixed, text)
        assert contents(mixed) == before
