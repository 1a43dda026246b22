"""Steps of a run: the sentences of one, and steps executed again and compared.

The steps are those of `training/loop.py`, in a scratch folder that begins with a copy
of a stored state. The workdir of the run is only read.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import jax
from etils import epath

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.data.corpus import heaviest_first, open_specs
from t2t_jax.data.drawing import tempered
from t2t_jax.data.feeding import BatchLookup, Position, feeder_name
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.prepare import find_prepared, training_pairs
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io import ideas
from t2t_jax.io.errors import UserError
from t2t_jax.io.interruption import Interrupted
from t2t_jax.io.locations import is_local
from t2t_jax.io.messages import say
from t2t_jax.model.model import Model, build
from t2t_jax.parallel.machine import (
    EFFECTS,
    describe_machine,
    machine_differences,
)
from t2t_jax.parallel.nondeterminism import nondeterminism
from t2t_jax.run import initialization
from t2t_jax.run.differences import (
    LoggedDifference,
    TreeComparison,
    compare_trees,
    first_difference,
    stored_arrays,
)
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from t2t_jax.training import checkpoint_folders, frozen_models, loop
from t2t_jax.training.averaging import parameters_sha256
from t2t_jax.training.checkpoint_folders import KINDS
from t2t_jax.training.divergence import Rollbacks
from t2t_jax.training.metrics_log import METRICS, read_log
from t2t_jax.training.provenance_log import Start, read_starts, starts_of_steps
from t2t_jax.training.step import TrainState, initial_parameters, initial_state
from t2t_jax.workdir import STARTS, Workdir

# ------------------------------------------------------- the text that a step trains on


def batch_of_step(
    workdir: Workdir | epath.PathLike, step: int
) -> tuple[Position, list[str]]:
    """Looks up the data position of a step's batch and the pairs in it.

    Returns:
      The position, and each pair as a line of JSON.
    """
    run = open_text(Workdir.open(workdir))
    steps = run.config.train.steps
    if not 1 <= step <= steps:
        raise UserError(f"--step={step}; want a step of the run, from 1 to {steps:,}")
    lookup = BatchLookup(run.config, run.pairs, run.vocabulary)
    position = position_of_step(lookup, Rollbacks(run.workdir), step)
    return position, lookup.lines(position)


def position_of_step(lookup: BatchLookup, rollbacks: Rollbacks, step: int) -> Position:
    """Returns the data position of the batch that a step is trained on."""
    # Batches follow one another from the last rollback on, one per step.
    last_step, start = rollbacks.last_before(step)
    return lookup.position(start, step - 1 - last_step)


class RunText(NamedTuple):
    """The text of a run, as its training reads it."""

    workdir: Workdir
    config: Config
    vocabulary: Vocabulary
    task: Task
    pairs: Pairs  # the prepared pairs, with the noise and the variation of the run


def open_text(workdir: Workdir) -> RunText:
    """Opens the training text of a run from the cache; writes nothing."""
    config, vocabulary = workdir.config(), workdir.vocabulary()
    arrays = find_prepared(workdir.text())
    task, data = task_of(config), config.data
    written = open_specs(data.train, task.open, data.dir, weights=True)
    corpora = heaviest_first(written)
    weights = tempered(arrays.sizes, [c.weight for c in corpora], data.temperature)
    if tuple(weights) != arrays.weights:
        corpora = written  # by version 0.2, which kept the order of the config
    pairs = training_pairs(corpora, vocabulary, task.data(), task, arrays)
    return RunText(workdir, config, vocabulary, task, pairs)


# ---------------------------------------------------------------------- executed again

NEVER = 1 << 40  # steps between two checkpoints of the scratch folder


class Stretch(NamedTuple):
    """The steps to execute, and what they are compared with."""

    start: int  # the step of the state to continue from; 0: the initial parameters
    end: int
    stored: dict[int, tuple[str, ...]]  # the kinds of checkpoints of each step


class StoredComparison(NamedTuple):
    """A stored checkpoint and the same step executed again."""

    step: int
    kind: str
    arrays: TreeComparison


class Rerun(NamedTuple):
    """The result of `rerun`."""

    stretch: Stretch
    # The comparisons with checkpoints, in order of their steps.
    stored: list[StoredComparison]
    logged: list[int]  # the steps whose logged metrics were compared
    # The first metric that differs; None if all are the same.
    first_logged: LoggedDifference | None
    sha256: str
    starts: list[Start]  # the starts of the run that executed these steps
    machine: dict[str, str | int]
    ideas: dict[str, str]

    @property
    def same(self) -> bool:
        """True if nothing that was compared differs."""
        return not self.first_logged and all(
            comparison.arrays.same for comparison in self.stored
        )


def rerun(
    workdir: Workdir | epath.PathLike, first: int, last: int | None = None
) -> Rerun:
    """Executes a step, or a stretch of steps, of a run again and compares the results.

    Continues from the newest stored state before `first`, or from the initial
    parameters. With `last` it ends there; without, at the next checkpoint on disk at or
    after `first`, since only checkpoints are compared in every bit.

    Writes nothing into the workdir.
    """
    workdir = Workdir.open(workdir)
    text = open_text(workdir)
    feeder_name(text.config.data)  # raises if TensorFlow is needed but missing
    model = build(text.config.model, *text.vocabulary.sizes)
    stretch = plan_stretch(workdir, text.config, first, last)
    from_where = "the initial parameters"
    if stretch.start:
        from_where = f"the checkpoint of step {stretch.start:,}"
    say(
        f"executing steps {stretch.start + 1:,} to {stretch.end:,} again, from "
        f"{from_where}; {workdir} is only read"
    )
    watch = _Watch(workdir, text.config, model, stretch)
    with tempfile.TemporaryDirectory(prefix="t2t_jax-rerun-") as folder:
        scratch = _scratch(workdir, Workdir(folder), stretch)
        try:
            _execute(text, model, scratch, stretch, watch)
        except Interrupted as e:
            message = f"stopped; nothing was written into {workdir}"
            raise Interrupted(e.signum, message) from None
        logged, repeated = (
            read_log(place / METRICS).metrics("train") for place in (workdir, scratch)
        )
    for metrics in repeated.values():
        metrics.pop("flops", None)  # which only a complete run counts
    compared = [step for step in repeated if stretch.start < step and step in logged]
    rolled_back = bool(Rollbacks(workdir).all)
    starts = starts_of_steps(
        read_starts(workdir), stretch.start + 1, stretch.end, rolled_back
    )
    return Rerun(
        stretch,
        watch.comparisons,
        compared,
        first_difference(logged, repeated, compared),
        watch.sha256,
        starts,
        describe_machine(),
        dict(ideas.imported),
    )


def plan_stretch(
    workdir: Workdir, config: Config, first: int, last: int | None
) -> Stretch:
    """Chooses where to start and to end; see `rerun`."""
    steps_of = {
        kind: checkpoint_folders.sealed_steps(workdir.checkpoints / kind)
        for kind in KINDS
    }
    stored = {
        step: tuple(kind for kind in KINDS if step in steps_of[kind])
        for step in sorted({step for steps in steps_of.values() for step in steps})
    }
    trained = max([*stored, *read_log(workdir / METRICS).metrics("train"), 0])
    requested = f"{first}" if last is None else f"{first}-{last}"
    if not trained:
        raise UserError(f"{workdir} has trained no step yet; train it first")
    if not 1 <= first <= (first if last is None else last) <= trained:
        raise UserError(
            f"--step={requested}; want a step of the run, from 1 to {trained:,}, or a "
            "stretch N-M of them"
        )
    start = newest_intact(workdir, [s for s in steps_of["state"] if s < first])
    if not start:
        _check_initial(workdir, config, requested, steps_of["state"])
    next_stored = min((step for step in stored if step >= first), default=trained)
    end = next_stored if last is None else last
    passed = {step: kinds for step, kinds in stored.items() if start < step <= end}
    return Stretch(start, end, passed)


def newest_intact(workdir: Workdir, steps: list[int]) -> int:
    """The newest of some stored states that is not damaged; 0 if there is none."""
    for step in reversed(steps):
        path = workdir.checkpoints / "state" / str(step)
        if not (trouble := checkpoint_folders.damage(path)):
            return step
        say(f"warning: {path} is damaged ({trouble}); starting further back")
    return 0


def _check_initial(
    workdir: Workdir, config: Config, requested: str, states: list[int]
) -> None:
    """Raises UserError if the initial parameters of a run cannot be had any more."""
    if not config.train.init_from:
        return  # they follow from the seed
    try:
        initialization.check_source(config)
    except UserError as e:
        can = f"steps from {states[0] + 1:,} on" if states else "no step"
        raise UserError(
            f"--step={requested}: {workdir} keeps no state from before it, and the "
            f"model that the run started from cannot be read: {e}\nWhat is left lets "
            f"{can} be executed again"
        ) from None


def _scratch(workdir: Workdir, scratch: Workdir, stretch: Stretch) -> Workdir:
    """Fills a folder with what the loop reads of a run."""
    if stretch.start:
        name = f"checkpoints/state/{stretch.start}"
        _copy(workdir / name, scratch / name)
    # Where the run skipped data; without it the rerun would not.
    if (workdir / "rollbacks.json").exists():
        content = (workdir / "rollbacks.json").read_bytes()
        (scratch / "rollbacks.json").write_bytes(content)
    # The loop warns of a machine that is not that of the last start. Here the result
    # says so, where it matters.
    start = {"step": 0, "machine": describe_machine(), "ideas": dict(ideas.imported)}
    (scratch / STARTS).write_text(json.dumps(start) + "\n")
    return scratch


def _copy(folder: epath.Path, target: epath.Path) -> None:
    """Copies a folder, which may be in a bucket, to the disk."""
    if is_local(folder):
        shutil.copytree(folder, target)
        return
    for file in folder.iterdir():
        if file.is_dir():
            _copy(file, target / file.name)
        else:
            target.mkdir(parents=True, exist_ok=True)
            file.copy(target / file.name)


class _Watch:
    """Compares states with stored checkpoints while the steps are executed."""

    def __init__(
        self, workdir: Workdir, config: Config, model: Model, stretch: Stretch
    ):
        self._workdir, self._stretch = workdir, stretch
        self._shapes = state_shapes(model, config)
        self.comparisons: list[StoredComparison] = []
        self.sha256 = ""

    def __call__(self, step: int, loss, metrics, state: TrainState) -> None:
        kinds = self._stretch.stored.get(step, ())
        if not kinds and step != self._stretch.end:
            return
        state = jax.device_get(state)
        if step == self._stretch.end:
            self.sha256 = parameters_sha256(state)
        for kind in kinds:
            path = self._workdir.checkpoints / kind / str(step)
            if trouble := checkpoint_folders.damage(path):
                say(f"warning: {path} is damaged ({trouble}); not compared")
                continue
            arrays_of_kind = state
            if kind != "state":  # the average, if there is one, by the same name
                arrays_of_kind = {"parameters": state.best_parameters()}
            arrays = compare_trees(stored_arrays(path, self._shapes), arrays_of_kind)
            self.comparisons.append(StoredComparison(step, kind, arrays))


def state_shapes(model: Model, config: Config) -> TrainState:
    """The shapes and dtypes of a run's state; computes nothing."""
    return jax.eval_shape(
        lambda: initial_state(initial_parameters(model, config.train.seed), config)
    )


