"""Trains a config and scores the result: the complete experiment, read top-down."""

import collections
import contextlib
import dataclasses
import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
from ml_collections import ConfigDict

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.costs import chips, memory_check, step_costs
from t2t_jax.costs.products import with_products
from t2t_jax.data import prepare
from t2t_jax.data.batching import Plan
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.feeding import BatchLookup, feeder_name, typical_plan
from t2t_jax.data.pairs import Pairs, tokenize_in_memory
from t2t_jax.data.prepare import report_lines
from t2t_jax.data.shapes import Shape
from t2t_jax.data.shared_pairs import shared
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, show_sizes
from t2t_jax.decoding.choosing import PLAIN
from t2t_jax.decoding.inputs import longest_source
from t2t_jax.evaluation.dev_answers import DevAnswers
from t2t_jax.evaluation.scores import score_all
from t2t_jax.io import ideas, lock, sealed
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import join_names
from t2t_jax.io.messages import say, silence
from t2t_jax.model.layers import compute_dtype
from t2t_jax.model.model import Model, build, check_batching, describe_dtype
from t2t_jax.parallel import processes
from t2t_jax.parallel.batch_placement import padded_rows
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.parallel.nondeterminism import nondeterminism
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.run import initialization
from t2t_jax.sections import at_address
from t2t_jax.tasks.table import check_model, task_of
from t2t_jax.tasks.task import Task, open_text
from t2t_jax.training import frozen_models, loop
from t2t_jax.training.schedules import schedule
from t2t_jax.training.step import compile_steps
from t2t_jax.training.time_log import TimeLog, read_times, summarize
from t2t_jax.training.trackers import DEFAULT, check_trackers
from t2t_jax.training.validation import dev_plan
from t2t_jax.workdir import Workdir

log = logging.getLogger("t2t_jax")

_SAME_TEXT = (
    "all processes read and prepare the same text: put the same files on each machine, "
    "or point T2T_JAX_CACHE to a folder that all of them see"
)


def train(
    config: Config | ConfigDict,
    workdir: str | Path,
    after_step: loop.AfterStep | None = None,
    track: Sequence[str] = DEFAULT,
    test: str | Sequence[str] | None = None,
) -> dict[str, dict]:
    """Trains a config in a workdir, or continues training, then scores its test sets.

    In a program of several processes (`jax.distributed.initialize`) all of them call
    it; process 0 owns the workdir.

    Args:
      config: of `load_config`, or a `Config`.
      workdir: a new folder, or that of an earlier run of the same config, which then
        continues; gs://BUCKET/FOLDER is a folder in a bucket.
      after_step: called as `after_step(step, loss, metrics, state)` after each step.
        `loss` and `metrics` (loss, gradient_norm, learning_rate, ...) are scalars of
        JAX: `float(loss)` waits for the step. The next step takes the buffers of
        `state.parameters`: copy what you keep. If it returns true, training ends as
        after the last step; in several processes all have to return the same.
      track: trackers that get the metrics: `tensorboard`, `wandb`, `mlflow`.
      test: test sets to score in place of `config.data.test`; () for none.

    Returns:
      Scores by test set, as in `DIR/scores/`.

    Raises:
      UserError: a mistake in the config, the data or the workdir.
      KeyboardInterrupt: Ctrl-C or SIGTERM; everything trained so far is saved.
    """
    set_up_process()
    if not processes.is_first():
        silence()  # only process 0 prints messages
    if not isinstance(config, Config):
        config = fields.from_config_dict(config)
    if after_step is not None:
        try:
            inspect.signature(after_step).bind(1, None, {}, None)
        except TypeError as e:  # no function, or one of other arguments
            raise UserError(
                f"after_step={after_step!r}: {e}; want "
                "after_step(step, loss, metrics, state)"
            ) from None
    if test is not None:
        test = test if isinstance(test, str) else join_names(map(str, test))
        config = fields.changed(config, "data", test=test)
    # Compared without data.dir: machines may keep the text in different folders.
    same_everywhere = fields.changed(config, "data", dir="")
    processes.check_same(
        "the config", dataclasses.asdict(same_everywhere), "give all processes the same"
    )
    processes.check_same(
        "the code of --ideas",
        [*ideas.imported.values()],  # the hashes: folders may differ, as data.dir may
        "give all processes the same files",
    )
    with contextlib.ExitStack() as until_the_end:
        # A mistake seen by one process, such as a missing file, ends all of them.
        with processes.fail_together("opening the text and the workdir"):
            check_trackers(track)
            workdir = Workdir.open(workdir)
            if processes.is_first():
                # Asked here, before anything is read, and taken below, when no mistake
                # in the config can end this run any more.
                lock.refuse_if_held(workdir.path)
            task = task_of(config)
            training, dev, tests = open_text(task)
            _check_model(task, config)
            task.check_variation()
            if processes.is_first():
                _check_start(workdir, config)
            # Read the dev and test sets to the end: mistakes in them are reported now,
            # not after an hour of training.
            for corpus in dev:
                collections.deque(corpus.pairs(), maxlen=0)
            for corpus in tests:
                task.of(corpus).examples(corpus)
            feeder_name(config.data)  # raises if TensorFlow is needed but missing
            check_owner = until_the_end.enter_context(workdir.hold())
        config = with_products(config, workdir)
        clock = TimeLog(check_owner)
        until_the_end.callback(clock.stop)
        run = config, task_of(config), workdir, training, dev, tests
        config, last = _train(*run, check_owner, clock, after_step, track)
        clock.enter("scoring")
        scores = score_all(workdir, config, tests)
        clock.close(workdir, last)
        if processes.is_first():
            for line in summarize(read_times(workdir)).lines():
                say(line)
        return scores


