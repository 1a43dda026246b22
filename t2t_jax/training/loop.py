"""The training loop, top-down.

`run` is the entry point: it restores or starts a run, then feeds, steps, logs, saves
and evaluates until the last step. The loop works on token arrays. Everything that needs
text, translations or facts about chips is a function in `Hooks`.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from jax import Array

from t2t_jax.config import Config
from t2t_jax.data.feeding import feed
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.shapes import Shape
from t2t_jax.io.interruption import Interrupted
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel import processes
from t2t_jax.parallel.batch_placement import local_layout, place_batch
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.parallel.nondeterminism import kernel_choices
from t2t_jax.training import checkpoint_folders, divergence, provenance_log
from t2t_jax.training.checkpoint import Checkpoints, RunProgress
from t2t_jax.training.divergence import DivergedError, Divergence, Rollback, Rollbacks
from t2t_jax.training.metrics_log import Meter
from t2t_jax.training.reporter import Reporter
from t2t_jax.training.step import FrozenModels, Steps, TrainState, compile_steps
from t2t_jax.training.stopping import Clock, Interruption, reason_to_stop
from t2t_jax.training.time_log import TimeLog
from t2t_jax.training.trackers import DEFAULT
from t2t_jax.training.validation import cross_entropy_of
from t2t_jax.workdir import Workdir

# (parameters, step) -> scores of the model's answers to the dev set, such as bleu
Evaluate = Callable[[Parameters, int], dict[str, float]]
# (step, loss, metrics, state) -> true to end training after this step
AfterStep = Callable[[int, Array, dict[str, Array], TrainState], Any]
ASKED = "after_step asked for it"  # a reason to end


class Outcome(NamedTuple):
    """Result of `run`: the step it continued from, its last step, and why it ended."""

    first_step: int
    last_step: int
    reason: str


class DevScore(NamedTuple):
    """The dev score that chooses checkpoints and ends training (patience)."""

    name: str
    higher_is_better: bool = True

    def goodness(self, score: float) -> float:
        """Returns the score, negated if lower scores are better."""
        return score if self.higher_is_better else -score


class Hooks(NamedTuple):
    """Functions that the caller passes to the loop; all optional."""

    evaluate: Evaluate | None = None  # scores the model's answers at an evaluation
    chosen_by: DevScore = DevScore("bleu")  # which of these scores chooses checkpoints
    # Returns the parameters of another model to start from, instead of random ones.
    initial: Callable[[], Parameters] | None = None
    describe: divergence.Describe | None = None  # looks up the sentences of a batch
    # Raises an error once the workdir belongs to another run.
    check_owner: Callable[[], None] = lambda: None
    # Called with the jitted functions before the first step.
    before_training: Callable[[Steps], None] = lambda steps: None
    # The FLOPs that the model needs for a batch of a shape.
    step_flops: Callable[[Shape], float] = lambda shape: 0.0
    peak_flops: float | None = None  # FLOP/s of all devices together, for MFU
    # The models that the loss reads besides the one that trains.
    frozen: FrozenModels = FrozenModels()
    after_step: AfterStep = lambda *_: None  # as in `run.train.train`
    # A step to end after, if the config has more; None: as the config says.
    last: int | None = None
    track: Sequence[str] = DEFAULT  # which of `TRACKERS` get the metrics
    time: TimeLog | None = None  # measures where the time goes


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
      dev: tokenized dev text; None turns evaluation off.

    Raises:
      Interrupted: a signal came; the state is saved.
      DivergedError: the run diverged; see `divergence.find_divergence`.
    """
    training_run = TrainingRun(config, workdir, model, bos, pairs, dev, hooks)
    first_step = training_run.step
    try:
        with Interruption(training_run.all_saved) as interruption:
            last_step, reason = training_run.train(interruption)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to report
            training_run.close()
        raise
    training_run.close()
    # A barrier: process 0 may still be writing. JAX's own barrier at exit has a shorter
    # timeout (`rendezvous.EXIT_TIMEOUT`).
    processes.exchange("the end of training", None, processes.LONG_TIMEOUT)
    # Not before: process 0 would end with this one, while it writes.
    interruption.check()
    return Outcome(first_step, last_step, reason)


