"""A disk without room: told in one error, and with room the run goes on as one."""

import json

import pytest

from t2t_jax import train
from t2t_jax.commands import runner
from t2t_jax.io import sealed
from t2t_jax.training import loop
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.workdir import Workdir
from tests.faults.damage import RUN
from tests.faults.disks import small_disk
from tests.small_run import assert_same_run, config_for, flags_for


def whole(workdir, kind="state"):
    """The checkpoints that count, all of which are as they were written."""
    folder = Workdir(workdir).checkpoints / kind
    steps = sealed_steps(folder)
    assert not any(sealed.damage(folder / str(step)) for step in steps)
    return steps


def test_a_full_disk_is_told_and_with_room_the_run_goes_on(
    undisturbed, short, tmp_path, start
):
    workdir = tmp_path / "disk" / "work"
    command = flags_for(short, workdir, **RUN)
    with small_disk(tmp_path / "disk", "2m") as resize:
        error, safe = start(1, *command).ends(2).err().splitlines()[-2:]
        assert "error: the checkpoint of step 8 could not be written to " in error
        assert "[Errno 28] it needs 1.5 MB, and " in error
        assert "Earlier checkpoints are intact, the last of step 4" in safe
        assert whole(workdir) == whole(workdir, "parameters") == [4]
        resize("64m")
        assert "continuing after step 4" in start(1, *command).ends(0).err()
        assert_same_run(undisturbed, workdir)


class Full:
    """A file on a disk that is full: the first half of a line fits."""

    def __init__(self, file):
        self._file = file

    def write(self, line):
        self._file.write(line[: len(line) // 2])
        self._file.flush()
        raise OSError(27, "File too large", "metrics.jsonl")

    def close(self):
        self._file.close()


@pytest.mark.usefixtures("compiled_once")
def test_metrics_that_cannot_grow_end_the_run_and_leave_no_half_line(
    trained, text, tmp_path, monkeypatch, capsys
):
    record, workdir = loop.Reporter.record, tmp_path / "work"

    def limited(self, step, kind, values):
        if kind == "dev":
            self._lines._file = Full(self._lines._file)
        return record(self, step, kind, values)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Reporter, "record", limited)
        with pytest.raises(SystemExit, match="2"):
            runner._catch_errors(lambda _: train(config_for(text), workdir), [])
    told = "too large: 'metrics.jsonl'. Everything written before is complete; fix this"
    assert told in capsys.readouterr().err
    lines = (workdir / "metrics.jsonl").read_bytes().split(b"\n")
    assert [json.loads(line)["kind"] for line in lines[:-1]] == ["train"] * 2
    assert lines[-1]
    train(config_for(text), workdir)
    assert_same_run(trained[0], workdir)
