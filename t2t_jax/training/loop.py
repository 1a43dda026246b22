"""The training loop, top-down.

`run` is the whole of it: restore or start, then feed, step, watch, evaluate and save
until the last step. It trains on what it is given and knows neither text nor
translation: real translations are scored, and sentences told, by functions handed in.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from t2t_jax import workdir as workdirs
from t2t_jax.config import Config
from t2t_jax.data.feeding import feed
from t2t_jax.data.prepare import Pairs
from t2t_jax.data.shapes import Shape
from t2t_jax.model.transformer import Model, Parameters, compute_dtype
from t2t_jax.parallel import chips, hosts
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.machine import machine
from t2t_jax.screen import say
from t2t_jax.training import costs, divergence, fitting, starts
from t2t_jax.training.checkpoint import Checkpoints, Reached
from t2t_jax.training.divergence import DivergedError, Rollback, Rollbacks, Trouble
from t2t_jax.training.interruption import Interrupted, Interruption
from t2t_jax.training.meter import Meter
from t2t_jax.training.metrics import Watch
from t2t_jax.training.step import TrainState, compile_steps
from t2t_jax.training.stopping import Clock, reason_to_stop
from t2t_jax.training.validation import cross_entropy_of

# (parameters, step) -> metrics of real translations of the dev set, such as bleu
Evaluate = Callable[[Parameters, int], dict[str, float]]


class Outcome(NamedTuple):
    """What a call of `run` did: the steps it went from and to, and why it ended."""

    first: int
    last: int
    why: str


class Given(NamedTuple):
    """What a run asks of those who know text and workdirs; all may be left out.

    Attributes:
      evaluate: scores translations at an evaluation.
      initial: the parameters of another model to start from, not random ones.
      describe: the sentences of a batch.
      check: raises an error when the workdir is no longer this run's.
      shapes: of the batches; the largest is compiled before training begins.
    """

    evaluate: Evaluate | None = None
    initial: Callable[[], Parameters] | None = None
    describe: divergence.Describe | None = None
    check: Callable[[], None] = lambda: None
    shapes: Sequence[Shape] = ()


def run(
    config: Config,
    workdir: Path,
    model: Model,
    bos: int,
    pairs: Pairs,
    dev: Pairs | None,
    given: Given = Given(),  # noqa: B008
) -> Outcome:
    """Trains from the newest checkpoint, or from the start, until `reason_to_stop`.

    Args:
      workdir: where checkpoints and metrics go.
      bos: the id that begins a target sentence.
      pairs, dev: tokenised text; without dev nothing is evaluated.

    Raises:
      Interrupted: a signal came; the run is saved.
      DivergedError: see `divergence.diverged`.
      UserError: a device has not the memory.
    """
    this = Run(config, workdir, model, bos, pairs, dev, given)
    first = this.step
    try:
        with Interruption() as interruption:
            last, why = this.train(interruption)
    except BaseException as e:
        with contextlib.suppress(Exception):  # the first error is the one to tell
            this.close()
        if told := fitting.explained(e, config):
            raise told from e
        raise
    this.close()
    # The first process may still have been writing.
    hosts.exchange("the end of training", None, hosts.LONG)
    return Outcome(first, last, why)


class Run:
    """A run while it is trained."""

    def __init__(self, config, workdir, model, bos, pairs, dev, given: Given):
        self.config, self.workdir, self.dev = config, workdirs.path(workdir), dev
        self.given = given
        self.steps = compile_steps(model, config, meshes.make_mesh(config.mesh), bos)
        self._flops = cache(
            lambda *shape: costs.step_flops(model, config, Shape(*shape))["model"]
        )
        self.rollbacks = Rollbacks(self.workdir)
        keep = config.decode.average, config.train.keep_best
        self.checkpoints = hosts.OfFirst(lambda: Checkpoints(workdir, *keep))
        self._stand_at(*(self._placed(self._restore) or (self._initial(), Reached())))
        self.clock = Clock(self.seconds)
        self.watch = Watch(workdir, self.step, config.train.steps)
        self.watch.roll_back(self.rollbacks.all)
        share = partial(
            meshes.share, self.steps.mesh, accumulate=config.train.accumulate
        )
        self.batches = feed(pairs, config.data, config.train.seed, self.position, share)

    def _restore(self) -> tuple[TrainState, Reached] | None:
        """The state to go on from, of the first process's disk."""
        save_every = self.config.train.save_every
        found = self.checkpoints.restore(self.steps.shapes, save_every)
        if found and int(found[0].step) % save_every == 0:
            self.checkpoints.mend(found[0])
        return found

    def _placed(self, find) -> tuple[TrainState, Reached] | None:
        """A state that the first process finds, on the devices of all."""

        def told() -> tuple[dict, TrainState] | None:
            found = find()
            return found and (found[1].told(), found[0])

        found = hosts.arrays_from_first("the state", told, self.steps.shapes)
        return found and (found[1], Reached.of(found[0]))

    def _initial(self) -> TrainState:
        """The state before the first step, from scratch or from another model."""
        if not self.given.initial:
            return self.steps.init()
        shapes = self.steps.shapes.parameters
        make = self.given.initial
        return self.steps.start(
            hosts.arrays_from_first("init_from", lambda: ((), make()), shapes)[1]
        )

    def _stand_at(self, state: TrainState, reached: Reached) -> None:
        """Goes on from a state."""
        self.state, self.step = state, int(state.step)
        self.saved = self.step  # the last step that was saved
        self.position = self.rollbacks.position(self.step, reached.position)
        self.seconds = reached.seconds
        devices = self.steps.mesh.devices
        dtype = compute_dtype(self.config.model).name
        peak = chips.peak(devices.flat[0].device_kind, dtype)
        self.meter = Meter(reached.unread, peak and peak * devices.size)

    def train(self, interruption: Interruption) -> tuple[int, str]:
        """Trains to the end; the last step and why it was that."""
        train, first = self.config.train, self.step
        on_grid = first % train.eval_every == 0
        if first and (on_grid or self._reason(self.seconds)):
            self._examine(interruption)  # stopped after saving, before this
        why = self._reason(self.seconds)
        if not why:
            if hosts.is_first():
                starts.record(self.workdir, first, machine())
            self.checkpoints.tell_room(self.state)
            if first:
                say(f"continuing after step {first:,}")
            fitting.compile_largest(self.steps, self.config, self.given.shapes)
        while not why:
            self._step()
            if self.step == first + 1:
                seconds = self.meter.leave_out_compilation()
                say(f"the first step took {seconds:.1f} s, compilation included")
            why = self._reason(self._seconds())
            if self.step % train.log_every == 0:
                if trouble := self._log():
                    self._roll_back(trouble)
                    why = ""
                    continue
            elif why:
                self._log(keep=True)  # a run that goes on later reads them again
            asked = interruption.came(self.step)
            if self.step % train.save_every == 0 or why or asked:
                self._save()
            if asked:
                raise self._left(interruption)
            if self.step % train.eval_every == 0 or why:
                self._examine(interruption)
                # Patience may end the run here, but not the clock: what it shows was
                # saved before the evaluation, and the next start has to agree.
                why = why or self._reason(0.0)
                if why and self.saved != self.step:
                    self._save()
        return self.step, why

    def _reason(self, seconds: float) -> str:
        # A run that was killed may have evaluated steps that it has to make again.
        bleu = self.watch.column("dev", "bleu", before=self.step + 1)
        return reason_to_stop(self.config, self.step, seconds, bleu)

    def _seconds(self) -> float:
        """Trained so far, by the first process's clock, at which the others only look
        now and then."""
        train = self.config.train
        if not hosts.several():
            return self.clock.seconds()
        if train.minutes and self.step % train.log_every == 0:
            self.seconds = hosts.from_first("the clock", self.clock.seconds)
        return self.seconds

    def _step(self) -> None:
        """One update."""
        self.checkpoints.check()
        at = self.position
        self.position, batch = next(self.batches)
        placed = meshes.place_batch(self.steps.mesh, batch)
        self.state, metrics = self.steps.train(self.state, placed)
        self.step += 1
        flops = self._flops(*placed["source"].shape, placed["target"].shape[1])
        self.meter.add(self.step, at, metrics, flops)

    def _save(self) -> None:
        """Saves all that it takes to go on from here."""
        self.given.check()
        average = self.step % self.config.train.save_every == 0
        average = average or self.checkpoints.none_to_translate_with()
        unread = self.meter.unread()
        reached = Reached(self.position, self.clock.seconds(), unread)
        self.checkpoints.save(hosts.gathered(self.state), reached, average)
        self.saved = self.step

    def _log(self, keep: bool = False) -> Trouble | None:
        """Tells of the steps since the last time; what shows that the run diverged."""
        self.given.check()
        rows, values = self.meter.unread(), self.meter.read(keep)

        def before(name: str) -> list[float]:
            first = int(rows[0]["step"])
            return list(self.watch.column("train", name, first).values())

        for alarm in divergence.alarms(self.config, rows, before("gradient_norm")):
            if not self.watch.has(int(alarm["step"]), "alarm"):
                if hosts.is_first():
                    divergence.tell(self.workdir, alarm, self.given.describe)
                self.watch.record(int(alarm["step"]), "alarm", alarm)
        lowest = min(before("loss"), default=float("inf"))
        self.watch.record(self.step, "train", values)
        self.watch.progress(self.step, values, self._seconds_left())
        return divergence.diverged(self.config, rows, values["loss"], lowest)

    def _seconds_left(self) -> float:
        """Of training, at the pace last read."""
        left = self.meter.seconds_a_step * (self.config.train.steps - self.step)
        limit = self.config.train.minutes * 60
        return min(left, max(0.0, limit - self.clock.seconds())) if limit else left

    def _examine(self, interruption: Interruption) -> None:
        """Evaluates, unless a run before this one has done so at this step."""
        if self.dev is not None and not self.watch.has(self.step, "dev"):
            parameters = self.state.best_parameters()
            try:
                with interruption.at_once():
                    values = cross_entropy_of(
                        self.steps, parameters, self.dev, self.config
                    )
                    if self.given.evaluate:
                        whole = hosts.gathered(parameters)
                        values |= self.given.evaluate(whole, self.step)
            except Interrupted:
                if self.saved != self.step:
                    self._save()
                raise self._left(interruption) from None
            self.given.check()
            if "bleu" in values:
                self.checkpoints.save_best(whole, self.step, values["bleu"])
            self.watch.record(self.step, "dev", values)
            told = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
            say(f"step {self.step:,}  dev  {told}")
        self.meter.pause()

    def _left(self, interruption: Interruption) -> Interrupted:
        """The end by a signal, once all is on disk."""
        self.checkpoints.wait()
        return interruption.ended(
            f"stopped after step {self.step:,}, which is saved; the same command goes "
            "on from there"
        )

    def _roll_back(self, trouble: Trouble) -> None:
        """Goes back to before the trouble, and on with the data after it.

        Raises:
          DivergedError: the config does not let it, or nothing was saved before.
        """
        told = f"at step {self.step:,}, {trouble.why}"
        allowed = self.config.train.rollbacks
        if len(self.rollbacks.all) >= allowed:
            raise DivergedError(
                f"{told}. A longer config.train.warmup may help, or "
                "config.model.dtype='float32' where it is bfloat16, in another "
                f"--workdir; config.train.rollbacks={allowed + 1} goes back to an "
                "earlier checkpoint and skips the data"
            )
        if not hosts.from_first(
            "checkpoints", lambda: self.checkpoints.saved_before(trouble.step)
        ):
            raise DivergedError(
                f"{told}, and no checkpoint is from before step {trouble.step:,}, "
                "where that began. Save more often in another --workdir: "
                f"config.train.save_every={self.config.train.save_every}"
            )
        shapes, save_every = self.steps.shapes, self.config.train.save_every
        state, reached = self._placed(
            lambda: self.checkpoints.go_back(trouble.step, shapes, save_every)
        )
        rollback = Rollback(
            int(state.step), reached.position, self.position, trouble.why
        )
        self.rollbacks.add(rollback)
        self.watch.roll_back(self.rollbacks.all)
        say(
            f"warning: {told}: back to step {rollback.step:,}, and on with the data "
            f"after batch {rollback.to.batch:,} of epoch {rollback.to.epoch:,}"
        )
        self._stand_at(state, reached)

    def close(self) -> None:
        """Waits for what is being written, and ends the threads."""
        try:
            self.batches.close()
            self.checkpoints.close()
        finally:
            self.watch.close()