def _execute(
    text: RunText, model: Model, scratch: Workdir, stretch: Stretch, watch: _Watch
) -> None:
    """Trains in the scratch folder, by the run's own loop."""
    config = fields.changed(
        text.config,
        "train",
        # What ends, interrupts or reports a run, and changes no number in it.
        **{"minutes": 0.0, "patience": 0, "save_every": NEVER},
        **{"alarm_norm": 0.0, "max_rise": 0.0, "max_skipped": NEVER},
    )
    frozen = frozen_models.open_frozen(text.config, model, text.vocabulary)
    if (recorded := text.workdir.text().get("frozen", [])) != [*frozen.sha256]:
        raise UserError(
            f"the parameters of the models that {text.workdir} reads in training are "
            f"not those of the run: SHA-256 {', '.join(recorded)} then, "
            f"{', '.join(frozen.sha256)} now; put their checkpoints back"
        )
    for end in _ends(scratch, stretch):
        hooks = loop.Hooks(
            initial=initialization.hook(text.config, model, text.vocabulary),
            frozen=frozen,
            after_step=watch,
            last=end,
        )
        bos = text.vocabulary.bos
        loop.run(config, scratch, model, bos, text.pairs, None, hooks)
        if frozen.sha256 and end != stretch.end:  # its arrays were handed over
            frozen = frozen_models.open_frozen(text.config, model, text.vocabulary)


