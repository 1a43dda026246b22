"""Rendezvous of the processes of a program, and how one process leaves.

On a cluster that JAX knows, it finds the processes by itself. It also notices when one
of them dies, and ends the others about `HEARTBEAT` seconds later.
"""

import contextlib
import ctypes
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterator

from t2t_jax.io.errors import UserError

HEARTBEAT = 30  # seconds of silence after which a process counts as dead
CONNECT_TIMEOUT = 300  # seconds within which all processes have to start
EXIT_TIMEOUT = 3600  # seconds that a finished process waits at exit for the others

# Beginnings of the variables by which JAX recognizes a cluster (jax/_src/clusters).
CLUSTERS = (
    "SLURM_",
    "OMPI_",
    "KUBERNETES_",
    "JAX_COORDINATOR_",
    "JAX_FORCE_TPU_INIT",
    "TPU_LIBRARY_PATH",
)


def may_have_others() -> bool:
    """False if JAX would certainly find no other processes; does not import JAX."""
    return (
        "jax" in sys.modules
        or any(name.startswith(CLUSTERS) for name in os.environ)
        or importlib.util.find_spec("libtpu") is not None
    )


def initialize(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Connects this process with the others; call it before JAX is used.

    On Cloud TPU, under Slurm's srun and in Kubernetes, JAX finds the other processes by
    itself. Elsewhere give all three arguments, or none to run a single process.

    Args:
      coordinator: HOST:PORT at which process 0 listens; HOST is one of its addresses.
      processes: the number of processes. 1 runs a single process, even on a cluster.

    Raises:
      UserError: the arguments contradict each other, the processes cannot connect, or
        JAX lacks an argument that is needed.
    """
    arguments = {
        "--coordinator_address": coordinator,
        "--num_processes": processes,
        "--process_id": process,
    }
    missing = [name for name, value in arguments.items() if value is None]
    if len(missing) == 3 and not may_have_others():
        return
    import jax

    if jax.distributed.is_initialized() or (processes == 1 and not process):
        return
    if 0 < len(missing) < 3:
        raise UserError(
            f"missing {' and '.join(missing)}; give all three of "
            "--coordinator_address=HOST:PORT --num_processes=N --process_id=I, or none"
        )
    if not missing:
        _check(coordinator, processes, process)
    identity = (
        f" (process {process} of {processes} at {coordinator})" if coordinator else ""
    )
    hint = (
        f"Start all of them within {CONNECT_TIMEOUT} seconds, with the same "
        "--coordinator_address (reachable from each) and different values of "
        "--process_id; or give "
        "--num_processes=1 to run a single process"
    )
    try:
        with _connecting(f"error: the processes failed to connect{identity}. {hint}"):
            jax.distributed.initialize(
                coordinator_address=coordinator,
                num_processes=processes,
                process_id=process,
                # None: each process uses all devices that it can see. Launchers limit
                # what it sees.
                local_device_ids=None,
                # With explicit addresses the cluster's own are not to be looked up.
                cluster_detection_method="deactivate" if coordinator else None,
                # Longer than our own timer, whose message says what to do.
                initialization_timeout=CONNECT_TIMEOUT + HEARTBEAT,
                heartbeat_timeout_seconds=HEARTBEAT,
                # A process that is done waits at exit while process 0 still writes its
                # last checkpoint. When this time is over, JAX kills both.
                shutdown_timeout_seconds=EXIT_TIMEOUT,
            )
    except TypeError as e:  # an argument that JAX does not have
        raise UserError(
            f"JAX {jax.__version__} does not work with t2t_jax ({e}); install the "
            "newest one: pip install --upgrade jax"
        ) from None
    except Exception as e:
        if missing and "coordinator_address should be defined" in str(e):
            return  # not on a cluster that JAX knows: a single process
        raise UserError(
            f"the processes failed to connect{identity}: {e}. {hint}"
        ) from None


@contextlib.contextmanager
def _connecting(timeout_message: str) -> Iterator[None]:
    """Keeps the process killable while JAX waits for the others.

    JAX waits in C++, where Python's signal handlers do not run and where its own
    timeout would abort the process. So signals get their default effect in here, and a
    timer ends the process after `CONNECT_TIMEOUT` seconds, with a message.

    Also saves the SIGTERM handler that JAX installs, for `jax_sigterm_handler`, and
    puts the previous one back.
    """

    def give_up() -> None:
        print(timeout_message, file=sys.stderr, flush=True)
        exit_now(2)

    timer = threading.Timer(CONNECT_TIMEOUT, give_up)
    timer.daemon = True
    import jax

    previous = {}
    # Python allows only the main thread to set signal handlers.
    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM):
            # Leave signals alone that are ignored, or handled outside of Python (None).
            if signal.getsignal(signum) not in (signal.SIG_IGN, None):
                previous[signum] = signal.signal(signum, signal.SIG_DFL)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if signal.SIGTERM in previous and jax.distributed.is_initialized():
            keep_jax_sigaction()
        for signum, handler in previous.items():
            signal.signal(signum, handler)


# JAX's `struct sigaction` for SIGTERM, in a buffer larger than that struct on any
# platform; zeros until `_connecting` saves it.
_jax_sigaction = ctypes.create_string_buffer(1024)


def keep_jax_sigaction() -> None:
    """Keeps JAX's handler of SIGTERM, right after `jax.distributed.initialize`.

    Later calls keep nothing: another handler may be there by then.
    """
    if not any(_jax_sigaction.raw):
        # By libc: the signal module cannot return a handler that C++ installed.
        ctypes.CDLL(None).sigaction(signal.SIGTERM, None, _jax_sigaction)


@contextlib.contextmanager
def jax_sigterm_handler() -> Iterator[None]:
    """Lets JAX handle SIGTERM, so that all processes can stop after the same step.

    Outside of it SIGTERM ends this process, as it ends a program of one process.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if not any(_jax_sigaction.raw) or handler is None:
        yield
        return
    ctypes.CDLL(None).sigaction(signal.SIGTERM, _jax_sigaction, None)
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
    """Ends this process at once, for an error that the other processes cannot see.

    An ordinary exit waits for the others, which may be waiting for this process.
    """
    os._exit(status)
