"""Each task of a Slurm array, each pod of an indexed job, gets a part of its own."""

import os
import subprocess
from pathlib import Path

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
