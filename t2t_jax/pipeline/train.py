"""Trains, then scores: `python -m t2t_jax.main --config=configs/tiny.py`.

`train` is the same from Python.
"""

import collections
import contextlib
import dataclasses
from pathlib import Path

import jax
from absl import flags
from ml_collections import ConfigDict

from t2t_jax import command, files
from t2t_jax import config as fields
from t2t_jax import workdir as workdirs
from t2t_jax.config import Config
from t2t_jax.data import prepare
from t2t_jax.data.batching import Plan
from t2t_jax.data.corpus import Corpus, open_corpora
from t2t_jax.data.feeding import feeder_name, plan_for
from t2t_jax.data.lookup import Lookup
from t2t_jax.data.vocab import Vocabulary, parse_symbols
from t2t_jax.errors import UserError
from t2t_jax.evaluation.dev import DevTranslations
from t2t_jax.evaluation.scores import distinct
from t2t_jax.evaluation.table import score_all
from t2t_jax.model.transformer import Model, Parameters, build, told_dtype
from t2t_jax.parallel import hosts
from t2t_jax.parallel.host import prepare_host
from t2t_jax.parallel.machine import machine, not_exact
from t2t_jax.parallel.mesh import make_mesh, rows_on
from t2t_jax.screen import say, silence
from t2t_jax.training import loop
from t2t_jax.training.optimizer import schedule
from t2t_jax.training.parameters import average, choose
from t2t_jax.training.step import state_shardings


def train(config: Config | ConfigDict, workdir: str | Path) -> dict[str, dict]:
    """Trains a config in a workdir, or continues, then scores its test sets.

    In a program of several processes (`jax.distributed.initialize`) all of them call
    it; the workdir is that of the first.

    Args:
      config: of `load_config`, or a `Config`.
      workdir: a new folder, or that of an earlier run of the same config, which is
        then continued; gs://BUCKET/FOLDER is one in a bucket.

    Returns:
      Scores by test set, as in `DIR/scores/`.

    Raises:
      UserError: anything in the config, the data or the workdir that a person can mend.
      KeyboardInterrupt: Ctrl-C or SIGTERM; what was trained is saved.
    """
    prepare_host()
    if not hosts.is_first():
        silence()
    if not isinstance(config, Config):
        config = fields.from_config_dict(config)
    anywhere = fields.changed(config, "data", dir="")  # text may lie where it likes
    hosts.check_same("the config", dataclasses.asdict(anywhere), "give all the same")
    with contextlib.ExitStack() as until_the_end:
        with hosts.together("opening the text and the workdir"):
            workdir = workdirs.path(workdir)
            training, dev, tests = _open(config)
            _check_mesh(config)
            if hosts.is_first():
                _check_start(workdir, config)
            # A mistake in these is told now, not after an hour of training.
            dev_lines = [pair for corpus in dev for pair in corpus.pairs()]
            for corpus in tests:
                collections.deque(corpus.pairs(), maxlen=0)
            feeder_name(config.data)
            still_ours = _not_mine
            if hosts.is_first():
                still_ours = until_the_end.enter_context(workdirs.hold(workdir))
        _train(config, workdir, training, dev_lines, still_ours)
        return score_all(workdir, config, tests)


def _not_mine() -> None:
    """Whose the workdir is, is the first process's matter."""


def _train(config: Config, workdir, training, dev_lines, still_ours) -> None:
    """Prepares the text and trains, or finds both done."""
    with hosts.together("preparing the training text", hosts.LONG):
        vocabulary = _vocabulary(workdir, training, config)
        pairs = prepare.training_pairs(training, vocabulary, config.data)
        dev_pairs = prepare.small_pairs(dev_lines, vocabulary) if dev_lines else None
        model = build(config.model, len(vocabulary))
        plan = plan_for(pairs, config.data, config.train.seed, epoch=0)
        _check_shapes(config, plan)
        text = prepare.summary(pairs, dev_lines)
    prepared = text | {"manifest": files.fingerprint(pairs.folder)}
    hosts.check_same("the prepared text", prepared, _SAME_TEXT)
    with hosts.together("writing the workdir"):
        if hosts.is_first():
            workdirs.store(workdir, config, vocabulary, text)  # now it is a run
    _introduce(config, workdir, model, vocabulary, pairs, plan, dev_lines)

    given = loop.Given(
        evaluate=DevTranslations(config, vocabulary, model, dev_lines),
        initial=(lambda: _initial(config, model)) if config.train.init_from else None,
        describe=Lookup(config, pairs, vocabulary).lines,
        check=still_ours,
        shapes=plan.shapes,
    )
    first, last, why = loop.run(
        config, workdir, model, vocabulary.bos, pairs, dev_pairs, given
    )
    say(f"{workdir} is finished: {why}" if first == last else f"finished: {why}")


_SAME_TEXT = (
    "every process reads and prepares the same text: put the same files there, or let "
    "T2T_JAX_CACHE name a folder that all of them see"
)


def _check_mesh(config: Config) -> None:
    """Tells, before anything is prepared, of sizes that do not divide into devices."""
    model = build(config.model, config.data.vocab_size)
    state_shardings(model, config, make_mesh(config.mesh))