class TrainingRun:
    """The state of a run during training.

    All processes execute the same code and take the same decisions from the same
    metrics; only process 0 prints, and decides about checkpoints.
    """

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
        self.time = hooks.time or TimeLog()
        mesh, frozen = meshes.make_mesh(config.mesh), hooks.frozen
        self.steps = compile_steps(model, config, mesh, bos, frozen.models)
        # The parameters of other models that training reads; process 0 has read them.
        self.frozen = ()
        if self.steps.frozen:
            self.frozen = processes.arrays_from_first(
                "the frozen models",
                lambda: ((), tuple(frozen.read())),
                self.steps.frozen,
            )[1]
        # Cached: computed once for each shape of batch, not at every step.
        self._step_flops = cache(lambda *shape: hooks.step_flops(Shape(*shape)))
        self.rollbacks = Rollbacks(workdir)
        keep = config.decode.average, config.train.keep_best, config.train.save_every
        # If all processes see the workdir, each writes and reads its part of the state.
        self.shared = checkpoint_folders.seen_by_all(workdir.checkpoints)
        self.checkpoints = (
            Checkpoints(workdir, *keep, shared=True)
            if self.shared
            else processes.OnFirstProcess(Checkpoints, workdir, *keep)
        )
        self._continue_from(
            *(self._place(self._restore) or (self._initial(), RunProgress()))
        )
        self.clock = Clock(self.seconds)
        # The config keeps its number of steps, as a schedule may depend on it.
        self.last = min(config.train.steps, hooks.last or config.train.steps)
        self.reporter = Reporter(workdir, self.step, self.last, hooks.track)
        self.reporter.roll_back(self.rollbacks.all)
        # Each process fills only the rows on its own devices.
        local = partial(
            local_layout, self.steps.mesh, accumulate=config.train.accumulate
        )
        self.batches = feed(pairs, config.data, config.train.seed, self.position, local)

    def _restore(self) -> tuple[TrainState, RunProgress] | None:
        """Reads the state to continue from."""
        restored = self.checkpoints.restore(self.steps.shapes)
        if restored:
            self.checkpoints.save_missing_parameters(restored[0])
        return restored

    def _place(self, read) -> tuple[TrainState, RunProgress] | None:
        """Places the state that `read` returns on all devices."""
        if self.shared:
            return read()  # each process has read its part

        def to_send() -> tuple[dict, TrainState] | None:
            restored = read()
            return restored and (restored[1].to_json(), restored[0])

        received = processes.arrays_from_first("the state", to_send, self.steps.shapes)
        return received and (received[1], RunProgress.from_json(received[0]))

    def _initial(self) -> TrainState:
        """Creates the state before the first step, random or from another model."""
        if not self.hooks.initial:
            return self.steps.init()
        shapes = self.steps.shapes.parameters
        read = self.hooks.initial
        # Only process 0 reads the other model; all of them get its parameters.
        return self.steps.start(
            processes.arrays_from_first("init_from", lambda: ((), read()), shapes)[1]
        )

    def _continue_from(self, state: TrainState, progress: RunProgress) -> None:
        self.state, self.step = state, int(state.step)
        self.saved = self.step  # the last step that was saved
        # A rollback may have moved the data position of this step.
        self.position = self.rollbacks.position(self.step, progress.position)
        self.seconds, self.kernel_choices = progress.seconds, progress.kernel_choices
        self.meter = Meter(progress.unread, self.hooks.peak_flops)

    def all_saved(self) -> bool:
        """True if nothing of the run would be lost if the process ended now."""
        return self.saved == self.step and self.checkpoints.is_complete()

    def train(self, interruption: Interruption) -> tuple[int, str]:
        """Trains to the end; returns the last step and why it was the last."""
        train, first_step = self.config.train, self.step
        on_grid = first_step % train.eval_every == 0
        # A step is saved before it is evaluated: if the run was stopped in between,
        # evaluate first. Does nothing if the step was evaluated.
        if first_step and (on_grid or self._reason(self.seconds)):
            self._evaluate(interruption)
        reason = self._reason(self.seconds, evaluated=True)
        if not reason:
            if processes.is_first():
                provenance_log.record_start(
                    self.workdir, first_step, describe_machine()
                )
                provenance_log.check_kernel_choices(self.kernel_choices)
                self.time.open(self.workdir, first_step)
            self.checkpoints.warn_if_disk_is_short(self.state)
            if first_step:
                say(f"continuing after step {first_step:,}")
            self.time.enter("compilation")
            self.hooks.before_training(self.steps)
        while not reason:
            asked = self._step()
            # The first step compiles: leave its time out of the rates.
            if self.step == first_step + 1:
                seconds = self.meter.leave_out_compilation()
                self.time.enter("steps")
                say(f"the first step took {seconds:.1f} s, compilation included")
            reason = self._reason(self._seconds())
            reason = ASKED if asked else reason
            if self.step % train.log_every == 0:
                if diverged := self._log():
                    self._roll_back(diverged)
                    reason = ""  # training continues from an earlier step
                    continue
            elif reason:
                # The end, between two logging intervals. Rows are kept, so that a run
                # that continues with more steps logs the same intervals.
                self._log(keep=True)
            # After every step and in all processes, as JAX's synchronisation needs.
            interrupted = interruption.came(self.step)
            # Save first: an evaluation can take long, and may be interrupted.
            if self.step % train.save_every == 0 or reason or interrupted:
                self._save()
            if interrupted:
                raise self._interrupted(interruption)
            if self.step % train.eval_every == 0 or reason:
                self._evaluate(interruption)
                # Patience may end the run here; the time limit may not. Its clock was
                # saved before the evaluation, and a restart from that save has to
                # take the same decision, so pass 0 seconds.
                reason = reason or self._reason(0.0, evaluated=True)
                if reason and self.saved != self.step:
                    self._save()
        return self.step, reason

    def _reason(self, seconds: float, evaluated: bool = False) -> str:
        if self.step >= self.last < self.config.train.steps:
            return f"step {self.last:,} is the last one asked for"
        # Only evaluations up to this step: a killed run may have evaluated later steps,
        # or this one, which it now repeats.
        name, goodness = self.hooks.chosen_by.name, self.hooks.chosen_by.goodness
        scores = self.reporter.column("dev", name, before=self.step + evaluated)
        goodnesses = {step: goodness(score) for step, score in scores.items()}
        return reason_to_stop(self.config, self.step, seconds, goodnesses, name)

    def _seconds(self) -> float:
        """Seconds trained so far, by the clock of process 0.

        With several processes it is exchanged only once per logging interval, so that
        all of them stop after the same step and few steps pay for communication.
        """
        train = self.config.train
        if not processes.distributed():
            return self.clock.seconds()
        if train.minutes and self.step % train.log_every == 0:
            self.seconds = processes.from_first("the clock", self.clock.seconds)
        return self.seconds

    def _step(self) -> bool:
        """Trains on one batch; returns true if `after_step` asks to end."""
        # Fail soon if the last save failed. Processes have to agree on that, so several
        # ask only as often as they log.
        if not self.shared or self.step % self.config.train.log_every == 0:
            self.checkpoints.check()
        position = self.position
        with self.time.during("input"):
            self.position, batch = next(self.batches)
        placed = place_batch(self.steps.mesh, batch)
        self.state, metrics = self.steps.train(self.state, placed, *self.frozen)
        self.step += 1
        # The shapes as trained, with the rows that pad the batch to the mesh.
        rows, source = placed["source"].shape
        flops = self._step_flops(rows, source, placed["target"].shape[1])
        self.meter.add(self.step, position, metrics, flops)
        after = self.hooks.after_step
        return bool(after(self.step, metrics["loss"], {**metrics}, self.state))

    def _save(self) -> None:
        """Saves everything that a restart needs to continue from this step."""
        with self.time.during("checkpoints"):
            self.hooks.check_owner()
            # Also the steps that are not logged yet: see `RunProgress`.
            unread = self.meter.unread()
            progress = RunProgress(
                self.position, self.clock.seconds(), unread, kernel_choices()
            )
            state = self.state if self.shared else processes.gather(self.state)
            self.checkpoints.save(state, progress)
            self.saved = self.step
        self.time.write(self.step)

    def _log(self, keep: bool = False) -> Divergence | None:
        """Logs the steps since the last call; returns a divergence that shows in them.

        With `keep` the steps stay unread, to be logged again later.
        """
        self.hooks.check_owner()
        rows, values = self.meter.unread(), self.meter.read(keep)

        # From the log, not from memory: a restarted run takes the same decisions.
        def logged(name: str) -> list[float]:
            first_step = int(rows[0]["step"])
            return list(self.reporter.column("train", name, first_step).values())

        # A restarted run repeats steps: each alarm is reported once.
        for alarm in divergence.alarms(self.config, rows, logged("gradient_norm")):
            if not self.reporter.has(int(alarm["step"]), "alarm"):
                if processes.is_first():
                    divergence.report_alarm(self.workdir, alarm, self.hooks.describe)
                self.reporter.record(int(alarm["step"]), "alarm", alarm)
        lowest = min(logged("loss"), default=float("inf"))
        self.reporter.record(self.step, "train", values)
        self.reporter.progress(self.step, values, self._seconds_left())
        self.time.write(self.step, urgent=False)
        return divergence.find_divergence(self.config, rows, values["loss"], lowest)

    def _seconds_left(self) -> float:
        """Estimates the seconds of training left, from the last logging interval."""
        seconds = self.meter.seconds_a_step * (self.last - self.step)
        limit = self.config.train.minutes * 60
        return (
            min(seconds, max(0.0, limit - self.clock.seconds())) if limit else seconds
        )

    def _evaluate(self, interruption: Interruption) -> None:
        """Evaluates on the dev set, unless this step is already evaluated."""
        with self.time.during("evaluation"):
            if self.dev is not None and not self.reporter.has(self.step, "dev"):
                parameters = self.state.best_parameters()
                try:
                    with interruption.at_once():
                        whole = self.steps.whole(parameters, *self.frozen)
                        values = cross_entropy_of(
                            self.steps, whole, self.dev, self.config
                        )
                        if self.hooks.evaluate:
                            gathered = processes.gather(whole)
                            values |= self.hooks.evaluate(gathered, self.step)
                except Interrupted:
                    # Nothing is recorded: the next start repeats this evaluation.
                    if self.saved != self.step:
                        self._save()
                    raise self._interrupted(interruption) from None
                self.hooks.check_owner()
                chosen_by = self.hooks.chosen_by
                if chosen_by.name in values:
                    goodness = chosen_by.goodness(values[chosen_by.name])
                    if not self.shared:
                        is_whole = whole is parameters
                        parameters = (
                            gathered if is_whole else processes.gather(parameters)
                        )
                    self.checkpoints.save_best(parameters, self.step, goodness)
                # After the checkpoint: a run killed in between evaluates again.
                self.reporter.record(self.step, "dev", values)
                scores = [f"{name} {value:.3f}" for name, value in values.items()]
                say("  ".join([f"step {self.step:,}  dev", *scores]))
        self.meter.pause()  # saving and evaluating are not part of the step rate
        self.time.write(self.step)

    def _interrupted(self, interruption: Interruption) -> Interrupted:
        """Creates the exception that ends the run, once the state is on disk."""
        self.checkpoints.wait()
        return interruption.ended(
            f"stopped after step {self.step:,}, which is saved; run the same command "
            "again to continue"
        )

    def _roll_back(self, diverged: Divergence) -> None:
        """Returns to a state from before the divergence, and skips the data since."""
        symptom = f"at step {self.step:,}, {diverged.why}"
        allowed = self.config.train.rollbacks
        if len(self.rollbacks.all) >= allowed:
            raise DivergedError(
                f"{symptom}. In another --workdir, a longer config.train.warmup may "
                "help, or config.model.dtype='float32' if it is bfloat16; in this one, "
                f"config.train.rollbacks={allowed + 1} goes back to an earlier "
                "checkpoint and skips the data"
            )
        if not processes.from_first(
            "checkpoints", lambda: self.checkpoints.saved_before(diverged.step)
        ):
            raise DivergedError(
                f"{symptom}, and no checkpoint is from before step {diverged.step:,}, "
                "where it began. In another --workdir, save more often than "
                f"config.train.save_every={self.config.train.save_every}"
            )
        self.time.write(self.step)
        state, progress = self._place(
            lambda: self.checkpoints.go_back(diverged.step, self.steps.shapes)
        )
        rollback = Rollback(
            int(state.step), progress.position, self.position, diverged.why
        )
        # On disk before it takes effect, so that a killed run skips the same data.
        # `self.batches` stays as it is: it continues from the current position.
        self.rollbacks.add(rollback)
        self.reporter.roll_back(self.rollbacks.all)
        say(
            f"warning: {symptom}: back to step {rollback.step:,}, continuing with the "
            f"data from batch {rollback.to.batch:,} of epoch {rollback.to.epoch:,}"
        )
        self._continue_from(state, progress)
        self.time.write(self.step)

    def close(self) -> None:
        """Waits for the last checkpoint, and ends all threads."""
        try:
            self.batches.close()
            with self.time.during("checkpoints"):
                self.checkpoints.close()
        finally:
            self.reporter.close()
