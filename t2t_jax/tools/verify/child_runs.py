"""Small training runs in processes of their own, started as a user starts them.

They train on short lines of the built-in corpus. A TPU serves one process at a time: on
one, this process must not have started JAX.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import jax

import t2t_jax
from t2t_jax.extensions.grammar import corpus
from t2t_jax.io import interruption
from t2t_jax.parallel.nondeterminism import GPU_FLAGS
from t2t_jax.tools.verify.check import Context, Unavailable
from t2t_jax.training.metrics_log import METRICS, read_log
from t2t_jax.training.provenance_log import read_starts
from t2t_jax.workdir import Workdir

STEPS, SAVE_EVERY = 20, 5
LONG = 600.0  # seconds after which a process is killed that has not ended
TIME_LIMIT = "DEADLINE_EXCEEDED"  # in the log of a process that waited in vain
LONGEST_LINE = 34  # characters: short lines are quick to translate
FIELDS = {
    "model": {"layers": 1, "width": 32, "heads": 2, "hidden": 32, "dropout": 0.1},
    "data": {
        "train": "train",
        "dev": "dev",
        "vocab_size": 330,
        "batching": "packed",
        "row_length": 64,
        "batch_tokens": 1_024,
        "feeder": "numpy",
    },
    "train": {
        "steps": STEPS,
        # A long warmup: Adam divides by what it has seen, and would make rounding
        # errors grow that runs on different devices have.
        "warmup": 400,
        "ema_decay": 0.9,
        "log_every": 1,
        "save_every": SAVE_EVERY,
        "eval_every": 10,
        "dev_lines": 0,
    },
    "decode": {"beam": 2, "average": 2, "extra_length": 6, "batch_tokens": 256},
}


def config_flags(fields: Mapping[str, Mapping[str, object]]) -> list[str]:
    """The flags that set fields of a config, by section."""
    return [
        f"--config.{section}.{name}={value}"
        for section, values in fields.items()
        for name, value in values.items()
        if name != "options"  # a dict, which no single flag sets
    ]


class Processes:
    """Commands that run at once; the end of a `with` kills those that have not ended.

    Args:
      log: the start of the names of its logs: process N writes to `log.N.out` and
        `log.N.err`, behind what is there.
    """

    def __init__(self, log: Path):
        self._log = log
        self._popen: list[subprocess.Popen] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._popen:
            process.kill()
        for process in self._popen:
            process.wait()

    def start(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        stdin: Path | None = None,
    ) -> None:
        """Starts one more command in a folder; `stdin` is a file that it reads."""
        number = len(self._popen)
        with (
            open(stdin or os.devnull, "rb") as read,
            self._file(number, "out").open("ab") as out,
            self._file(number, "err").open("ab") as err,
        ):
            self._popen.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=read,
                    stdout=out,
                    stderr=err,
                )
            )

    def out(self, number: int = 0) -> str:
        """What a process has written to standard output."""
        return self._file(number, "out").read_text(encoding="utf-8")

    def err(self, number: int = 0) -> str:
        """What a process has written to standard error."""
        return self._file(number, "err").read_text(encoding="utf-8", errors="replace")

    def until(self, reached: Callable[[], object], number: int = 0) -> bool:
        """Waits for something to come true; False if a process ends before it does."""
        end = time.monotonic() + LONG
        while not reached():
            interruption.check()
            if self._popen[number].poll() is not None or time.monotonic() > end:
                return bool(reached())
            time.sleep(0.001)
        return True

    def running(self, number: int = 0) -> bool:
        return self._popen[number].poll() is None

    def send(self, signum: signal.Signals, number: int = 0) -> None:
        self._popen[number].send_signal(signum)

    def end(self, seconds: float = LONG) -> list[int]:
        """Waits for all, kills who takes longer, and returns the exit statuses."""
        end = time.monotonic() + seconds
        for process in self._popen:
            while process.poll() is None and time.monotonic() < end:
                interruption.check()
                time.sleep(0.001)
            process.kill()
            process.wait()
        return [process.returncode for process in self._popen]

    def _file(self, number: int, stream: str) -> Path:
        return self._log.with_name(f"{self._log.name}.{number}.{stream}")


class ChildRuns:
    """Runs on one text, each in a workdir of its own, and what they share.

    Args:
      folder: for the text, the workdirs and the logs.
      translate: True also evaluates by translating, and scores a test set.

    Attributes:
      fields: of the config, by section.
    """

    def __init__(self, folder: Path, translate: bool = False):
        self.folder = folder
        self.fields = {name: dict(values) for name, values in FIELDS.items()}
        self.fields["data"] |= {"dir": folder / "text", "test": ""}
        if translate:
            self.fields["train"]["dev_lines"] = 8
            self.fields["data"]["test"] = "test"
        write_text(folder / "text")

    def command(self, workdir: Path) -> list[str]:
        """Returns what a user would type."""
        command = [sys.executable, "-m", "t2t_jax.main", "--config=tiny"]
        return [*command, f"--workdir={workdir}", *config_flags(self.fields)]

    def finished(self, name: str) -> Path:
        """Trains to the end, and returns the workdir."""
        workdir = self.folder / name
        _check_ended(self.start([self.command(workdir)], name))
        return workdir

    def killed(self, name: str, steps: Sequence[int]) -> tuple[Path, list[int]]:
        """Trains to the end, and is killed by SIGKILL at some checkpoints before.

        Args:
          steps: for each life, the step whose checkpoint is waited for.

        Returns:
          The workdir, and after which checkpoint each killed process ended.
        """
        workdir, deaths = self.folder / name, []
        for step in steps:
            status = self.life(name, (workdir / f"checkpoints/state/{step}").exists)
            if status != -signal.SIGKILL:
                break  # it ended, or failed: the next life says which
            deaths.append(step)
        return self.finished(name), deaths

    def life(self, name: str, reached: Callable[[], object]) -> int:
        """Trains until something is reached, then kills; returns the exit status."""
        with self._started([self.command(self.folder / name)], name) as process:
            if process.until(reached):
                process.send(signal.SIGKILL)
            elif process.running():
                raise RuntimeError(f"{name} did not get there in {LONG:,} s")
            return process.end()[0]

    def group(
        self, name: str, environments: Sequence[dict[str, str]]
    ) -> tuple[Path, bool]:
        """Trains in several processes at once.

        XLA lets processes of a CPU wait 30 seconds for each other. On a busy machine
        one may still be compiling then. Therefore a group that ran into a time limit is
        started once more; it finds its programs compiled, and continues.

        Args:
          environments: of each process, added to this one's.

        Returns:
          The workdir, and True if the group was started twice.
        """
        workdir, count = self.folder / name, len(environments)
        commands = [
            [*self.command(workdir), *flags] for flags in rendezvous_flags(count)
        ]
        outcomes = self.start(commands, name, environments)
        late = any(status and TIME_LIMIT in log for status, log in outcomes)
        if late:
            outcomes = self.start(commands, name, environments)
        _check_ended(outcomes)
        return workdir, late

    def start(self, commands, name: str, environments=None) -> list[tuple[int, str]]:
        """Runs commands at once; returns the exit status and the log of each."""
        with self._started(commands, name, environments) as processes:
            return [(s, processes.err(i)) for i, s in enumerate(processes.end())]

    @contextlib.contextmanager
    def _started(self, commands, name: str, environments=None) -> Iterator[Processes]:
        """Starts commands, which are killed at the end of the `with`."""
        with Processes(self.folder / name) as processes:
            for i, command in enumerate(commands):
                environment = child_environment(self.folder / "cache")
                environment |= (environments or [{}] * len(commands))[i]
                # On a cluster, a single process must not wait for others.
                alone = ["--num_processes=1"] if len(commands) == 1 else []
                processes.start([*command, *alone], self.folder, environment)
            yield processes


def child_runs(context: Context) -> ChildRuns:
    """The runs that all checks share."""
    if jax.default_backend() == "tpu":
        raise Unavailable("another process cannot use the TPU that this one has")
    return context.shared(
        "child runs", lambda: ChildRuns(context.folder("runs"), context.full)
    )


def baseline(context: Context) -> Path:
    """The workdir of an undisturbed run, trained at the first call."""
    return context.shared("baseline", lambda: child_runs(context).finished("whole"))


def child_environment(cache: Path | None = None) -> dict[str, str]:
    """The environment of a process that imports this package and no other copy.

    Compiled programs are shared with this process; `cache` is for prepared text.
    """
    package = str(Path(t2t_jax.__file__).parent.parent)
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        # Several processes may share a GPU: none takes most of its memory at once.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if cache:
        environment["T2T_JAX_CACHE"] = str(cache)
    if folder := jax.config.jax_compilation_cache_dir:
        environment["JAX_COMPILATION_CACHE_DIR"] = folder
    if jax.default_backend() == "gpu":  # bytes are promised with these flags only
        flags = [os.environ.get("XLA_FLAGS", ""), GPU_FLAGS]
        environment["XLA_FLAGS"] = " ".join(filter(None, flags))
    return environment


def machine_of(workdir: Path) -> dict:
    """The machine on which a workdir's last start ran, as `describe_machine` says."""
    return read_starts(Workdir(workdir))[-1].machine


