"""Trackers of other packages, for --track: Weights & Biases, MLflow.

The run's id there is kept in the workdir, in wandb.id or mlflow.id, so that a continued
run is one run there, too.
"""

import dataclasses
import functools
import os
import queue
import threading
from collections.abc import Callable

from t2t_jax.io.atomic import write_atomically
from t2t_jax.io.messages import say
from t2t_jax.workdir import Workdir

# The run's id, what sends metrics of a step, and what ends the run.
Opened = tuple[str, Callable[[int, dict[str, float]], None], Callable[[], None]]


class Background:
    """Sends metrics in a thread: a network that is slow or gone does not stop a run."""

    PATIENCE = 10.0  # seconds that the end of training waits for metrics not sent yet

    def __init__(self, open_run: Callable[..., Opened], workdir: Workdir, _: int):
        self._name = open_run.__name__.removeprefix("_open_")
        self._entries, self._warned = queue.SimpleQueue(), False
        arguments = open_run, workdir
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def add(self, step: int, kind: str, values: dict[str, float]) -> None:
        """Adds metrics of a step, as `KIND/NAME`."""
        self._entries.put((step, {f"{kind}/{n}": v for n, v in values.items()}))

    def close(self) -> None:
        """Waits until all is sent, but not for long."""
        self._entries.put(None)
        self._thread.join(self.PATIENCE)
        if self._thread.is_alive():
            self._warn("it is still sending")

    def _run(self, open_run: Callable[..., Opened], workdir: Workdir) -> None:
        try:
            file = workdir / f"{self._name}.id"
            known = file.read_text() if file.exists() else None
            config = dataclasses.asdict(workdir.config())
            opened, send, finish = open_run(workdir.path.name, config, known)
            write_atomically(file, opened.encode())
            while entry := self._entries.get():
                try:
                    send(*entry)
                except Exception as e:
                    self._warn(e)
            finish()
        except Exception as e:
            self._warn(e)

    def _warn(self, why: object) -> None:
        if not self._warned:
            say(f"warning: {self._name} lacks metrics, metrics.jsonl has all: {why}")
        self._warned = True


def _open_wandb(name: str, config: dict, known: str | None) -> Opened:
    import wandb

    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "t2t_jax"),
        name=name,
        id=known,
        resume="allow",
        config=config,
        settings=wandb.Settings(console="off"),
    )
    # Not W&B's own step, which cannot go back, as a run does after a divergence.
    run.define_metric("*", step_metric="step")
    return run.id, lambda step, values: run.log({"step": step, **values}), run.finish


def _open_mlflow(name: str, config: dict, known: str | None) -> Opened:
    import mlflow

    if not os.environ.keys() & {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"}:
        mlflow.set_experiment("t2t_jax")
    run = mlflow.start_run(run_id=known, run_name=name)
    if not known:  # parameters cannot change there; some fields can
        sections = config.items()
        mlflow.log_params({f"{s}.{n}": v for s, of in sections for n, v in of.items()})
    mlflow.log_dict(config, "config.json")
    return run.info.run_id, lambda s, v: mlflow.log_metrics(v, step=s), mlflow.end_run


WANDB = functools.partial(Background, _open_wandb)
MLFLOW = functools.partial(Background, _open_mlflow)
