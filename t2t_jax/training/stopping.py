"""When training ends: by steps, by time, or because it gets no better."""

import time

from t2t_jax.config import Config


class Clock:
    """Seconds of training, those before restarts included."""

    def __init__(self, seconds_before: float):
        self._started = time.monotonic() - seconds_before

    def seconds(self) -> float:
        return time.monotonic() - self._started


def best_step(bleu: dict[int, float]) -> int | None:
    """The step of the best BLEU, the earliest of equals; None before the first."""
    return max(sorted(bleu), key=bleu.__getitem__, default=None)


def reason_to_stop(
    config: Config, step: int, seconds: float, bleu: dict[int, float]
) -> str:
    """Why training ends here, for a person to read; empty while it goes on.

    Args:
      step: the updates made.
      seconds: on the clock, restarts included; one step is made in any case.
      bleu: of the dev set at each evaluation so far, by step.
    """
    train = config.train
    if step >= train.steps:
        return f"{step:,} of {train.steps:,} steps are trained"
    if train.minutes and step and seconds >= train.minutes * 60:
        return (
            f"config.train.minutes={train.minutes:g} are over, after {step:,} of "
            f"{train.steps:,} steps"
        )
    best = best_step(bleu)
    # Where a run was stopped it was evaluated, too; that must not use up patience.
    regular = [s for s in bleu if s % train.eval_every == 0]
    since = sum(s > best for s in regular) if best is not None else 0
    if train.patience and since >= train.patience:
        return (
            f"dev BLEU has not risen above {bleu[best]:.2f}, of step {best:,}, in "
            f"{since} evaluations (config.train.patience={train.patience})"
        )
    return ""
