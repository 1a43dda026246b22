"""Leases: which process runs what, when several share a folder of runs.

A lease is a small file. Its owner touches it every few seconds (the heartbeat). A lease
that is not touched any more belongs to a process that died, and anyone may take it.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from t2t_jax.io import lock
from t2t_jax.io.errors import UserError

HEARTBEAT = 10.0  # seconds between two touches
# Seconds without one after which an owner counts as dead. Network file systems show
# changes of a file late: NFS after up to 60 seconds.
SILENCE = 180.0


class LostError(UserError):
    """Another process has taken the lease of this one."""


class Lease:
    """A lease that this process holds; `Leases.take` creates it."""

    def __init__(self, file: Path, content: bytes, opened: int):
        self._file, self._content, self._opened = file, content, opened
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()

    def check(self) -> None:
        """Raises `LostError` if another process has taken the lease."""
        if not self._is_mine():
            raise LostError(
                f"{self._file.stem} was taken over by another process, as this one "
                f"gave no sign of life for {SILENCE:.0f} seconds; it goes on there"
            )

    def release(self) -> None:
        """Gives the lease back."""
        self._released.set()
        self._heart.join()
        with lock.exclusive(self._file.parent):
            if self._is_mine():
                self._file.unlink()
        os.close(self._opened)

    def _is_mine(self) -> bool:
        try:
            return self._file.read_bytes() == self._content
        except FileNotFoundError:
            return False

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT):
            # A file system that is away for a while is no reason to end a run.
            with contextlib.suppress(OSError):
                if self._is_mine():
                    os.utime(self._file)


class Leases:
    """The leases of a folder, as one process sees them."""

    def __init__(self, folder: Path):
        self._folder = folder
        # Name -> (owner and last touch, when this process first saw that). Judged by
        # the reader's clock alone: clocks of machines differ.
        self._seen: dict[str, tuple[Any, float]] = {}

    def owner(self, name: str) -> str:
        """The live process that holds a lease; empty if none does."""
        content = self._read(name)
        return content["owner"] if self._lives(name, content) else ""

    def starts(self, name: str) -> int:
        """Counts how often a lease was taken since an owner last gave it back."""
        return self._read(name).get("starts", 0)

    def take(self, name: str) -> Lease | None:
        """Takes a lease; returns None if a live process holds it."""
        file = self._file(name)
        # One process at a time judges and takes leases, where there are locks.
        with lock.exclusive(self._folder):
            content = self._read(name)
            if self._lives(name, content):
                return None
            lease = {
                "owner": f"process {os.getpid()} on {socket.gethostname()}",
                "host": _host(),
                "starts": content.get("starts", 0) + 1,
                "since": time.strftime("%Y-%m-%d %H:%M:%S"),
                "id": uuid.uuid4().hex,  # process ids repeat
            }
            encoded = json.dumps(lease).encode()
            opened = _write_locked(file, encoded, replace=file.exists())
            return opened and Lease(file, encoded, opened)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any]:
        """The content of a lease, and when it was `touched`; empty if there is none."""
        try:
            file = self._file(name)
            return json.loads(file.read_bytes()) | {"touched": file.stat().st_mtime}
        # ValueError: a loss of power has left the file without its content.
        except (FileNotFoundError, ValueError):
            return {}

    def _lives(self, name: str, content: dict[str, Any]) -> bool:
        """True unless there is no owner, or it is known to be dead."""
        if not content:
            return False
        # The system releases the lock of a process that dies. Only on the same machine,
        # since some network file systems have locks that others do not see.
        if content["host"] == _host():
            locked = lock.is_held(self._file(name))
            if locked is not None:
                return locked
        now, sign = time.monotonic(), (content["id"], content["touched"])
        if self._seen.get(name, (None,))[0] != sign:
            self._seen[name] = sign, now
        return now - self._seen[name][1] < SILENCE


def _write_locked(file: Path, content: bytes, replace: bool) -> int | None:
    """Writes a lease and returns its open file, which is locked.

    Args:
      replace: takes the place of another's; else, returns None if there is one.
    """
    temporary = file.with_name(f".{file.stem}.{uuid.uuid4().hex}")
    opened = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        # Locked before it has its name: no reader sees it unlocked.
        lock.acquire(opened)
        os.write(opened, content)
        if replace:
            temporary.replace(file)
        else:
            os.link(temporary, file)  # fails if there is one, without locks, too
    except FileExistsError:  # a lease of another
        os.close(opened)
        return None
    except BaseException:  # a full disk, or Ctrl-C
        os.close(opened)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return opened


def _host() -> str:
    """This machine since it was started; containers are machines of their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"
