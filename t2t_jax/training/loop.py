"""The training loop, top-down.

`run` is all of it: restore or start, then feed, step, report, evaluate and save until
the last step. It trains on token arrays and knows neither text nor translation nor
chips: whatever depends on these is a function in `Hooks`.
"""

import contextlib
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from t2t_jax.config import Config
from t2t_jax.data.feeding import feed
from t2t_jax.data.prepare import Pairs
from t2t_jax.data.shapes import Shape
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel import processes
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.terminal.messages import say
from t2t_jax.training import divergence, provenance_log
from t2t_jax.training.checkpoint import Checkpoints, RunProgress
from t2t_jax.training.divergence import DivergedError, Divergence
from t2t_jax.training.interruption import Interrupted, Interruption
from t2t_jax.training.meter import Meter
from t2t_jax.training.reporter import Reporter
from t2t_jax.training.rollbacks import Rollback, Rollbacks
from t2t_jax.training.step import Steps, TrainState, compile_steps
from t2t_jax.training.stopping import Clock, reason_to_stop
from t2t_jax.training.validation import cross_entropy_of
from t2t_jax.workdir.workdir import Workdir

# (parameters, step) -> metrics of real translations of the dev set, such as bleu
Evaluate = Callable[[Parameters, int], dict[str, float]]


class Outcome(NamedTuple):
    """The result of `run`: its first and last step, and why it ended."""

    first: int
    last: int
    why: str


class Hooks(NamedTuple):
    """Functions that the loop calls, for what it does not know itself; all optional.

    Attributes:
      evaluate: scores translations at an evaluation.
      initial: the parameters of another model to start from, instead of random ones.
      describe: the sentences of a batch.
      check_owner: raises an error once the workdir belongs to another run.
      before_training: called with the jitted functions before the first step.
      step_flops: the FLOPs that the model needs for a batch of a shape.
      peak_flops: FLOP/s of all devices together, for MFU.
    """

    evaluate: Evaluate | None = None
    initial: Callable[[], Parameters] | None = None
    describe: divergence.Describe | None = None
    check_owner: Callable[[], None] = lambda: None
    before_training: Callable[[Steps], None] = lambda steps: None
    step_flops: Callable[[Shape], float] = lambda shape: 0.0
    peak_flops: float | None = None


def run(
    config: Config,
    workdir: Workdir,
    model: Model,
    bos: int,
    pairs: Pairs,
    dev: Pairs | None,
    hooks: Hooks = Hooks(),  # noqa: B008
) -> Outcome:
    """Trains from the newest checkpoint, or from the start, until `reason_to_stop`.

    Args:
      workdir: receives checkpoints and metrics.
      bos: the id that begins a target sentence.
      pairs, dev: tokenised text; without dev nothing is evaluated.

    Raises:
      Interrupted: a signal came; the run is saved.
      DivergedError: see `divergence.find_divergence`.
    """
    this = TrainingRun(config, workdir, model, bos, pairs, dev, hooks)
    first = this.step
    try:
        with Interruption() as interruption:
            last, why = this.train(interruption)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to report
            this.close()
        raise
    this.close()
    # Process 0 may still be writing.
    processes.exchange("the end of training", None, processes.LONG_TIMEOUT)
    return Outcome(first, last, why)


