"""Signals that end the program: loops ask for them, and no handler raises an exception.

Python drops an exception that is raised in a `__del__`, and a handler's may come there:
the program would go on. So a handler only notes the signal, and `check` raises, in the
loops that call it. Where none does, such as in a compiler, a thread ends the process
after `GRACE` seconds, if nothing would be lost: whatever is on disk is complete.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPED = "stopped; everything written is complete"
GRACE = 10.0  # seconds
# Seconds in which further signals are taken for the same one: a shell, `timeout` and
# Slurm send it to a process and to its group.
REPEAT = 1.0


class Interrupted(KeyboardInterrupt):
    """A signal ended the program.

    From Python it is an ordinary Ctrl-C. The commands exit with status 128 + `signum`,
    the convention of shells.
    """

    def __init__(self, signum: int, message: str = ""):
        super().__init__(message)
        self.signum = signum


class Watch:
    """The signal that came, if any, and what it does; see `watched`.

    Attributes:
      signum: the first signal.
    """

    def __init__(self, ends: bool):
        self.signum: int | None = None
        self._ends, self._since = ends, 0.0
        self._taken = {*SIGNALS}
        # While something is unsaved; see `held`.
        self._held, self._notice, self._forward, self._forwarded = False, "", 0, 0
        self._nothing_lost: Callable[[], bool] = lambda: True

    @contextlib.contextmanager
    def held(
        self, notice: str, nothing_lost: Callable[[], bool], forward: int = 0
    ) -> Iterator[None]:
        """Leaves the signal to a loop that asks for `signum` and has something to save.

        Args:
          notice: printed when the signal comes.
          nothing_lost: asked in a thread; True if the process may end just now.
          forward: a signal for which another library has a handler, which gets it in
            place of the one that came.
        """
        outer_nothing_lost = self._nothing_lost
        self._held, self._notice, self._forward = True, notice, forward
        self._nothing_lost = nothing_lost
        try:
            yield
        finally:
            self._held, self._notice, self._forward = False, "", 0
            self._since, self._nothing_lost = time.monotonic(), outer_nothing_lost
            if self._forwarded:  # and nobody has asked since
                self._note(self._forwarded)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Lets `check` raise within `held`, in work that may be abandoned anywhere."""
        was_held, self._held = self._held, False
        try:
            self.check()
            yield
        finally:
            self._held = was_held

    def check(self) -> None:
        """Raises `Interrupted` if a signal came, unless it is held."""
        if self.signum is not None and not self._held:
            raise self.ended(STOPPED)

    def ended(self, message: str) -> Interrupted:
        """Creates the exception for the signal that came."""
        name = signal.Signals(self.signum).name
        return Interrupted(self.signum, f"{name}: {message}")

    def _note(self, signum: int, frame=None) -> None:
        if self._forward:  # then all processes agree on when it comes
            self._forwarded = signum
        elif self.signum is None:
            self.signum, self._since = signum, time.monotonic()

    def _listen(self, pipe: int) -> None:
        """Reads the numbers of signals as they come, even while Python does not run."""
        first_signal_time = 0.0
        while True:
            if select.select([pipe], [], [], 0.1 if first_signal_time else None)[0]:
                if not (number := os.read(pipe, 1)):
                    return
                if number[0] not in self._taken:
                    continue
                if not first_signal_time:
                    first_signal_time = time.monotonic()
                    self._first(number[0])
                elif time.monotonic() - first_signal_time > REPEAT:
                    # The default effect. Python allows only the main thread to set it.
                    ctypes.CDLL(None).signal(int(number[0]), None)
                    os.kill(os.getpid(), number[0])
            late = time.monotonic() - self._since > GRACE
            if first_signal_time and late and self._ends and self._nothing_lost():
                _print(str(self.ended(STOPPED)))
                os._exit(128 + self.signum)

    def _first(self, signum: int) -> None:
        self._note(signum)
        if self._forward:
            os.kill(os.getpid(), self._forward)
        elif self._notice:
            _print(f"\n{signal.Signals(signum).name}: {self._notice}")


_watch: Watch | None = None


def _forget_in_child() -> None:
    """A forked worker is ended by SIGTERM, and tells its parent of no signal."""
    global _watch
    if _watch:
        # Its end of the pipe, too, or the listener would wait for the child to end.
        with contextlib.suppress(OSError):
            os.close(signal.set_wakeup_fd(-1))
        for signum in SIGNALS:
            if signal.getsignal(signum) == _watch._note:
                signal.signal(signum, signal.SIG_DFL)
        _watch = None


os.register_at_fork(after_in_child=_forget_in_child)


def check() -> None:
    """Raises `Interrupted` if a signal came: for loops that may end at any item.

    Elsewhere than in the main thread does nothing.
    """
    if _watch and threading.current_thread() is threading.main_thread():
        _watch.check()


@contextlib.contextmanager
def watched(ends: bool = False) -> Iterator[Watch]:
    """Notes SIGINT and SIGTERM; within another `watched`, that one does.

    A second signal, later than `REPEAT`, has its default effect. Signals that the
    parent process ignores (nohup, a shell's &) stay so.

    Args:
      ends: True ends the process after `GRACE` seconds: for commands, not for Python.
    """
    global _watch
    # Python allows only the main thread to set signal handlers.
    if _watch or threading.current_thread() is not threading.main_thread():
        yield _watch or Watch(False)
        return
    watch = Watch(ends)
    read, write = os.pipe()
    os.set_blocking(write, False)
    pipe_before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    handlers_before = {
        signum: signal.signal(signum, watch._note)
        for signum in SIGNALS
        # None: a handler that is not Python's.
        if signal.getsignal(signum) not in (signal.SIG_IGN, None)
    }
    listener = threading.Thread(target=watch._listen, args=[read], daemon=True)
    listener.start()
    _watch = watch
    try:
        yield watch
    finally:
        # A command that a signal ends is watched on, while it waits for its threads.
        if not ends or watch.signum is None:
            _watch = None
            for signum, handler in handlers_before.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(pipe_before)
            os.close(write)
            listener.join()
            os.close(read)


@contextlib.contextmanager
def at_a_prompt() -> Iterator[None]:
    """Lets both signals raise where a person types: they end the reading of a line."""
    if (watch := _watch) is None:
        yield
        return

    def end(signum: int, frame) -> None:
        watch._note(signum)
        raise watch.ended(STOPPED)

    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: end}
    handlers_before = {
        signum: signal.signal(signum, new)
        for signum, new in handlers.items()
        if signal.getsignal(signum) == watch._note  # not what the parent ignores
    }
    watch._taken = {signal.SIGTERM}
    try:
        watch.check()
        yield
    finally:
        watch._taken = {*SIGNALS}
        for signum, handler in handlers_before.items():
            signal.signal(signum, handler)


def awaited(lines: Iterable) -> Iterator:
    """Yields lines that may be long in coming: a signal ends the wait for one."""
    lines = iter(lines)
    while True:
        with at_a_prompt():
            line = next(lines, None)
        if line is None:
            return
        yield line


def _print(text: str) -> None:
    # Not `say`: the program may be in the middle of one.
    with contextlib.suppress(OSError, ValueError):  # stderr may not be a file
        os.write(sys.stderr.fileno(), f"{text}\n".encode())
