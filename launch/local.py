"""N processes of one command on this machine, watched as one (see local.sh)."""

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

N            processes of `python -m t2t_jax.main ARGUMENTS` on this machine
--module     another command, such as t2t_jax.translate (also: MODULE=...)
--wait       seconds that the others are given to end when one has failed
--dry_run    prints the N commands and starts nothing"""
STOPPED = 128 + signal.SIGTERM
# Begins what JAX's runtime, and Python after it, dump when another process has died.
DUMP = (
    b"Polled an error from coordination service",
    b"JAX distributed service detected fatal errors",
    b"Fatal Python error",
)


class UsageError(Exception):
    """What was got, what was wanted."""


@dataclasses.dataclass
class Options:
    """What the command line asks for."""

    n: int
    arguments: list[str]
    module: str = ""
    wait: float = 60.0
    dry_run: bool = False


def parse(words: list[str]) -> Options:
    """Our own options may stand anywhere; all else is the command's."""
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
        raise UsageError(f"{n!r} is no number of processes; wanted 1, 2, ... first")
    options.n = int(n)
    return options


def say(message: str) -> None:
    print(f"local: {message}", file=sys.stderr, flush=True)


def free_port() -> int:
    """A port that nobody has now; another program could still take it first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shares_of_gpus(n: int) -> list[dict[str, str]]:
    """The variables that give each process its own of the visible GPUs."""
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
        say(f"{idle} of {len(gpus)} GPUs stay idle: they do not divide by {n}")
    shares = [gpus[i * each : (i + 1) * each] for i in range(n)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(share)} for share in shares]


def visible_gpus() -> list[str]:
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        names = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        return [name.strip() for name in names if name.strip() not in ("", "-1")]
    try:
        told = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    lines = [line for line in told.stdout.splitlines() if line.startswith("GPU ")]
    return [str(i) for i in range(len(lines))]


def commands(options: Options) -> list[list[str]]:
    address = f"127.0.0.1:{free_port()}"
    common = [sys.executable, "-m", options.module, f"--coordinator_address={address}"]
    return [
        [*common, f"--num_processes={options.n}", f"--process_id={i}"]
        + options.arguments
        for i in range(options.n)
    ]


def end_with_parent() -> None:
    """In a new process: SIGTERM when this program dies in any way (Linux only)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def how(status: int) -> str:
    """A status of Popen in words."""
    if status < 0:
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"
    return f"exited with status {status}"


class Group:
    """The processes: started together, told together, ended together."""

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
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # until all have started
        for number, answer in zip(
            signals, (self._stop, self._stop, self._kill), strict=True
        ):
            signal.signal(number, answer)

        def prepare():
            end_with_parent()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

        for i, command in enumerate(commands(options)):
            # A session of its own: Ctrl-C reaches it only through us, as SIGTERM.
            known = {"env": os.environ | shares[i], "start_new_session": True}
            self._start(i, command, logs, known | {"preexec_fn": prepare})
        for echo in self._echoes:  # after the last fork
            echo.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    def _start(self, i: int, command: list[str], logs: Path | None, known) -> None:
        if i == 0:
            process = subprocess.Popen(command, **known)
        else:
            log = (logs / f"process-{i}.log").open("ab", buffering=0)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.PIPE,
                **known,
            )
            echo = threading.Thread(target=self._echo, args=(i, process.stderr, log))
            echo.daemon = True
            self._echoes.append(echo)
        self._pids.append(process.pid)
        process.returncode = 0  # we reap it ourselves

    def _echo(self, i: int, stream, log) -> None:
        """Its stderr to its log and, with its number before each line, to ours; what it
        says of the death of another only to its log."""
        told_all = True
        for line in stream:
            log.write(line)
            dying = self._cause not in (None, i) or any(sign in line for sign in DUMP)
            if told_all and dying:
                say(f"process {i} ends, too; what it says of that is in {log.name}")
                told_all = False
            if not told_all:
                continue
            told = line.decode(errors="replace").rstrip("\n")
            print(f"[{i}] {told}", file=sys.stderr, flush=True)

    def _alive(self) -> list[int]:
        return [i for i in range(len(self._pids)) if i not in self._statuses]

    def _name(self, i: int) -> str:
        return f"process {i} (pid {self._pids[i]})"

    def _stop(self, number: int, _) -> None:
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
        for i in self._alive():
            say(f"{self._name(i)} has not ended in {self._wait:g} s: killing it")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pids[i], signal.SIGKILL)

    def run(self) -> int:
        """Waits for all; the exit status of the whole."""
        while self._alive():
            pid = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what it has left behind
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if pid in self._pids:
                self._ended(self._pids.index(pid), status)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for echo in self._echoes:
            echo.join(timeout=5)
        return self._verdict()

    def _ended(self, i: int, status: int) -> None:
        self._statuses[i] = status
        good = {0, STOPPED}
        if self._stopping:
            good.add(-signal.SIGTERM)
            if STOPPED in self._statuses.values():
                good.add(-signal.SIGABRT)  # of JAX, where another was the quicker
        if self._cause is None and status not in good:
            self._cause = i
            rest = f"; the others have {self._wait:g} s to end" if self._alive() else ""
            say(f"{self._name(i)} {how(status)}{rest}")
            signal.setitimer(signal.ITIMER_REAL, max(self._wait, 0.001))

    def _verdict(self) -> int:
        if self._cause is None:
            if not any(self._statuses.values()):
                return 0
            say("stopped; the same command goes on from there")
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
            say("mend what is said above, then give the same command again")
        else:
            say("the same command goes on from the last checkpoint")
        return 128 - status if status < 0 else status


def main() -> int:
    try:
        options = parse(sys.argv[1:])
        if options.dry_run:
            for command, share in zip(
                commands(options), shares_of_gpus(options.n), strict=True
            ):
                given = [f"{name}={value}" for name, value in share.items()]
                print(shlex.join([*given, *command]))
            return 0
        return Group(options).run()
    except UsageError as error:
        print(f"local: {error}\n{USAGE}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
