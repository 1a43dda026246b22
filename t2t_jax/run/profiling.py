"""Records what devices and threads do in some steps of a run: `--profile=N-M`."""

from collections.abc import Callable
from pathlib import Path

import jax

from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.parallel import processes
from t2t_jax.training.step import TrainState

PROFILES = Path("profiles")  # in the current folder: a workdir has a run's results only


def profiler(first: int, last: int) -> Callable[[int, TrainState], None]:
    """Returns a function that, called after each step, records steps `first` to `last`.

    Process 0 records. The trace is for ui.perfetto.dev and for TensorBoard's profiler.
    Steps take longer while they are recorded; their results are the same.

    Raises:
      UserError: there is no such stretch, or a run's first step is in it: before that
        nothing is called.
    """
    if not 1 < first <= last:
        raise UserError(
            f"--profile={first}-{last}; want steps N-M with 1 < N <= M, such as 10-14"
        )
    folder = PROFILES / f"{first}-{last}"
    if folder.exists():
        raise UserError(f"--profile={first}-{last}: {folder} exists; remove it first")
    recording = False

    def after_step(step: int, state: TrainState) -> None:
        nonlocal recording
        if step == first - 1 and processes.is_first():
            jax.block_until_ready(state)  # steps before are not in the trace
            jax.profiler.start_trace(folder, create_perfetto_trace=True)
            recording = True
        elif step == last and recording:
            jax.block_until_ready(state)
            jax.profiler.stop_trace()
            recording = False
            trace = next(folder.rglob("perfetto_trace.json.gz"))
            say(f"steps {first:,} to {last:,} are recorded: open {trace}")

    return after_step