def _ends(scratch: Workdir, stretch: Stretch) -> Iterator[int]:
    """The steps at which to end and go on: a rollback continues with other data.

    The loop looks a rollback up when it continues from the step that it returned to.
    """
    moved = Rollbacks(scratch).in_effect()
    yield from sorted(step for step in moved if stretch.start < step < stretch.end)
    yield stretch.end


# ------------------------------------------------------------------------------ as text

# Shown if the bytes differ and nothing recorded of the machine does.
UNRECORDED = (
    "the machine is the one that starts.jsonl records, so the cause is something it "
    "does not: config.mesh or config.train.accumulate changed during the run, a "
    "library of the system, or a fault of the hardware. Execute the same stretch "
    "twice here: if the two SHA-256 differ, this machine is not deterministic"
)


def report(result: Rerun) -> Iterator[str]:
    """Yields the lines of a report on a rerun."""
    stretch = result.stretch
    for step, kind, arrays in result.stored:
        yield f"step {step:,}  checkpoints/{kind}: {describe_arrays(arrays)}"
    if result.logged:
        steps = "step" if len(result.logged) == 1 else "steps"
        metrics = f"{len(result.logged)} logged {steps}: the same numbers"
        if different := result.first_logged:
            step, name, recorded, repeated = different
            metrics = f"{name} of step {step:,} differs first: "
            metrics += f"{recorded!r} then, {repeated!r} now"
        yield f"metrics.jsonl: {metrics}"
    yield f"SHA-256 of the state after step {stretch.end:,}: {result.sha256}"
    steps = f"steps {stretch.start + 1:,} to {stretch.end:,}"
    if not (result.stored or result.logged):
        yield (
            f"{steps} were executed, and nothing on disk is from one of them: nothing "
            "was compared. Go on to the next logged step or checkpoint, or compare the "
            "SHA-256 with that of another machine"
        )
    elif result.same:
        exactly = "the same bytes" if result.stored else "the same logged numbers"
        yield f"{steps} come to {exactly} as in the run"
    else:
        yield f"{steps} do not come to the same bytes as in the run"
    yield from _machines(result)


