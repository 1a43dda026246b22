"""Numbers that go wrong: skipped, told with their sentences, gone back from."""

import json
import shutil

import jax.numpy as jnp
import pytest

from t2t_jax import train
from t2t_jax.extensions.run import rerun
from t2t_jax.run import train as pipeline
from t2t_jax.training import losses
from t2t_jax.training.divergence import DivergedError, Rollbacks
from t2t_jax.workdir import Workdir
from tests.faults.damage import QUIET
from tests.small_run import assert_same_run, config_for, logged

pytestmark = pytest.mark.usefixtures("compiled_once")

POISON = "Gift"


@pytest.fixture
def poisoned(text, tmp_path, monkeypatch):
    """Training text with one sentence whose loss is infinite."""
    folder = shutil.copytree(text, tmp_path / "text")
    for language in ("en", "de"):
        with open(folder / f"train.{language}", "a", encoding="utf-8") as f:
            f.write(f"{POISON} {POISON} qq.\n")
    true_loss = losses.projected

    def infinite(x_btd, table_vd, target_bt, *scaling):
        loss, nll = true_loss(x_btd, table_vd, target_bt, *scaling)
        return jnp.where((target_bt == infinite.piece).any(), jnp.inf, loss), nll

    def vocabulary(*arguments):
        prepared = find_vocabulary(*arguments)
        (ids,) = prepared.encode([f"{POISON} qq."])
        german = " ".join((text / "train.de").read_text().split())
        (other_ids,) = prepared.encode([german])
        infinite.piece = next(i for i in ids if i not in set(other_ids))
        return prepared

    find_vocabulary = pipeline._vocabulary
    monkeypatch.setattr(pipeline, "_vocabulary", vocabulary)
    monkeypatch.setattr(losses, "projected", infinite)
    return folder


def pairs_of(workdir, number):
    return [json.loads(line) for line in rerun.batch_of_step(workdir, number)[1]]


def has_poison(pairs):
    return any(POISON in pair["source"] for pair in pairs)


def test_a_batch_that_is_not_finite_is_skipped_and_told_with_its_sentences(
    poisoned, tmp_path, capsys
):
    workdir = tmp_path / "work"
    train(config_for(poisoned, data=QUIET), workdir)
    bad = [n for n in range(1, 13) if has_poison(pairs_of(workdir, n))]
    assert bad
    messages = capsys.readouterr().err
    alarms = logged(workdir, "alarm")
    assert [alarm["step"] for alarm in alarms] == bad
    assert logged(workdir, "train")[-1]["skipped"] == len(bad)
    for number in bad:
        file = workdir / "alarms" / f"{number}.jsonl"
        lines = [json.loads(line) for line in file.open(encoding="utf-8")]
        assert lines == pairs_of(workdir, number)
        assert f"step {number}: loss inf, gradient norm" in messages
        assert str(file) in messages
    poison = lines[[POISON in line["source"] for line in lines].index(True)]
    assert poison["line"] == 301  # of the file, where a person looks for it
    assert poison["source"] == f"{POISON} {POISON} qq."


def test_a_run_ends_without_leave_to_go_back_and_with_it_skips_the_data(
    poisoned, tmp_path, capsys
):
    fields = {"max_skipped": 1, "save_every": 2, "steps": 14}
    config = config_for(poisoned, data=QUIET, train=fields)
    workdir = tmp_path / "work"
    for _ in range(2):  # the same again changes nothing
        with pytest.raises(DivergedError, match="config.train.rollbacks=1 goes back"):
            train(config, workdir)
    config.train.rollbacks = 9  # which is safe to change
    train(config, workdir)
    messages = capsys.readouterr().err
    gone_back = Rollbacks(Workdir(workdir)).all
    assert gone_back
    for rollback in gone_back:
        assert f"back to step {rollback.step}, continuing with the data" in messages
    assert not any(has_poison(pairs_of(workdir, n)) for n in range(1, 15))
    assert logged(workdir, "train")[-1]["skipped"] == 0
    assert [entry["step"] for entry in logged(workdir, "rollback")] == [
        rollback.step for rollback in gone_back
    ]


@pytest.mark.slow
def test_a_run_that_went_back_is_stopped_and_goes_on_to_the_same_bytes(
    poisoned, tmp_path
):
    fields = {"max_skipped": 1, "rollbacks": 9, "save_every": 2}
    for name, stops in (("whole", [14]), ("parts", [3, 6, 7, 11, 14])):
        for steps in stops:
            changed = fields | {"steps": steps}
            config = config_for(poisoned, data=QUIET, train=changed)
            train(config, tmp_path / name)
    reference, parts = (tmp_path / name for name in ("whole", "parts"))
    assert Rollbacks(Workdir(reference)).all
    assert_same_run(reference, parts, "metrics", "best", "names")
