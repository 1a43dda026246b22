"""Records what devices and threads do in some steps of a run: `--profile=N-M`."""

from pathlib import Path

import jax

from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.parallel import processes
from t2t_jax.training.step import TrainState

PROFILES = Path("profiles")  # in the current folder: a workdir has a run's results only


class Profiler:
    """Called after each step, records steps `first` to `last`, once.

    Process 0 records. The trace is for ui.perfetto.dev and for TensorBoard's profiler.
    Steps take longer while they are recorded; their results are the same. A context
    manager: at its end a trace that was begun is complete.

    Args:
      steps: of the run.

    Raises:
      UserError: there is no such stretch, or a run's first step is in it: before that
        nothing is called.
    """

    def __init__(self, first: int, last: int, steps: int):
        if not 1 < first <= last <= steps:
            raise UserError(
                f"--profile={first}-{last}; want steps N-M with 1 < N <= M <= "
                f"{steps:,}, such as 10-14"
            )
        self.first, self.last = first, last
        self._folder = PROFILES / f"{first}-{last}"
        if self._folder.exists():
            raise UserError(
                f"--profile={first}-{last}: {self._folder} exists; remove it first"
            )
        self._state = "before"

    def __call__(self, step: int, loss, metrics, state: TrainState) -> None:
        if not processes.is_first():
            return
        # Steps may come again, after a rollback.
        if step == self.first - 1 and self._state == "before":
            jax.block_until_ready(state)  # steps before are not in the trace
            jax.profiler.start_trace(self._folder, create_perfetto_trace=True)
            self._state = "recording"
        elif step == self.last and self._state == "recording":
            jax.block_until_ready(state)
            self._stop()

    def _stop(self) -> None:
        jax.profiler.stop_trace()
        self._state = "recorded"
        trace = next(self._folder.rglob("perfetto_trace.json.gz"))
        say(f"steps {self.first:,} to {self.last:,} are recorded: open {trace}")

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(self, *_) -> None:
        if self._state == "recording":
            self._stop()
        elif self._state == "before" and processes.is_first():
            say(f"nothing is recorded: step {self.first:,} was not trained")
