"""A disk without room: told in one error, and with room the run goes on as one."""

import json
import resource

import pytest

from t2t_jax.io import sealed
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.workdir import Workdir
from tests.faults.disks import small_disk
from tests.faults.processes import RUN, Process, flags, outcome

# No file may grow over a size from a certain moment on: a write fails in its middle.
LIMITED = """
import resource
from pathlib import Path
from t2t_jax.training import loop
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
"""
STATE = """
save = loop.TrainingRun._save
def limited(self):
    if self.step == 8:
        self.checkpoints.wait()
        limit(20_000)
    save(self)
loop.TrainingRun._save = limited
"""
METRICS = """
record = loop.Reporter.record
def limited(self, step, kind, values):
    if kind == "dev":
        limit(Path(self._lines._file.name).stat().st_size + 10)
    record(self, step, kind, values)
loop.Reporter.record = limited
"""

pytestmark = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY,
    reason="files may not grow here as it is",
)


def whole(workdir, kind="state"):
    """The checkpoints that count, all of which are as they were written."""
    folder = Workdir(workdir).checkpoints / kind
    steps = sealed_steps(folder)
    assert not any(sealed.damage(folder / str(step)) for step in steps)
    return steps


def last_lines(process):
    return process.told.splitlines()[-2:]


def test_a_full_disk_is_told_before_anything_is_half_written(
    undisturbed, short, tmp_path
):
    workdir = tmp_path / "disk" / "work"
    command = flags(short, workdir, **RUN)
    with small_disk(tmp_path / "disk", "2m") as resize:
        full = Process(*command)
        assert full.end() == 2
        error, safe = last_lines(full)
        assert error.startswith(
            f"error: the checkpoint of step 8 could not be written to {workdir}/"
            "checkpoints: [Errno 28] it needs 1.5 MB, and "
        )
        assert safe == (
            "Earlier checkpoints are intact, the last of step 4. Fix the cause, and "
            "run the same command again to continue"
        )
        assert whole(workdir) == whole(workdir, "parameters") == [4]

        resize("64m")
        mended = Process(*command)
        assert mended.end() == 0
        assert "continuing after step 4" in mended.told
        assert outcome(workdir) == outcome(undisturbed)


@pytest.mark.slow
def test_a_checkpoint_that_fails_halfway_is_none(undisturbed, short, tmp_path):
    workdir = tmp_path / "work"
    command = flags(short, workdir, **RUN)
    failed = Process(*command, patch=LIMITED + STATE)
    assert failed.end() == 2
    error, safe = last_lines(failed)
    assert error.startswith("error: the checkpoint of step 8 could not be written to ")
    assert "File too large" in error or "..." in error  # what is long is cut
    assert safe.startswith("Earlier checkpoints are intact, the last of step 4. Fix")
    assert whole(workdir) == [4]

    assert Process(*command).end() == 0
    assert outcome(workdir) == outcome(undisturbed)


@pytest.mark.slow
def test_metrics_that_cannot_grow_end_the_run_and_leave_no_half_line(
    undisturbed, short, tmp_path
):
    workdir = tmp_path / "work"
    command = flags(short, workdir, **RUN)
    failed = Process(*command, patch=LIMITED + METRICS)
    assert failed.end() == 2
    assert failed.told.endswith(
        f"\nerror: [Errno 27] File too large: '{workdir}/metrics.jsonl'. What was "
        "written before is complete; fix this and retry\n"
    )
    written = (workdir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in written] == ["train"] * 5
    assert whole(workdir)[-1] == 20

    assert Process(*command).end() == 0
    assert outcome(workdir) == outcome(undisturbed)
