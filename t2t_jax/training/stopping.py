"""Ends of training: all steps, time, no further progress, or a signal."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import jax
from jax.experimental import multihost_utils

from t2t_jax.config import Config
from t2t_jax.parallel import rendezvous


class Clock:
    """Seconds of training, including those before restarts.

    Monotonic: it neither jumps with the system's clock nor counts time asleep.
    """

    def __init__(self, seconds_before: float):
        self._started = time.monotonic() - seconds_before

    def seconds(self) -> float:
        """The seconds so far."""
        return time.monotonic() - self._started


def best_step(goodness: dict[int, float]) -> int | None:
    """The step of the best score, the earliest of equals; None if there is none yet."""
    return max(sorted(goodness), key=goodness.__getitem__, default=None)


def reason_to_stop(
    config: Config, step: int, seconds: float, goodness: dict[int, float], name: str
) -> str:
    """Explains why training ends here; empty while it continues.

    Args:
      seconds: training time, including restarts; at least one step is always trained.
      goodness: the dev score of every evaluation so far, by step; higher is better.
    """
    train = config.train
    if step >= train.steps:
        return f"{step:,} of {train.steps:,} steps are trained"
    if train.minutes and step and seconds >= train.minutes * 60:
        return (
            f"the limit config.train.minutes={train.minutes:g} was reached after "
            f"{step:,} of {train.steps:,} steps"
        )
    # A run is also evaluated wherever it ended, off the grid of eval_every. Those
    # evaluations do not count: a run that ends often stops where any other does.
    regular = {s: g for s, g in goodness.items() if s % train.eval_every == 0}
    best = best_step(regular)
    since = sum(s > best for s in regular) if best is not None else 0
    if train.patience and since >= train.patience:
        return (
            f"dev {name} did not improve on {abs(regular[best]):.2f}, reached at step "
            f"{best:,}, "
            f"in {since} evaluations (config.train.patience={train.patience})"
        )
    return ""


# ------------------------------------------------------------------------------ signals
# Clean shutdown on Ctrl-C, and on the SIGTERM that precedes a preemption.

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal ended a run after its state was saved.

    From Python it is an ordinary Ctrl-C. The commands exit with status 128 + `signum`,
    the convention of shells.
    """

    def __init__(self, signum: int, message: str = ""):
        super().__init__(message)
        self.signum = signum


class Interruption:
    """Signal handlers for the training loop, which polls `came` after every step.

    The first signal is only recorded; the second ends the process at once, as without
    handlers. Inside `at_once` already the first signal raises `Interrupted`.

    With `jax.distributed` all processes have to stop after the same step. JAX's own
    SIGTERM notifier arranges that, and a Python handler would replace it, so none is
    installed there.
    """

    def __init__(self):
        self._signum: int | None = None
        self._at_once = False
        self._previous: dict[int, object] = {}  # signal -> handler to restore
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Interruption":
        # Python allows only the main thread to set signal handlers.
        main = threading.current_thread() is threading.main_thread()
        if main and jax.distributed.is_initialized():
            self._stack.enter_context(rendezvous.jax_sigterm_handler())
        if main and not jax.distributed.is_initialized():
            for signum in SIGNALS:
                # Signals that the parent process ignores (nohup, a shell's &) stay so.
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._previous[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame) -> None:
        # From here on a second signal has its default effect: it ends the process.
        for each in self._previous:
            signal.signal(each, signal.SIG_DFL)
        self._signum = signum
        if self._at_once:
            raise self.ended("")
        with contextlib.suppress(OSError, ValueError):  # stderr may not be a file
            # Not `say`: the handler may interrupt the loop in the middle of a `say`,
            # and writing to the same stream again is an error.
            name = signal.Signals(signum).name
            notice = f"\n{name}: finishing this step and saving; again stops at once\n"
            os.write(sys.stderr.fileno(), notice.encode())

    def came(self, step: int) -> bool:
        """True if the run is to end after this step; call it once after every step."""
        if jax.distributed.is_initialized():
            # All processes agree on a step; needs the same calls in each of them.
            if multihost_utils.reached_preemption_sync_point(step):
                self._signum = signal.SIGTERM
        return self._signum is not None

    def ended(self, message: str) -> Interrupted:
        """Creates the exception for the signal that came, with a message."""
        name = signal.Signals(self._signum).name
        error = Interrupted(self._signum, f"{name}: {message}")
        # All processes stop after the same step, so each can exit in the usual way.
        error.everywhere = True
        return error

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Raises `Interrupted` as soon as a signal comes, in work that saves nothing.

        For work that may be abandoned anywhere, such as an evaluation.
        """
        self._at_once = True
        try:
            if self._signum is not None:
                raise self.ended("")
            yield
        finally:
            self._at_once = False