class TrainingRun:
    """A run while it trains."""

    def __init__(
        self,
        config: Config,
        workdir: Workdir,
        model: Model,
        bos: int,
        pairs: Pairs,
        dev: Pairs | None,
        hooks: Hooks,
    ):
        self.config, self.workdir, self.dev, self.hooks = config, workdir, dev, hooks
        self.steps = compile_steps(model, config, meshes.make_mesh(config.mesh), bos)
        self._step_flops = cache(lambda *shape: hooks.step_flops(Shape(*shape)))
        self.rollbacks = Rollbacks(workdir)
        self.checkpoints = processes.OnFirstProcess(
            Checkpoints, workdir, config.decode.average, config.train.keep_best
        )
        self._continue_from(
            *(self._place(self._restore) or (self._initial(), RunProgress()))
        )
        self.clock = Clock(self.seconds)
        self.reporter = Reporter(workdir, self.step, config.train.steps)
        self.reporter.roll_back(self.rollbacks.all)
        local = partial(
            meshes.local_layout, self.steps.mesh, accumulate=config.train.accumulate
        )
        self.batches = feed(pairs, config.data, config.train.seed, self.position, local)

    def _restore(self) -> tuple[TrainState, RunProgress] | None:
        """The state to continue from, on process 0."""
        save_every = self.config.train.save_every
        found = self.checkpoints.restore(self.steps.shapes, save_every)
        if found and int(found[0].step) % save_every == 0:
            self.checkpoints.mend(found[0])
        return found

    def _place(self, find) -> tuple[TrainState, RunProgress] | None:
        """A state that process 0 finds, placed on the devices of all processes."""

        def to_send() -> tuple[dict, TrainState] | None:
            found = find()
            return found and (found[1].to_json(), found[0])

        found = processes.arrays_from_first("the state", to_send, self.steps.shapes)
        return found and (found[1], RunProgress.from_json(found[0]))

    def _initial(self) -> TrainState:
        """The state before the first step, random or from another model."""
        if not self.hooks.initial:
            return self.steps.init()
        shapes = self.steps.shapes.parameters
        read = self.hooks.initial
        return self.steps.start(
            processes.arrays_from_first("init_from", lambda: ((), read()), shapes)[1]
        )

    def _continue_from(self, state: TrainState, progress: RunProgress) -> None:
        self.state, self.step = state, int(state.step)
        self.saved = self.step  # the last step that was saved
        self.position = self.rollbacks.position(self.step, progress.position)
        self.seconds = progress.seconds
        self.meter = Meter(progress.unread, self.hooks.peak_flops)

    def train(self, interruption: Interruption) -> tuple[int, str]:
        """Trains to the end; the last step and why it was that."""
        train, first = self.config.train, self.step
        on_grid = first % train.eval_every == 0
        if first and (on_grid or self._reason(self.seconds)):
            self._evaluate(interruption)  # stopped after saving, before this
        why = self._reason(self.seconds)
        if not why:
            if processes.is_first():
                provenance_log.record_start(self.workdir, first, describe_machine())
            self.checkpoints.tell_room(self.state)
            if first:
                say(f"continuing after step {first:,}")
            self.hooks.before_training(self.steps)
        while not why:
            self._step()
            if self.step == first + 1:
                seconds = self.meter.leave_out_compilation()
                say(f"the first step took {seconds:.1f} s, compilation included")
            why = self._reason(self._seconds())
            if self.step % train.log_every == 0:
                if found := self._log():
                    self._roll_back(found)
                    why = ""
                    continue
            elif why:
                self._log(keep=True)  # a run that goes on later reads them again
            asked = interruption.came(self.step)
            if self.step % train.save_every == 0 or why or asked:
                self._save()
            if asked:
                raise self._interrupted(interruption)
            if self.step % train.eval_every == 0 or why:
                self._evaluate(interruption)
                # Patience may end the run here, but not the clock: what it shows was
                # saved before the evaluation, and the next start has to agree.
                why = why or self._reason(0.0)
                if why and self.saved != self.step:
                    self._save()
        return self.step, why

    def _reason(self, seconds: float) -> str:
        # A run that was killed may have evaluated steps that it has to make again.
        bleu = self.reporter.column("dev", "bleu", before=self.step + 1)
        return reason_to_stop(self.config, self.step, seconds, bleu)

    def _seconds(self) -> float:
        """Trained so far, by the first process's clock, at which the others only look
        now and then."""
        train = self.config.train
        if not processes.distributed():
            return self.clock.seconds()
        if train.minutes and self.step % train.log_every == 0:
            self.seconds = processes.from_first("the clock", self.clock.seconds)
        return self.seconds

    def _step(self) -> None:
        """One update."""
        self.checkpoints.check()
        at = self.position
        self.position, batch = next(self.batches)
        placed = meshes.place_batch(self.steps.mesh, batch)
        self.state, metrics = self.steps.train(self.state, placed)
        self.step += 1
        rows, source = placed["source"].shape
        flops = self._step_flops(rows, source, placed["target"].shape[1])
        self.meter.add(self.step, at, metrics, flops)

    def _save(self) -> None:
        """Saves all that it takes to go on from here."""
        self.hooks.check_owner()
        average = self.step % self.config.train.save_every == 0
        average = average or self.checkpoints.none_to_translate_with()
        unread = self.meter.unread()
        progress = RunProgress(self.position, self.clock.seconds(), unread)
        self.checkpoints.save(processes.gather(self.state), progress, average)
        self.saved = self.step

    def _log(self, keep: bool = False) -> Divergence | None:
        """Tells of the steps since the last time; what shows that the run diverged."""
        self.hooks.check_owner()
        rows, values = self.meter.unread(), self.meter.read(keep)

        def before(name: str) -> list[float]:
            first = int(rows[0]["step"])
            return list(self.reporter.column("train", name, first).values())

        for alarm in divergence.alarms(self.config, rows, before("gradient_norm")):
            if not self.reporter.has(int(alarm["step"]), "alarm"):
                if processes.is_first():
                    divergence.report_alarm(self.workdir, alarm, self.hooks.describe)
                self.reporter.record(int(alarm["step"]), "alarm", alarm)
        lowest = min(before("loss"), default=float("inf"))
        self.reporter.record(self.step, "train", values)
        self.reporter.progress(self.step, values, self._seconds_left())
        return divergence.find_divergence(self.config, rows, values["loss"], lowest)

    def _seconds_left(self) -> float:
        """Of training, at the pace last read."""
        left = self.meter.seconds_a_step * (self.config.train.steps - self.step)
        limit = self.config.train.minutes * 60
        return min(left, max(0.0, limit - self.clock.seconds())) if limit else left

    def _evaluate(self, interruption: Interruption) -> None:
        """Evaluates, unless a run before this one has done so at this step."""
        if self.dev is not None and not self.reporter.has(self.step, "dev"):
            parameters = self.state.best_parameters()
            try:
                with interruption.at_once():
                    values = cross_entropy_of(
                        self.steps, parameters, self.dev, self.config
                    )
                    if self.hooks.evaluate:
                        whole = processes.gather(parameters)
                        values |= self.hooks.evaluate(whole, self.step)
            except Interrupted:
                if self.saved != self.step:
                    self._save()
                raise self._interrupted(interruption) from None
            self.hooks.check_owner()
            if "bleu" in values:
                self.checkpoints.save_best(whole, self.step, values["bleu"])
            self.reporter.record(self.step, "dev", values)
            told = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
            say(f"step {self.step:,}  dev  {told}")
        self.meter.pause()

    def _interrupted(self, interruption: Interruption) -> Interrupted:
        """The end by a signal, once all is on disk."""
        self.checkpoints.wait()
        return interruption.ended(
            f"stopped after step {self.step:,}, which is saved; the same command goes "
            "on from there"
        )

    def _roll_back(self, found: Divergence) -> None:
        """Goes back to before the divergence, and on with the data after it.

        Raises:
          DivergedError: the config does not let it, or nothing was saved before.
        """
        told = f"at step {self.step:,}, {found.why}"
        allowed = self.config.train.rollbacks
        if len(self.rollbacks.all) >= allowed:
            raise DivergedError(
                f"{told}. A longer config.train.warmup may help, or "
                "config.model.dtype='float32' where it is bfloat16, in another "
                f"--workdir; config.train.rollbacks={allowed + 1} goes back to an "
                "earlier checkpoint and skips the data"
            )
        if not processes.from_first(
            "checkpoints", lambda: self.checkpoints.saved_before(found.step)
        ):
            raise DivergedError(
                f"{told}, and no checkpoint is from before step {found.step:,}, "
                "where that began. Save more often in another --workdir: "
                f"config.train.save_every={self.config.train.save_every}"
            )
        shapes, save_every = self.steps.shapes, self.config.train.save_every
        state, progress = self._place(
            lambda: self.checkpoints.go_back(found.step, shapes, save_every)
        )
        rollback = Rollback(
            int(state.step), progress.position, self.position, found.why
        )
        self.rollbacks.add(rollback)
        self.reporter.roll_back(self.rollbacks.all)
        say(
            f"warning: {told}: back to step {rollback.step:,}, and on with the data "
            f"after batch {rollback.to.batch:,} of epoch {rollback.to.epoch:,}"
        )
        self._continue_from(state, progress)

    def close(self) -> None:
        """Waits for what is being written, and ends the threads."""
        try:
            self.batches.close()
            self.checkpoints.close()
        finally:
            self.reporter.close()
