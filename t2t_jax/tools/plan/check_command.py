"""Lists what a run finds and what is missing: `python -m t2t_jax check --config=...`.

Takes the flags of `main`, and starts nothing. Call it where the run shall start, such
as on a cluster's login node with the same disks. It looks at the text, the test sets,
the prepared text in the cache, the disk and the versions; with --slice also at how
often the run saves. Ends with status 2 if something is missing.
"""

import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from absl import flags

from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data.corpus import Corpus
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local
from t2t_jax.io.messages import silence
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task, open_text

PACKAGES = "jax", "jaxlib", "flax", "orbax-checkpoint", "sentencepiece", "sacrebleu"
LEAST_MINUTES = 2  # between two checkpoints
MISSING = "missing"
PRESET = "tiny"

Row = tuple[str, str, str]  # "found" or MISSING, of what, details


class _NotPreparedError(Exception):
    """What a run would have to make first."""


def define_flags():
    define_config_flag()
    flags.DEFINE_string("workdir", None, "Where the run will be stored.")
    flags.DEFINE_string(
        "slice", "", "Also forecast a step on these chips, as `plan`; takes minutes."
    )


def main(_):
    args = flags.FLAGS
    config = from_config_dict(args.config)
    task = task_of(config)
    silence()  # the messages of a start, which this only tries
    missing = 0
    for state, what, details in rows(config, task, args.workdir, args.slice):
        missing += state == MISSING
        print(f"{state:8} {what:14} {details}", flush=True)
    if missing:
        raise UserError(
            f"missing: {missing}. The lines above that begin so say what to do"
        )


def rows(config: Config, task: Task, workdir: str | None, slice: str) -> Iterator[Row]:
    """Yields what a run finds and what is missing, in the order of a start."""
    versions = (f"{name} {metadata.version(name)}" for name in PACKAGES)
    python = f"Python {sys.version.split()[0]}"
    yield "found", "versions", ", ".join([python, *versions])
    try:
        text = open_text(task)
    except UserError as e:
        yield MISSING, "text", str(e)
        return
    here = True
    for name, corpora in zip(("train", "dev", "test"), text, strict=True):
        for corpus in corpora:
            if not corpus.is_here():
                here &= name == "test"
                details = f"{corpus.spec}: its first use downloads it"
                yield MISSING, f"data.{name}", details
        there = [corpus.spec for corpus in corpora if corpus.is_here()]
        if there:
            ends = " to ".join(dict.fromkeys([there[0], there[-1]]))
            yield "found", f"data.{name}", f"corpora: {len(there):,}; {ends}"
    if slice:  # first, as it starts JAX with the devices of the slice
        yield _saves(config, slice)
    if here:
        yield _prepared(config, task, text[0])
    if workdir:
        yield _disk(config, task, workdir)


def _prepared(config: Config, task: Task, training: Sequence[Corpus]) -> Row:
    """Opens the tokenizer and the arrays as a run would, if both are in the cache."""
    from t2t_jax.data.prepare import prepared_pairs
    from t2t_jax.io.cache import cache_folder
    from t2t_jax.run.initialization import new_vocabulary

    def unread(*_):
        raise _NotPreparedError

    # Fingerprints name what is in the cache. Who reads the text would make it anew.
    corpora = [
        dataclasses.replace(corpus, pairs=unread, pairs_after=unread)
        for corpus in training
    ]
    existing = config.data.tokenizer or config.train.init_from
    where = f"{cache_folder()}"
    if "T2T_JAX_CACHE" not in os.environ:
        where += " (set T2T_JAX_CACHE to a folder that all machines see)"
    try:
        vocabulary = new_vocabulary(task, training if existing else corpora, config)
        pairs = prepared_pairs(corpora, vocabulary, task.data(), task, unread)
    except _NotPreparedError:
        remedy = "python -m t2t_jax prepare with the same flags, or the run's start"
        return MISSING, "prepared text", f"not in {where}; {remedy}, makes it"
    return "found", "prepared text", f"{len(pairs):,} pairs in {pairs.folder}"


def _disk(config: Config, task: Task, workdir: str) -> Row:
    """Compares the checkpoints that a run keeps with the space that is free."""
    from t2t_jax.model.model import build
    from t2t_jax.tools.plan.describe import checkpoint_bytes

    size = checkpoint_bytes(config, build(config.model, *task.vocab_sizes))
    # As `Checkpoints.warn_if_disk_is_short`: one more of each kind than is kept.
    needed = 4 * size["state"]
    needed += (config.decode.average + config.train.keep_best + 3) * size["parameters"]
    details = f"checkpoints in {workdir}: up to {needed / 1e9:,.1f} GB"
    if not is_local(workdir):
        return "found", "disk", details
    path = Path(workdir).expanduser().resolve()
    folder = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(folder).free
    state = "found" if needed < free else MISSING
    return state, "disk", f"{details}; {free / 1e9:,.1f} GB are free"


def _saves(config: Config, slice: str) -> Row:
    """Says how often a run saves, by the forecast of a step."""
    from t2t_jax.tools.plan.forecast import plan

    result = plan(config, slice, remedy=False)
    if result["time"] is None:
        return MISSING, "time", f"{slice}: the run does not fit; see `plan`"
    minutes = result["time"]["step"] * config.train.save_every / 60
    details = (
        f"a step of {1e3 * result['time']['step']:,.1f} ms on {slice} is a checkpoint "
        f"every {minutes:,.1f} minutes"
    )
    if config.train.save_minutes or minutes >= LEAST_MINUTES:
        return "found", "saves", details
    return MISSING, "saves", f"{details}; want --config.train.save_minutes=10"