def losses(workdir: Path) -> dict[int, float]:
    """The training losses that a workdir's log has, by step."""
    logged = read_log(workdir / METRICS).metrics("train")
    return {step: metrics["loss"] for step, metrics in logged.items()}


def write_text(folder: Path) -> None:
    """Writes train, dev and test sets of short English-German lines."""
    folder.mkdir(parents=True)
    lines = [*corpus.pairs("dev"), *corpus.pairs("test")]
    short = sorted(
        (pair for pair in lines if max(map(len, pair)) <= LONGEST_LINE),
        key=lambda pair: max(map(len, pair)),
    )
    for name, pairs in {
        "test": short[:10],
        "dev": short[10:18],
        "train": short[10:],
    }.items():
        for language, side in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            content = "".join(f"{line}\n" for line in side)
            (folder / f"{name}.{language}").write_text(content, encoding="utf-8")


def _check_ended(outcomes: Sequence[tuple[int, str]]) -> None:
    """Raises RuntimeError if a process did not end well, with the end of its log."""
    for number, (status, log) in enumerate(outcomes):
        if status:
            end = "\n".join(log.splitlines()[-12:])
            raise RuntimeError(f"process {number} ended with status {status}:\n{end}")


def rendezvous_flags(count: int) -> list[list[str]]:
    """The flags by which each of some processes of this machine finds the others."""
    coordinator = f"--coordinator_address=127.0.0.1:{free_port()}"
    return [
        [coordinator, f"--num_processes={count}", f"--process_id={i}"]
        for i in range(count)
    ]


def free_port() -> int:
    """A port of this machine that no program listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
