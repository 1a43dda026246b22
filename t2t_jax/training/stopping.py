"""Conditions that end training: steps, time, or no further progress."""

import time

from t2t_jax.config import Config


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
      step: the number of steps trained.
      seconds: training time, including restarts; at least one step is always trained.
      goodness: the dev score of every evaluation so far, by step; higher is better.
      name: of the score.
    """
    train = config.train
    if step >= train.steps:
        return f"{step:,} of {train.steps:,} steps are trained"
    if train.minutes and step and seconds >= train.minutes * 60:
        return (
            f"the limit config.train.minutes={train.minutes:g} was reached after "
            f"{step:,} of {train.steps:,} steps"
        )
    best = best_step(goodness)
    # A run is also evaluated wherever it was stopped, off the grid of eval_every. Those
    # evaluations do not count, or stopping a run often would use up its patience.
    regular = [s for s in goodness if s % train.eval_every == 0]
    since = sum(s > best for s in regular) if best is not None else 0
    if train.patience and since >= train.patience:
        return (
            f"dev {name} did not improve on {abs(goodness[best]):.2f}, reached at step "
            f"{best:,}, "
            f"in {since} evaluations (config.train.patience={train.patience})"
        )
    return ""
