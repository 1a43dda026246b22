"""Each task of a Slurm array, each pod of an indexed job, gets a part of its own."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

LAUNCH = Path(__file__).parents[2] / "launch"


def words_of(folder, program, command, **variables):
    """The words that a script calls a program with, which prints them."""
    fake = folder / program
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    result = subprocess.run(
        command,
        env={"PATH": path} | variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()


def test_a_task_of_a_slurm_array_makes_the_part_of_its_number(tmp_path):
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "a"}
    array = {"SLURM_ARRAY_TASK_ID": "12", "SLURM_ARRAY_JOB_ID": "6"}
    words = ["translate", "--input=a b", "--part=array/16", "--tag=--part=array/1"]
    command = ["bash", LAUNCH / "slurm.sbatch", *words]
    called = words_of(tmp_path, "srun", command, **slurm, **array)
    expected = ["python", "-m", "t2t_jax", "translate", "--input=a b", "--part=12/16"]
    assert called[2:] == [*expected, "--tag=--part=array/1"]
    # Without an array the program says what is wrong.
    assert "--part=array/16" in words_of(tmp_path, "srun", command, **slurm)


def test_a_pod_of_an_indexed_job_makes_the_part_after_its_index(tmp_path):
    job = yaml.safe_load((LAUNCH / "kubernetes/parts.yaml").read_text())["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    command = [*container["command"], *container["args"]]
    for index in (0, job["completions"] - 1):
        variables = {"JOB_COMPLETION_INDEX": str(index)}
        words = words_of(tmp_path, "python", command, **variables)
        assert words[:3] == ["-m", "t2t_jax", "translate"]
        assert f"--part={index + 1}/{job['completions']}" in words
        assert {"--resume", "--num_processes=1"} < {*words}
    assert job["completionMode"] == "Indexed"
    assert pod["restartPolicy"] == "Never"  # which podFailurePolicy wants
    (rule,) = job["podFailurePolicy"]["rules"]
    codes = {"containerName": container["name"], "operator": "In", "values": [2]}
    assert rule == {"action": "FailIndex", "onExitCodes": codes}


@pytest.mark.parametrize(
    ("preempted", "end", "requeued"),
    [
        ("", "+100 seconds", True),
        ("", "+540 seconds", False),
        ("", "N/A", False),
        ("", "", False),  # squeue fails: an empty date would be midnight
        ("PreemptTime=2026-11-29T03:00:00", "+540 seconds", True),
        ("PreemptTime=None", "+540 seconds", False),
    ],
)
def test_a_stopped_job_goes_back_into_the_queue_if_slurm_ends_it(
    tmp_path, preempted, end, requeued
):
    squeue = f'date --date="{end}" +%Y-%m-%dT%H:%M:%S' if end[:1] == "+" else "exit 1"
    squeue = "echo N/A" if end == "N/A" else squeue
    (tmp_path / "requeued").unlink(missing_ok=True)
    scontrol = f'[ "$1" != requeue ] || echo "$2" > {tmp_path}/requeued\n'
    for program, lines in {
        "srun": "exit 143",
        "squeue": squeue,
        "scontrol": scontrol + f"echo 'JobId=7 {preempted}'",
    }.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / program).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "a"}
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "T2T_JAX_RETRY_SECONDS": "0"}
    result = subprocess.run(
        ["bash", LAUNCH / "slurm.sbatch", "--config=x"],
        env=slurm | path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 143
    assert (tmp_path / "requeued").exists() == requeued, result.stderr
    assert ("back into the queue" in result.stderr) == requeued
    assert ("do not say why" in result.stderr) == (end == "")