def _check_start(workdir: Path, config: Config) -> None:
    """Tells, before anything is prepared, that a run cannot begin, or go on, so."""
    for name, (old, new, _) in workdirs.changes(workdir, config).items():
        say(f"changed since this workdir was made: {name} {old!r} -> {new!r}")
    source = config.train.init_from
    if not source or (workdir / "config.json").exists():
        return  # a run that has begun does not look there again
    theirs = workdirs.read_config(source)
    choose(source, theirs, config.train.init_checkpoint)
    # make no other weights
    free = {f"model.{name}" for name in ("dropout", "dtype", "attention", "remat")}
    if config.model.positions != "learned":
        free.add("model.max_positions")
    ways = [f"{data.source}-{data.target}" for data in (theirs.data, config.data)]
    if ways[0] != ways[1]:
        say(f"{source} translates {ways[0]}, this run will {ways[1]}")
    changed = fields.differences(Config(model=theirs.model), Config(model=config.model))
    told = "".join(
        f"\n  --config.{name}={old!r} there, {new!r} here"
        for name, (old, new, _) in changed.items()
        if name not in free
    )
    if told:
        raise UserError(
            f"config.train.init_from={source} has a model of another shape:{told}\n"
            "Give this run theirs"
        )


def _initial(config: Config, model: Model) -> Parameters:
    """The parameters of `config.train.init_from`, as it translates with them."""
    source = config.train.init_from
    theirs = workdirs.read_config(source)
    choice = choose(source, theirs, config.train.init_checkpoint)
    steps, parameters = average(choice, model.shapes)
    say(f"starting from {source}, steps {', '.join(f'{s:,}' for s in steps)}")
    return parameters


def _open(config: Config) -> tuple[list[Corpus], list[Corpus], list[Corpus]]:
    data = config.data
    if not data.train:
        raise UserError(
            "config.data.train is empty; name the training text: --config.data.train="
            "PREFIX for the files PREFIX.en and PREFIX.de, or grammar:train"
        )
    where = data.source, data.target, data.dir
    training = open_corpora(data.train, *where, weights=True)
    dev, tests = (open_corpora(places, *where) for places in (data.dev, data.test))
    return training, dev, distinct(tests)


def _check_shapes(config: Config, plan: Plan) -> None:
    """Tells before the first step of batches that could not be trained."""
    for shape in plan.shapes:
        longest = max(shape.source, shape.target)
        if config.model.positions == "learned" and longest > config.model.max_positions:
            raise UserError(
                f"rows of {longest} tokens, but config.model.max_positions="
                f"{config.model.max_positions}; raise it, or lower "
                "config.data.row_length and config.data.max_length"
            )


def _vocabulary(workdir: Path, training: list[Corpus], config: Config) -> Vocabulary:
    """The workdir's tokenizer; before there is a run, one for the training text.

    A run that starts from another workdir has the tokenizer of that.
    """
    begun = hosts.from_first("the run", (workdir / "config.json").exists)
    source = workdir if begun else config.train.init_from
    if not source:
        say("making the tokenizer")
        return prepare.tokenizer(training, config.data)
    _, vocabulary = workdirs.shared(source)
    if begun:
        return vocabulary
    if config.data.tokenizer:
        if prepare.tokenizer(training, config.data).model != vocabulary.model:
            raise UserError(
                f"config.data.tokenizer={config.data.tokenizer} is not that of "
                f"config.train.init_from={config.train.init_from}, whose embeddings "
                "mean nothing for other pieces; leave config.data.tokenizer out"
            )
    vocabulary.check_symbols(
        parse_symbols(config.data.symbols),
        "leave it out, or start from a run that was trained with it",
    )
    say(f"the tokenizer is that of {config.train.init_from}")
    return vocabulary


def _introduce(config, workdir, model, vocabulary, pairs, plan: Plan, dev_lines):
    """Says what is about to be trained."""
    data = config.data
    shapes = ", ".join(f"{s.rows}x({s.source}+{s.target})" for s in plan.shapes)
    peak_step = min(config.train.steps, config.train.warmup)
    peak = float(schedule(config)(peak_step - 1))
    mesh, devices = make_mesh(config.mesh), jax.devices()
    say(f"workdir     {workdir}")
    say(
        f"model       {model.count():,} parameters, vocabulary {len(vocabulary):,}, "
        f"{told_dtype(config.model)} on {len(devices)} {devices[0].device_kind}"
    )
    here = machine()
    cores = f"{here['processor']}, {here['cores']} cores"
    say(f"machine     {cores}, jax {here['jax']}, jaxlib {here['jaxlib']}")
    if len(devices) > 1:
        axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
        rows = [rows_on(mesh, s.rows, config.train.accumulate) for s in plan.shapes]
        more = 1 - sum(s.rows for s in plan.shapes) / sum(rows)
        padding = f"; {more:.0%} of the rows are added to divide into them"
        say(f"mesh        {axes}{padding if more else ''}")
    if not_exact():
        say(f"            {not_exact()}")
    text, *more = prepare.report(pairs)
    dev = f"{len(dev_lines):,} dev pairs"
    say(f"data        {text}, {dev}, fed by {feeder_name(data)}")
    for line in more:
        say(f"            {line}")
    say(
        f"batches     {len(plan):,} an epoch, {plan.efficiency:.1%} real tokens, "
        f"{shapes}"
    )
    say(
        f"training    {config.train.steps:,} steps, "
        f"{config.train.steps / len(plan):.1f} epochs, peak learning rate {peak:.2e} "
        f"at step {peak_step:,}"
    )


def define_flags():
    command.define_config_flag()
    flags.DEFINE_string(
        "workdir",
        None,
        "Where the run is kept: a folder or gs://BUCKET/FOLDER; runs/NAME of the "
        "config if not given.",
    )


def main(_):
    name = command.config_name(flags.FLAGS["config"].config_filename)
    workdir = flags.FLAGS.workdir
    if workdir == "":
        raise UserError("--workdir is empty; name a folder, or leave the flag out")
    train(flags.FLAGS.config, workdir or Path("runs") / name)


if __name__ == "__main__":
    command.run(main, define_flags, config="configs/tiny.py", several=True)
