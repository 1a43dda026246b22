"""The lock that keeps a workdir for one run at a time."""

import contextlib
import fcntl
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator

from etils import epath

from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local


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
    mine = f"{owner}\n{uuid.uuid4()}\n"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if is_local(file):
                _lock(file, stack)
            file.write_text(mine)
        except OSError as e:
            raise UserError(
                f"{folder} cannot be written: {e}. Training needs a writable folder; "
                "translating only reads"
            ) from None

        def check() -> None:
            content = file.read_text() if file.exists() else ""
            if content != mine:
                by = content.partition("\n")[0] or "nobody: its .lock was removed"
                raise UserError(
                    f"{folder} is no longer this run's: it was taken over by {by}. "
                    "This run ends here and writes nothing more"
                )

        try:
            yield check
        finally:
            with contextlib.suppress(OSError):
                if file.exists() and file.read_text() == mine:
                    file.unlink()
                    if created and is_local(folder):
                        os.rmdir(folder)  # fails unless the folder is empty


def _lock(file: epath.Path, stack: contextlib.ExitStack) -> None:
    """Locks a file until `stack` closes or the process dies.

    Raises:
      UserError: another run holds the lock.
    """
    while True:
        # "a+" neither truncates the file, which names its holder, nor requires it.
        opened = stack.enter_context(open(file, "a+"))  # noqa: SIM115
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            opened.seek(0)
            holder = opened.readline().strip() or "another run"
            raise UserError(
                f"{file.parent} is in use by {holder}. Wait for it or stop it, or give "
                "another --workdir"
            ) from None
        except OSError:
            return  # this file system has no locks
        # The previous holder may have removed the file between our open and our lock.
        # Then we hold a lock that nobody else can see: try again with the new file.
        if file.exists() and os.path.samestat(os.fstat(opened.fileno()), os.stat(file)):
            return
