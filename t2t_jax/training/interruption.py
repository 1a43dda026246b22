"""Ctrl-C, and the SIGTERM of a machine that is about to be taken away."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

import jax
from jax.experimental import multihost_utils

from t2t_jax.parallel import rendezvous

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal has ended a run in good order.

    To Python it is Ctrl-C; the commands exit with status 128 + `signum`, as shells have
    it.
    """

    def __init__(self, signum: int, told: str = ""):
        super().__init__(told)
        self.signum = signum


class Interruption:
    """Takes note of signals, for a loop that asks after every step.

    The first signal is noted; the next one ends the process at once, as if there were
    no handler. While `at_once` is open the first one raises `Interrupted` there.

    With `jax.distributed` every process has to stop after the same step, which JAX's
    own notifier of SIGTERM sees to; another handler would silence it: there is none.
    """

    def __init__(self):
        self._signum: int | None = None
        self._at_once = False
        self._before: dict[int, object] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Interruption":
        main = threading.current_thread() is threading.main_thread()
        if main and jax.distributed.is_initialized():
            self._stack.enter_context(rendezvous.jax_sigterm_handler())
        if main and not jax.distributed.is_initialized():
            for signum in SIGNALS:
                # What a parent process wants ignored (nohup, a shell's &) stays so.
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame) -> None:
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        self._signum = signum
        if self._at_once:
            raise self.ended("")
        with contextlib.suppress(OSError, ValueError):  # stderr may be no file
            # Not `say`: the loop may be in the middle of that.
            name = signal.Signals(signum).name
            told = f"\n{name}: finishing this step and saving; again stops at once\n"
            os.write(sys.stderr.fileno(), told.encode())

    def came(self, step: int) -> bool:
        """True if the run is to end after this step; asked once a step."""
        if jax.distributed.is_initialized():
            if multihost_utils.reached_preemption_sync_point(step):
                self._signum = signal.SIGTERM
        return self._signum is not None

    def ended(self, told: str) -> Interrupted:
        """The exception for the signal that came."""
        name = signal.Signals(self._signum).name
        error = Interrupted(self._signum, f"{name}: {told}")
        error.everywhere = True  # all processes stop after the same step
        return error

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """For work that may be left anywhere: a signal raises `Interrupted` in it."""
        self._at_once = True
        try:
            if self._signum is not None:
                raise self.ended("")
            yield
        finally:
            self._at_once = False