def _train(
    config: Config,
    task: Task,
    workdir: Workdir,
    training: list[Corpus],
    dev: list[Corpus],
    tests: list[Corpus],
    check_owner: Callable[[], None],
    clock: TimeLog,
    after_step: loop.AfterStep | None,
    track: Sequence[str],
) -> tuple[Config, int]:
    """Prepares the text and trains; skips what an earlier run has already done.

    Returns:
      The config, with the steps of `save_minutes`, and the last step.
    """
    with processes.fail_together("preparing the training text", processes.LONG_TIMEOUT):
        vocabulary = _vocabulary(workdir, task, training, config)
        pairs = prepare.training_pairs(training, vocabulary, task.data(), task)
        dev_lines, dev_pairs = _dev_examples(task, vocabulary, dev, pairs.block)
        _, test_pairs = _dev_examples(task, vocabulary, tests, pairs.block)
        model = build(config.model, *vocabulary.sizes)
        plan = typical_plan(pairs, config.data, config.train.seed)
        _check_lengths(model, plan.shapes, "training rows")
        if dev_pairs:
            dev_shapes = dev_plan(dev_pairs, config).shapes
            _check_lengths(model, dev_shapes, "rows of the dev set")
        frozen = frozen_models.open_frozen(config, model, vocabulary)
        longest = max(max(shape.source, shape.target) for shape in plan.shapes)
        frozen_models.check_positions(config, frozen, longest)
        text = prepare.text_summary(pairs, dev_lines)
        if frozen.sha256:
            text["frozen"] = frozen.sha256
    # Hashes of the arrays, so this compares the tokens themselves. Not of the reports:
    # they name folders, and differ between versions.
    arrays = sealed.hashes(pairs.folder, without=(".txt", ".json"))
    prepared = text | {"arrays of tokens": arrays}
    processes.check_same("the prepared text", prepared, _SAME_TEXT)

    def store(config: Config) -> None:
        with processes.fail_together("writing the workdir"):
            if processes.is_first():
                workdir.store(config, vocabulary, text)

    timed = config
    if config.train.save_minutes:
        with_save_steps = at_address("extensions.run.save_minutes.with_save_steps")
        timed = with_save_steps(config, workdir)
    config = timed or fields.changed(config, "train", save_every=config.train.steps)
    store(config)  # from here on it can be continued
    report_start(config, workdir, model, vocabulary, pairs, plan, len(dev_lines))
    for name, scored_pairs in {"dev": dev_pairs, "test": test_pairs}.items():
        if not scored_pairs or not processes.is_first():
            continue
        if count := shared(pairs, scored_pairs):
            log.warning(
                f"{count:,} of {len(scored_pairs):,} {name} pairs are in the training "
                "text, so their scores are too good; the doctor's --fix removes them"
            )
    hooks = loop.Hooks(
        evaluate=DevAnswers(task, config, vocabulary, model, dev),
        chosen_by=loop.DevScore(task.chosen_by, task.higher_is_better),
        initial=initialization.hook(config, model, vocabulary),
        # A new one each time: it holds an epoch, which may be much memory.
        describe=lambda batch: BatchLookup(config, pairs, vocabulary).lines(batch),
        check_owner=check_owner,
        before_training=lambda steps: memory_check.compile_largest_batch(
            steps, config, plan.shapes
        ),
        step_flops=lambda shape: step_costs.model_flops(
            model, config, shape, frozen.models
        ),
        peak_flops=_peak_flops(config),
        frozen=frozen,
        time=clock,
        track=track,
        **({"after_step": after_step} if after_step else {}),
    )
    run = partial(loop.run, workdir=workdir, model=model, bos=vocabulary.bos)
    try:
        if not timed:  # the first steps, which are timed; the run continues after them
            first = hooks._replace(last=max(2, config.train.log_every))
            dev = dev_pairs if config.train.eval_every < first.last else None
            outcome = run(config, pairs=pairs, dev=dev, hooks=first)
            config = with_save_steps(config, workdir) or config
            store(config)
            say(f"saving every {config.train.save_every:,} steps")
            if outcome.reason == loop.ASKED:  # it is only evaluated
                hooks = hooks._replace(last=outcome.last_step)
        outcome = run(config, pairs=pairs, dev=dev_pairs, hooks=hooks)
    except Exception as e:
        if explanation := memory_check.explain_out_of_memory(e, config):
            raise explanation from e
        raise
    if outcome.first_step == outcome.last_step:  # no step was left to train
        say(f"{workdir} is finished: {outcome.reason}")
    else:
        say(f"finished: {outcome.reason}")
    every = config.train.save_every
    if every < outcome.last_step and outcome.last_step % every:
        scheduled = outcome.last_step // every * every
        say(
            f"averages end at step {scheduled:,}, the last multiple of "
            f"config.train.save_every={every}; --checkpoint=last is "
            f"{outcome.last_step:,}"
        )
    return config, outcome.last_step