def describe_arrays(arrays: TreeComparison) -> str:
    """Describes the comparison of two trees: their number, the first that differs."""
    if arrays.same:
        return f"{arrays.arrays} arrays: the same bytes"
    if arrays.unmatched:
        names = ", ".join(arrays.unmatched[:3])
        return f"arrays of other names: {len(arrays.unmatched)}, such as {names}"
    return (
        f"{len(arrays.differing)} of {arrays.arrays} arrays differ; the first of them, "
        f"parameters before the optimizer, by name: {arrays.differing[0]}"
    )


def _machines(result: Rerun) -> Iterator[str]:
    """Yields what of the machine and of the code of --ideas differs."""
    if not result.starts:
        yield "starts.jsonl is missing or damaged: the machine of the run is not known"
        return
    if len(result.starts) > 1:
        steps = ", ".join(f"{start.step:,}" for start in result.starts)
        yield f"the run executed these steps by starts {steps}"
    differences = {}  # each difference once, whichever of the starts it is of
    for start in result.starts:
        differences |= machine_differences(start.machine, result.machine)
        if {*start.ideas.values()} != {*result.ideas.values()}:
            differences["ideas"] = "the modules", "others"
    for name, (recorded, current) in differences.items():
        yield f"the machine differs: {name} {recorded} then, {current} now"
        if not result.same and name in EFFECTS:
            yield f"  {EFFECTS[name]}"
    if differences:
        if not result.same:
            yield "repeat it on a machine like that of the run to have its bytes again"
    elif result.same:
        yield "the machine and the libraries are those of the run"
    else:
        yield nondeterminism() or UNRECORDED
