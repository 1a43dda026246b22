"""Ends of training: all steps, time, no further progress, or a signal."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable

import jax
from jax.experimental import multihost_utils

from t2t_jax.config import Config
from t2t_jax.io import interruption
from t2t_jax.io.interruption import Interrupted
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


class Interruption:
    """Signals during the training loop, which asks `came` after every step.

    With `jax.distributed` all processes have to stop after the same step. JAX's own
    SIGTERM notifier arranges that, and gets the SIGTERM, also for Ctrl-C.

    Args:
      all_saved: asked in a thread; True if the newest step is on disk. Then a signal
        need not wait for what the loop does: it may compile for minutes.
    """

    def __init__(self, all_saved: Callable[[], bool] = lambda: False):
        self._all_saved = all_saved
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Interruption":
        distributed = jax.distributed.is_initialized()
        if distributed:
            rendezvous.keep_jax_sigaction()  # before Python's handler takes its place
        with self._stack as stack:
            self._watch = watch = stack.enter_context(interruption.watched())
            notice = "finishing this step and saving; again stops at once"
            if distributed:
                forwarding = watch.held("", lambda: False, forward=signal.SIGTERM)
                stack.enter_context(forwarding)
                if threading.current_thread() is threading.main_thread():
                    stack.enter_context(rendezvous.jax_sigterm_handler())
            else:
                stack.enter_context(watch.held(notice, self._all_saved))
            if watch.signum is not None:
                # It came before: of several processes only this one knows of it.
                raise watch.ended(interruption.STOPPED)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def check(self) -> None:
        """Raises `Interrupted` if a signal came after the last step; afterwards."""
        self._watch.check()

    def came(self, step: int) -> bool:
        """True if the run is to end after this step; call it once after every step."""
        if jax.distributed.is_initialized():
            # All processes agree on a step; needs the same calls in each of them.
            if multihost_utils.reached_preemption_sync_point(step):
                self._watch.signum = signal.SIGTERM
        return self._watch.signum is not None

    def ended(self, message: str) -> Interrupted:
        """Creates the exception for the signal that came, with a message."""
        error = self._watch.ended(message)
        # All processes stop after the same step, so each can exit in the usual way.
        error.everywhere = True
        return error

    def at_once(self) -> contextlib.AbstractContextManager[None]:
        """Lets `interruption.check` raise `Interrupted`, in work that saves nothing.

        For work that may be abandoned anywhere, such as an evaluation.
        """
        return self._watch.at_once()
