"""How the processes of a program come together, and how one leaves.

JAX finds out who they are where it can, and notices when one dies: it then ends the
others within `HEARTBEAT` seconds or little more.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator

import jax

from t2t_jax.terminal.errors import UserError

HEARTBEAT = 30  # seconds of silence after which a process counts as dead
MEET = 300  # seconds in which all processes have to come up
END = 3600  # seconds that one waits whose work is done before the others'


def initialize(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Lets this process meet the others; call it before JAX is used.

    On Cloud TPU, under Slurm's srun and in Kubernetes JAX finds out by itself who the
    others are. Elsewhere all three are to be given, or none for a process alone.

    Args:
      coordinator: HOST:PORT, where process 0 listens; it picks HOST among its own.
      processes: how many there are. 1: alone, whatever the place.
      process: the number of this one, from 0.

    Raises:
      UserError: they contradict each other, or do not meet.
    """
    given = {
        "--coordinator_address": coordinator,
        "--num_processes": processes,
        "--process_id": process,
    }
    missing = [name for name, value in given.items() if value is None]
    if jax.distributed.is_initialized() or (processes == 1 and not process):
        return
    if 0 < len(missing) < 3:
        raise UserError(
            f"{' and '.join(missing)} not given; the three belong together: "
            "--coordinator_address=HOST:PORT --num_processes=N --process_id=I"
        )
    if not missing:
        _check(coordinator, processes, process)
    who = f", process {process} of {processes} at {coordinator}" if coordinator else ""
    hint = (
        f"All have to start within {MEET} seconds, with one --coordinator_address that "
        "they can reach and the --process_id of each its own; --num_processes=1 runs "
        "alone"
    )
    try:
        with _meeting(f"error: the processes did not meet{who}. {hint}"):
            jax.distributed.initialize(
                coordinator_address=coordinator,
                num_processes=processes,
                process_id=process,
                # A process has all devices that it sees; launchers let it see its own.
                local_device_ids=None,
                cluster_detection_method="deactivate" if coordinator else None,
                initialization_timeout=MEET + HEARTBEAT,
                heartbeat_timeout_seconds=HEARTBEAT,
                # Who ends first waits while the first one writes its last checkpoint;
                # at the end of that time JAX would kill both.
                shutdown_timeout_seconds=END,
            )
    except Exception as e:
        if missing and "coordinator_address should be defined" in str(e):
            return  # no cluster that JAX knows: a process alone
        raise UserError(f"the processes did not meet{who}: {e}. {hint}") from None


@contextlib.contextmanager
def _meeting(late: str) -> Iterator[None]:
    """While JAX waits for the others Python's signal handlers do not run: here signals
    end the process at once. So does, told, the end of the time: JAX would abort.

    JAX leaves a handler of its own for SIGTERM, which only training asks; it is kept
    for `sigterm_noted`.
    """

    def give_up() -> None:
        print(late, file=sys.stderr, flush=True)
        exit_now(2)

    timer = threading.Timer(MEET, give_up)
    timer.daemon = True
    before = {}
    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(signum) not in (signal.SIG_IGN, None):
                before[signum] = signal.signal(signum, signal.SIG_DFL)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if signal.SIGTERM in before and jax.distributed.is_initialized():
            ctypes.CDLL(None).sigaction(signal.SIGTERM, None, _notifier)
        for signum, handler in before.items():
            signal.signal(signum, handler)


_notifier = ctypes.create_string_buffer(1024)  # JAX's struct sigaction; smaller


@contextlib.contextmanager
def jax_sigterm_handler() -> Iterator[None]:
    """In here JAX takes note of SIGTERM, for all processes to stop after one step;
    elsewhere it ends this process, as a program alone."""
    handler = signal.getsignal(signal.SIGTERM)
    if not any(_notifier.raw) or handler is None:
        yield
        return
    ctypes.CDLL(None).sigaction(signal.SIGTERM, _notifier, None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _check(coordinator: str, processes: int, process: int) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(f"--coordinator_address={coordinator}; want HOST:PORT")
    if not 0 <= process < processes:
        raise UserError(
            f"--process_id={process} of --num_processes={processes}; want one from 0 "
            f"to {processes - 1}"
        )


def exit_now(status: int) -> None:
    """Ends this process at once because of something that the others do not know.

    An ordinary end would wait for them, and they may be waiting for this one.
    """
    os._exit(status)
