"""Runs N processes of one command on this machine and supervises them (see local.sh).

If one fails, the others get some time to end and are then killed. Signals are passed on
to all. Standard error of the processes other than 0 goes to log files and, prefixed by
the process's number, to the terminal.
"""

import contextlib
import ctypes
import dataclasses
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

USAGE = """\
usage: bash launch/local.sh N [--module=MODULE] [--wait=60] [--dry_run] ARGUMENTS

N            number of processes of `python -m t2t_jax.main ARGUMENTS` to start
--module     run another command, such as 't2t_jax translate' (also: MODULE=...)
--wait       seconds that the other processes have to end after one has failed
--dry_run    print the N commands and start nothing
--check      list what the run finds and what is missing, and start nothing"""
STOPPED = 128 + signal.SIGTERM  # exit status of a command that has saved and stopped
# First lines of what JAX's runtime, and then Python, print when another process died.
DUMP = (
    b"Polled an error from coordination service",
    b"JAX distributed service detected fatal errors",
    b"Fatal Python error",
)


class UsageError(Exception):
    """A mistake on the command line: the message says what was given and wanted."""


@dataclasses.dataclass
class Options:
    """The parsed command line: our own options, and the command's arguments."""

    n: int
    arguments: list[str]
    module: str = ""
    wait: float = 60.0
    dry_run: bool = False


def parse(words: list[str]) -> Options:
    """Parses the command line.

    Our own options may stand anywhere. The first other word is N; the rest are the
    command's arguments.

    Raises:
      UsageError: N is missing or not a number, or an option has no valid value.
    """
    options = Options(0, [], os.environ.get("MODULE") or "t2t_jax.main")
    for word in words:
        name, _, value = word.partition("=")
        if word == "--dry_run":
            options.dry_run = True
        elif name == "--module":
            options.module = value
        elif name == "--wait":
            try:
                options.wait = float(value)
            except ValueError:
                raise UsageError(f"--wait={value}: wanted seconds") from None
        else:
            options.arguments.append(word)
    if not options.module:
        raise UsageError("--module is empty; wanted --module=t2t_jax.main or another")
    if not options.arguments:
        raise UsageError("no number of processes; wanted N, then the arguments")
    n = options.arguments.pop(0)
    if not (n.isascii() and n.isdigit() and int(n) > 0):
        raise UsageError(f"{n!r} is not a number of processes; wanted 1, 2, ... first")
    options.n = int(n)
    return options


def say(message: str) -> None:
    sys.stderr.write(f"local: {message}\n")
    sys.stderr.flush()


def free_port() -> int:
    """A port that is free now; another program could still take it first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shares_of_gpus(n: int) -> list[dict[str, str]]:
    """Environment variables that give each process its share of the visible GPUs.

    Raises:
      UsageError: more processes than GPUs.
    """
    gpus = [] if os.environ.get("JAX_PLATFORMS") == "cpu" else visible_gpus()
    if not gpus:
        return [{} for _ in range(n)]
    if n > len(gpus):
        raise UsageError(
            f"{n} processes, but {len(gpus)} visible GPUs; wanted at most one process "
            "for each GPU, or JAX_PLATFORMS=cpu in the environment"
        )
    each, idle = divmod(len(gpus), n)
    if idle:
        say(f"{idle} of {len(gpus)} GPUs stay idle: {n} does not divide them")
    shares = [gpus[i * each : (i + 1) * each] for i in range(n)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(share)} for share in shares]


def visible_gpus() -> list[str]:
    """The GPUs of CUDA_VISIBLE_DEVICES, or all that nvidia-smi lists; may be empty."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        names = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        return [name.strip() for name in names if name.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    lines = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return [str(i) for i in range(len(lines))]


def commands(options: Options) -> list[list[str]]:
    """The command line of each process."""
    address = f"127.0.0.1:{free_port()}"
    module = [sys.executable, "-m", *options.module.split()]
    common = [*module, f"--coordinator_address={address}"]
    return [
        [*common, f"--num_processes={options.n}", f"--process_id={i}"]
        + options.arguments
        for i in range(options.n)
    ]


def end_with_parent() -> None:
    """Called in a new process: it gets SIGTERM when this program dies (Linux only)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def how(status: int) -> str:
    """Describes a process's end by its exit status, negative for a signal."""
    if status < 0:
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"
    return f"exited with status {status}"


