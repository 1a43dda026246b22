"""Locks: a folder that one process at a time writes in, a workdir of one run."""

import contextlib
import fcntl
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from typing import IO

from etils import epath

from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local


def acquire(opened: IO | int, wait: bool = True) -> bool | None:
    """Locks an open file for this process, until it is closed or the process dies.

    Returns:
      True once it is locked. False if another process holds the lock and `wait` is
      False. None if the file system has no locks.
    """
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None


def is_held(file: epath.PathLike) -> bool | None:
    """True if a process holds the lock of a file; None if there are no locks here."""
    try:
        opened = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None  # `hold` says why
    try:
        # Shared, so that two processes that look do not see each other.
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(opened)
    return False


def refuse_if_held(folder: epath.Path) -> None:
    """Raises UserError if a run on this machine or disk holds a workdir.

    It takes nothing: another run may hold the workdir before `hold` is called.
    """
    file = folder / ".lock"
    if is_local(file) and is_held(file):
        raise _in_use(file)


@contextlib.contextmanager
def exclusive(folder: epath.PathLike) -> Iterator[None]:
    """Holds a lock on a folder, so that one process at a time writes in it.

    Other processes wait. In a bucket, and on file systems without locks, does nothing.
    """
    folder = epath.Path(folder)
    with contextlib.ExitStack() as stack:
        if is_local(folder):
            folder.mkdir(parents=True, exist_ok=True)
            # The folder itself is locked, so no lock file is left behind. Closing it,
            # or the end of the process, releases the lock.
            opened = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, opened)
            if acquire(opened) is None:
                # NFS locks only what is open for writing, as no folder can be.
                acquire(stack.enter_context(open(folder / ".lock", "a")))
        yield


@contextlib.contextmanager
def hold(folder: epath.Path) -> Iterator[Callable[[], None]]:
    """Keeps a workdir for one run; other runs are refused until this one ends.

    On disk the operating system holds the lock and releases it when the process dies.
    Where there are no locks (a bucket, some network folders) the latest run owns the
    workdir, and the earlier one finds out before its next write.

    A folder that was created for the lock and stayed empty is removed again.

    Yields:
      A function that raises a UserError once the workdir belongs to another run.

    Raises:
      UserError: another run holds it, or it cannot be written.
    """
    file, created = folder / ".lock", not folder.exists()
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    owner = f"process {os.getpid()} on {socket.gethostname()}, since {since}"
    # Unique, since process ids repeat on other hosts and after a restart.
    claim = f"{owner}\n{uuid.uuid4()}\n"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if is_local(file):
                _lock(file, stack)
            file.write_text(claim)
        except OSError as e:
            raise UserError(
                f"{folder} cannot be written: {e}. Training needs a writable folder; "
                "translating only reads"
            ) from None

        def check() -> None:
            content = file.read_text() if file.exists() else ""
            if content != claim:
                holder = content.partition("\n")[0] or "nobody: its .lock was removed"
                raise UserError(
                    f"{folder} is no longer this run's: it was taken over by {holder}. "
                    "This run ends here and writes nothing more"
                )

        try:
            yield check
        finally:
            with contextlib.suppress(OSError):
                if file.exists() and file.read_text() == claim:
                    file.unlink()
                    if created and is_local(folder):
                        os.rmdir(folder)  # fails unless the folder is empty


def _lock(file: epath.Path, stack: contextlib.ExitStack) -> None:
    """Locks a file until `stack` closes; raises UserError if another run holds it."""
    while True:
        # "a+" neither truncates the file, which names its holder, nor requires it.
        opened = stack.enter_context(open(file, "a+"))  # noqa: SIM115
        locked = acquire(opened, wait=False)
        if locked is False:
            # Perhaps somebody only looked (`is_held`), which takes a moment.
            time.sleep(0.1)
            locked = acquire(opened, wait=False)
        if locked is None:
            return  # this file system has no locks
        if not locked:
            raise _in_use(file)
        # The previous holder may have removed the file between our open and our lock.
        # Then we hold a lock that nobody else can see: try again with the new file.
        if file.exists() and os.path.samestat(os.fstat(opened.fileno()), os.stat(file)):
            return


def _in_use(file: epath.Path) -> UserError:
    """The error for a workdir whose lock file is held; the file names the holder."""
    try:
        content = file.read_text()
    except OSError:  # its holder may just have removed it
        content = ""
    holder = content.partition("\n")[0].strip() or "another run"
    return UserError(
        f"{file.parent} is in use by {holder}. Wait for it or stop it, or give another "
        "--workdir"
    )