def _dev_examples(
    task: Task, vocabulary: Vocabulary, dev: list[Corpus], block: int
) -> tuple[list[Pair], Pairs | None]:
    """Reads the dev sets and tokenizes them; None if there is no dev set."""
    sets = [list(corpus.pairs()) for corpus in dev]
    lines = [pair for pairs in sets for pair in pairs]
    if not lines:
        return lines, None
    texts = [*zip(dev, map(len, sets), strict=True)]
    noise = task.noise(vocabulary, texts)
    return lines, tokenize_in_memory(lines, vocabulary, task.encode, block, noise)


def _peak_flops(config: Config) -> float | None:
    """Peak FLOP/s of all devices together; None if unknown."""
    devices = make_mesh(config.mesh).devices
    dtype = compute_dtype(config.model).name
    peak = chips.peak(devices.flat[0].device_kind, dtype)
    return peak and peak * devices.size


def _check_model(task: Task, config: Config) -> None:
    """Refuses a model that cannot be trained as configured, before text is prepared."""
    model = build(config.model, *task.vocab_sizes)
    check_model(task, model)
    if check := config.train.variant("loss").check:
        check(config, model)
    if config.decode.choose != PLAIN and not task.searches:
        raise UserError(
            f"config.decode.choose={config.decode.choose!r} chooses among hypotheses "
            f"of a search, and config.task.kind={config.task.kind!r} is answered "
            f"without one; leave it at {PLAIN!r}"
        )
    config.decode.variant("choose").check(config)
    # Works on shapes only, and raises the errors that training would raise later.
    steps = compile_steps(model, config, make_mesh(config.mesh), step_costs.BOS)
    if not (config.data.tokenizer or config.train.init_from):  # known sizes only
        memory_check.check_state(steps, config)
    longest_source(config, model)
    check_batching(model, config)