class Group:
    """The processes: started, signalled and ended together."""

    def __init__(self, options: Options):
        self._wait = options.wait
        self._stopping = False
        self._pids: list[int] = []
        self._statuses: dict[int, int] = {}  # by process, in the order of their ends
        self._cause: int | None = None  # the process that failed first
        self._echoes: list[threading.Thread] = []
        shares = shares_of_gpus(options.n)
        logs = Path(tempfile.mkdtemp(prefix="t2t_jax-")) if options.n > 1 else None
        if logs:
            say(f"outputs of the other processes go to {logs}")
        signals = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
        # Block signals until all processes have started: a handler that ran earlier
        # would miss some of them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        for number, answer in zip(
            signals, (self._stop, self._stop, self._kill), strict=True
        ):
            signal.signal(number, answer)

        def prepare():  # runs in each new process, which inherits the blocked signals
            end_with_parent()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

        for i, command in enumerate(commands(options)):
            # In a session of its own, Ctrl-C reaches it only through us, as SIGTERM.
            settings = {"env": os.environ | shares[i], "start_new_session": True}
            self._start(i, command, logs, settings | {"preexec_fn": prepare})
        for echo in self._echoes:  # after the last fork, as threads and fork do not mix
            echo.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    def _start(self, i: int, command: list[str], logs: Path | None, settings) -> None:
        """Starts process i: 0 with our own streams, the others with log files."""
        if i == 0:
            process = subprocess.Popen(command, **settings)
        else:
            log = (logs / f"process-{i}.log").open("ab", buffering=0)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.PIPE,
                **settings,
            )
            echo = threading.Thread(target=self._echo, args=(i, process.stderr, log))
            echo.daemon = True
            self._echoes.append(echo)
        self._pids.append(process.pid)
        process.returncode = 0  # keeps Popen from waiting for it; `run` does that

    def _echo(self, i: int, stream, log) -> None:
        """Copies a process's stderr to its log and, with its number, to ours.

        After another process has failed, its messages about that go only to its log.
        """
        echoing = True
        for line in stream:
            log.write(line)
            dying = self._cause not in (None, i) or any(sign in line for sign in DUMP)
            if echoing and dying:
                say(f"process {i} ends, too; what it says of that is in {log.name}")
                echoing = False
            if not echoing:
                continue
            text = line.decode(errors="replace").rstrip("\n")
            # One write: `print` writes the line's end apart, and another process's
            # line may come between.
            sys.stderr.write(f"[{i}] {text}\n")
            sys.stderr.flush()

    def _alive(self) -> list[int]:
        return [i for i in range(len(self._pids)) if i not in self._statuses]

    def _name(self, i: int) -> str:
        return f"process {i} (pid {self._pids[i]})"

    def _stop(self, number: int, _) -> None:
        """Handles SIGTERM and SIGINT: asks all processes, once, to save and stop."""
        name = signal.Signals(number).name
        if self._stopping:
            pids = " ".join(str(self._pids[i]) for i in self._alive())
            say(f"{name} again: they are still saving; to give up: kill -9 {pids}")
            return
        self._stopping = True
        say(f"{name}: asking all processes to save and stop")
        for i in self._alive():
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self._pids[i], signal.SIGTERM)

    def _kill(self, *_) -> None:
        """Handles SIGALRM: kills the processes that have not ended in time."""
        for i in self._alive():
            say(f"{self._name(i)} did not end within {self._wait:g} s: killing it")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pids[i], signal.SIGKILL)

    def run(self) -> int:
        """Waits for all processes; returns the exit status of the run."""
        while self._alive():
            # WNOWAIT leaves the ended process in place, so that its id and its group's
            # cannot be reused before the group is killed.
            pid = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # processes that it has left behind
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if pid in self._pids:
                self._ended(self._pids.index(pid), status)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for echo in self._echoes:
            echo.join(timeout=5)
        return self._verdict()

    def _ended(self, i: int, status: int) -> None:
        """Notes an end; after the first failure, sets the clock for the others."""
        self._statuses[i] = status
        good = {0, STOPPED}
        if self._stopping:
            good.add(-signal.SIGTERM)
            if STOPPED in self._statuses.values():
                good.add(-signal.SIGABRT)  # by JAX, if another process ended earlier
        if self._cause is None and status not in good:
            self._cause = i
            rest = f"; the others have {self._wait:g} s to end" if self._alive() else ""
            say(f"{self._name(i)} {how(status)}{rest}")
            signal.setitimer(signal.ITIMER_REAL, max(self._wait, 0.001))

    def _verdict(self) -> int:
        """Reports how the run ended; returns its exit status."""
        if self._cause is None:
            if not any(self._statuses.values()):
                return 0
            say("stopped; the same command continues from there")
            return STOPPED
        status = self._statuses[self._cause]
        rest = [
            f"process {i} {how(other)}"
            for i, other in self._statuses.items()
            if i != self._cause and other
        ]
        followed = f"; after it {', '.join(rest)}" if rest else ""
        say(f"the run failed: {self._name(self._cause)} {how(status)}{followed}")
        if status == 2:
            say("fix the error above, then give the same command again")
        else:
            say("the same command continues from the last checkpoint")
        return 128 - status if status < 0 else status  # as a shell reports a signal


def main() -> int:
    try:
        options = parse(sys.argv[1:])
        if options.dry_run:
            for command, share in zip(
                commands(options), shares_of_gpus(options.n), strict=True
            ):
                assignments = [f"{name}={value}" for name, value in share.items()]
                print(shlex.join([*assignments, *command]))
            return 0
        return Group(options).run()
    except UsageError as error:
        print(f"local: {error}\n{USAGE}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
