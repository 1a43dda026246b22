"""launch/slurm.sbatch in a real Slurm of one machine and two tasks: minutes."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MACHINE = HERE / "one_machine_slurm.sh"
PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue"]
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not here: no {MISSING}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a Slurm of one's own needs root"),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Of a shell that sees our Slurm and runs this Python."""
    folder = tmp_path_factory.mktemp("slurm")
    subprocess.run(["bash", MACHINE, "start", folder, "8"], check=True, timeout=60)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    path = f"{Path(sys.executable).parent}:{variables['PATH']}"
    yield variables | {
        "SLURM_CONF": f"{folder}/slurm.conf",
        "PATH": path,
        "JAX_PLATFORMS": "cpu",
    }
    subprocess.run(["bash", MACHINE, "stop", folder], check=True, timeout=60)


@pytest.fixture
def meeting(tmp_path):
    """A folder in which t2t_jax and t2t_jax.main are `meeting.py`."""
    package = tmp_path / "t2t_jax"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("main.py", "__main__.py"):
        shutil.copy(HERE / "meeting.py", package / name)
    return tmp_path


def submit(environment, folder, options, *words, log=None):
    """The job's status and what it printed."""
    log = log or folder / "job.log"
    log.unlink(missing_ok=True)
    result = subprocess.run(
        ["sbatch", "--wait", f"--output={log}", "--ntasks-per-node=2", *options]
        + [ROOT / "launch" / "slurm.sbatch", *words],
        cwd=folder,
        env=environment,
        timeout=300,
    )
    return result.returncode, log.read_text()


def test_two_tasks_find_each_other_with_no_flags(environment, meeting):
    status, output = submit(environment, meeting, [], "--a=b c", "--d")
    assert status == 0, output
    for i in range(2):
        assert f"process {i} of 2: 3.0 --a=b c --d\n" in output


def test_of_a_death_and_a_mistake_the_first_is_named_and_none_requeued(
    environment, meeting
):
    status, output = submit(environment, meeting, [], "--kill")
    assert status != 0
    named = re.findall(r"srun: error: localhost: tasks? ([0-9-]+): (\w+)", output)
    assert named[0] == ("1", "Killed"), output
    assert "the same command continues from the last checkpoint" in output
    status, output = submit(environment, meeting, [], "--exit2")
    assert status == 2, output
    assert "fix the error above" in output
    assert "back into the queue" not in output


def test_at_the_time_limit_all_save_and_the_job_goes_on_by_itself(environment, meeting):
    # --time and the 120 s of the script: SIGTERM comes within a minute.
    _, output = submit(environment, meeting, ["--time=3"], "--long")
    end = time.monotonic() + 60
    while output.count("process 0 of 2") < 2 or "start 2" not in output:
        assert time.monotonic() < end, output
        time.sleep(1)
        output = (meeting / "job.log").read_text()
    start1, start2 = output.split(", start 2, ")
    assert "process 0 saved" in start1
    assert "process 1 saved" in start1
    assert "saved, as the job is at its time limit; back into the queue" in start1
    assert "process 1 of 2: 3.0 --long" in start2
    assert "saved" not in start2


def test_each_task_of_an_array_runs_the_command_and_goes_on_by_itself(
    environment, meeting
):
    script = ROOT / "launch" / "slurm.sbatch"
    subprocess.run(
        ["sbatch", "--array=0-1", f"--output={meeting}/job%a.log", "--time=3"]
        + [script, "experiment", "table3", "--long"],
        cwd=meeting,
        env=environment,
        check=True,
    )
    for i in range(2):
        log = meeting / f"job{i}.log"
        output = wait_for(log, f"_{i}, start 2, ", "back into the queue", seconds=200)
        output = wait_for(
            log, *["process 0 of 1: 1.0 experiment table3 --long --nowait"]
        )
        start1, start2 = output.split(", start 2, ")
        assert "1 tasks on localhost: python -m t2t_jax experiment table3" in start1
        assert "process 0 saved" in start1
        assert "start 3" not in start2


def wait_for(log, *texts, seconds=60):
    end = time.monotonic() + seconds
    while True:
        output = log.read_text() if log.exists() else ""
        if all(text in output for text in texts):
            return output
        assert time.monotonic() < end, output
        time.sleep(0.2)