def _check_start(workdir: Workdir, config: Config) -> None:
    """Refuses a run that cannot begin or continue, before text is prepared."""
    for name, (old, new, _) in workdir.changes(config).items():
        say(f"changed since this workdir was made: {name} {old!r} -> {new!r}")
    if config.train.init_from and not workdir.has_run():
        initialization.check_source(config)
    frozen_models.check_frozen(config)


def _check_lengths(model: Model, shapes: Sequence[Shape], rows: str) -> None:
    """Refuses rows longer than the model's positions."""
    longest = max(max(shape.source, shape.target) for shape in shapes)
    if model.longest is not None and longest > model.longest:
        raise UserError(
            f"{rows} have up to {longest} tokens, but config.model.max_positions="
            f"{model.longest}; raise it, or lower config.data.row_length and "
            "config.data.max_length, or shorten the longest lines"
        )


def _vocabulary(
    workdir: Workdir, task: Task, training: list[Corpus], config: Config
) -> Vocabulary:
    """Loads the tokenizer of the workdir, or makes that of a new run."""
    if processes.from_first("the run", workdir.has_run):
        return workdir.config_and_vocabulary()[1]
    return initialization.new_vocabulary(task, training, config)


# ---------------------------------------------------------------------- what is printed


def report_start(
    config: Config,
    workdir: Workdir,
    model: Model,
    vocabulary: Vocabulary,
    pairs: Pairs,
    plan: Plan,
    dev_pairs: int,
) -> None:
    """Prints the model, machine, data, batches and schedule of a run."""
    devices = jax.devices()
    machine = describe_machine()
    say(f"workdir     {workdir}")
    say(
        f"model       {model.count():,} parameters, vocabulary "
        f"{show_sizes(vocabulary.sizes)}, "
        f"{describe_dtype(config.model)} on {len(devices)} {devices[0].device_kind}"
    )
    if adapter := config.train.variant("adapter"):
        trained = adapter.model(model, config).count()
        say(f"adapter     {trained:,} parameters train ({config.train.adapter})")
    say(
        f"machine     {machine['processor']}, {machine['cores']} cores, jax "
        f"{machine['jax']}, jaxlib {machine['jaxlib']}"
    )
    if len(devices) > 1:
        say(f"mesh        {_mesh(config, plan)}")
    if nondeterminism():
        say(f"            {nondeterminism()}")
    text, *more_lines = report_lines(pairs)
    feeder = feeder_name(config.data)
    if (config.data.feeder, feeder) == ("auto", "numpy"):
        feeder = "numpy (TensorFlow is not installed)"
    limit = config.train.dev_lines
    scored = f" (scores: the first {limit:,})" * (0 < limit < dev_pairs)
    say(f"data        {text}, {dev_pairs:,} dev pairs{scored}, fed by {feeder}")
    for line in more_lines:
        say(f"            {line}")
    if pairs.variation is not None:
        say(f"            {pairs.variation.describe(pairs, plan.shapes[-1])}")
    shapes = ", ".join(f"{s.rows}x({s.source}+{s.target})" for s in plan.shapes)
    about = "about " if pairs.variation is not None else ""
    say(
        f"batches     {about}{len(plan):,} an epoch, {plan.efficiency:.1%} real "
        f"tokens, {shapes}"
    )
    peak_step = min(config.train.steps, config.train.warmup)
    peak = float(schedule(config)(peak_step - 1))
    say(
        f"training    {config.train.steps:,} steps, "
        f"{config.train.steps / len(plan):.1f} epochs, peak learning rate {peak:.2e} "
        f"at step {peak_step:,}"
    )


def _mesh(config: Config, plan: Plan) -> str:
    """The mesh's axes, and the share of padding rows that make batches divisible."""
    mesh = make_mesh(config.mesh)
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    rows = sum(s.rows for s in plan.shapes)
    padded = sum(
        padded_rows(mesh, s.rows, config.train.accumulate) for s in plan.shapes
    )
    added = 1 - rows / padded
    return axes + (
        f"; {added:.0%} of the rows are padding, to divide into them" if added else ""
    )
