"""launch/tpu_vm.sh, with a stand-in for gcloud whose two workers are folders."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_run import ROOT, until

HERE = Path(__file__).parent
SCRIPT = ROOT / "launch" / "tpu_vm.sh"
ZONE = "--zone=us-west4-a"
WORKDIR = "--workdir=gs://bucket/run"

# On a worker: `python3 -m venv` makes a python whose t2t_jax.main is the stand-in.
PYTHON3 = """\
#!/usr/bin/env bash
[[ "$1 $2" == "-m venv" ]] || exec {python} "$@"
mkdir -p "$3/bin"
cat > "$3/bin/python" << 'END'
#!/usr/bin/env bash
if [[ "$1 $2" == "-m pip" ]]; then echo "$PWD $*" >> "$FAKE/pip"; exit; fi
exec {python} {standin} "${{@:3}}" t2t_jax.main
END
chmod +x "$3/bin/python"
"""


class Cloud:
    """A folder with the state of the stand-in, and the script to run in it."""

    def __init__(self, folder):
        self.folder = folder
        bin = folder / "bin"
        bin.mkdir()
        gcloud = f"#!/bin/sh\nexec bash '{HERE}/fake_gcloud.sh' \"$@\"\n"
        python3 = PYTHON3.format(python=sys.executable, standin=HERE / "standin.py")
        for name, text in (("gcloud", gcloud), ("python3", python3)):
            (bin / name).write_text(text)
            (bin / name).chmod(0o755)
        self.says("sleep")
        self.environment = os.environ | {
            "FAKE": str(folder),
            "STANDIN": str(folder / "standin"),
            "PATH": f"{bin}:{os.environ['PATH']}",
        }

    def says(self, action):
        (self.folder / "standin").write_text(action)

    def start(self, *words):
        return subprocess.Popen(
            ["bash", SCRIPT, *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words, status=0):
        """What it printed, stdout and stderr."""
        process = self.start(*words)
        out, err = process.communicate(timeout=30)
        assert process.returncode == status, out + err
        return out + err

    def calls(self):
        """Since the last time: what gcloud was asked, without `compute tpus`."""
        path = self.folder / "calls"
        if not path.exists():
            return []
        lines = [shlex.split(line) for line in path.read_text().splitlines()]
        path.unlink()
        assert all(line[:2] == ["compute", "tpus"] for line in lines)
        return [line[2:] for line in lines]

    def requests(self):
        """Since the last time: the pairs such as 'tpu-vm create', but describe."""
        pairs = [" ".join(call[:2]) for call in self.calls()]
        return [pair for pair in pairs if not pair.endswith("describe")]

    def pids(self):
        paths = [self.folder / f"worker-{i}/t2t_jax.state/pid" for i in range(2)]
        return [int(path.read_text()) for path in paths if path.exists()]

    def kill(self):
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def training(self):
        """The stand-ins of both workers have begun."""
        marks = self.folder.glob("worker-*/t2t_jax/gs:/bucket/run/ready-0")
        return len([mark for mark in marks if mark.read_text()]) == 2


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.kill()


def test_a_tpu_is_created_once_with_what_was_asked(cloud):
    words = "create", ZONE, "--name=mine", "--project=p", "--type=v6e-8", "--spot"
    cloud(*words)
    place = ["mine", ZONE, "--project=p"]
    kind = ["--accelerator-type=v6e-8", "--version=v2-alpha-tpuv6e", "--spot"]
    assert cloud.calls()[1] == ["tpu-vm", "create", *place, *kind]
    assert "mine is there already (READY)" in cloud(*words)
    assert cloud.requests() == []
    cloud("delete", ZONE)
    assert cloud.requests() == ["tpu-vm delete"]
    assert "there is no t2t-jax" in cloud("delete", ZONE)


def test_a_queued_tpu_is_asked_for_once(cloud):
    cloud("queue", ZONE, "--spot", "--version=v")
    kind = ["--accelerator-type=v5litepod-16", "--runtime-version=v", "--spot"]
    queued = ["queued-resources", "create", "t2t-jax", "--node-id=t2t-jax", ZONE, *kind]
    assert cloud.calls()[1] == queued
    assert "in the queue already (ACTIVE)" in cloud("queue", ZONE)
    assert cloud.requests() == []
    cloud("delete", ZONE)
    deleted = ["queued-resources", "delete", "t2t-jax", ZONE, "--force", "--quiet"]
    assert cloud.calls()[-1] == deleted


def test_training_is_started_once_followed_and_stopped_with_a_save(cloud):
    cloud("create", ZONE)
    run = "run", ZONE, WORKDIR, "--config=configs/big.py", "--config.x=a 'b"
    assert "not installed on t2t-jax" in cloud(*run, status=3)
    cloud("install", ZONE)
    tree = cloud.folder / "worker-1" / "t2t_jax"
    assert (
        f"{tree} -m pip install --quiet --editable .[tpu,gcs]"
        in (cloud.folder / "pip").read_text()
    )
    assert (tree / "t2t_jax" / "main.py").exists()
    assert cloud("status", ZONE).count(": not started") == 2
    cloud(*run)
    until(cloud.training)
    log = cloud.folder / "worker-1" / "t2t_jax.log"
    # Variables of the workers, and what a run finds here.
    dry = cloud(*run, "--env=A=b c", "--env=B=", "--dry_run")
    assert r"env A=b\ c B= bash t2t_jax/launch/tpu_vm_worker.sh run" in dry
    python = cloud.folder / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$A" "$@"\n')
    python.chmod(0o755)
    checked = cloud("check", WORKDIR, "--env=A=b", "--config=x")
    assert checked == f"b -m t2t_jax check --config=x {WORKDIR}\n"
    line = f"process 0 says --config=configs/big.py --config.x=a 'b {WORKDIR}"
    until(lambda: line in log.read_text())

    pids = cloud.pids()
    assert "is training; 'follow' shows it" in cloud(*run, status=3)
    assert "is training" in cloud("install", ZONE, status=3)
    assert cloud.pids() == pids
    assert cloud("status", ZONE).count(": running (pid ") == 2
    assert cloud("stop", ZONE).count(": stopped") == 2
    assert len(list(cloud.folder.glob("worker-*/t2t_jax/gs:/*/*/saved-0"))) == 2
    assert cloud("status", ZONE).count(": stopped by hand") == 2
    cloud.says("exit2")
    cloud(*run)
    until(lambda: ": running" not in cloud("status", ZONE))
    assert cloud("status", ZONE).count(": ended with status 2") == 2


def test_watch_recreates_after_a_preemption_and_ends_with_the_training(cloud):
    process = cloud.start("watch", ZONE, WORKDIR, "--every=0.1", "--spot")
    try:
        until(cloud.training)
        cloud.says("end")
        (cloud.folder / "queued-resources").write_text("SUSPENDED\n")
        (cloud.folder / "tpu-vm").write_text("PREEMPTED\n")
        cloud.kill()
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, out + err
    assert "the training is finished" in err
    watched = {"queued-resources create", "queued-resources delete", "tpu-vm scp"}
    once = ["queued-resources create", "tpu-vm scp"]
    pairs = [pair for pair in cloud.requests() if pair in watched]
    assert pairs == [*once, "queued-resources delete", *once]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("exit2", "it wants something mended"),
        ("kill", "the training failed 2 times"),
        ("stop", "it was stopped by hand"),
    ],
)
def test_watch_gives_up_what_a_restart_does_not_mend(cloud, action, message):
    cloud("create", ZONE)
    cloud("install", ZONE)
    if action == "stop":
        cloud("run", ZONE, WORKDIR)
        until(cloud.training)
        cloud("stop", ZONE)
    else:
        cloud.says(action)
    watch = "watch", ZONE, WORKDIR, "--every=0.1", "--restarts=1"
    assert message in cloud(*watch, status=1)


def test_an_answer_that_is_no_state_changes_nothing(cloud):
    (cloud.folder / "broken").touch()
    for command in ("create", "queue", "delete", "status"):
        assert "PERMISSION_DENIED" in cloud(command, ZONE, status=1)
    assert cloud.requests() == []


# Words after `bash launch/tpu_vm.sh`, and what is said of them.
REFUSED = [
    (f"begin {ZONE}", "got 'begin' as the command"),
    ("create", "no --zone"),
    (f"create {ZONE} --tpye=v4-8", "got --tpye=v4-8, which create does not"),
    (f"watch {ZONE} --workdir=here", "is lost with the TPU; wanted gs://"),
]


def test_a_check_reads_the_tree_that_workers_get(cloud):
    python = cloud.folder / "bin/python"
    python.write_text('#!/bin/sh\necho "$PWD $TEXT $@"\n')
    python.chmod(0o755)
    words = "check", "--env=TEXT=here", "--config=x"
    assert cloud(*words, WORKDIR) == (
        f"{ROOT} here -m t2t_jax check --config=x {WORKDIR}\n"
    )
    assert "--workdir=runs is on worker 0 alone" in cloud(*words, "--workdir=runs")


def test_wrong_usage_says_what_was_got_and_wanted(cloud):
    for words, message in REFUSED:
        out = cloud(*words.split(), status=2)
        assert message in out
        assert "usage: bash launch/tpu_vm.sh COMMAND" in out
    assert cloud.calls() == []
