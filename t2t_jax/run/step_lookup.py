"""Lookup of the sentences that a run trained on in a given step."""

from typing import NamedTuple

from etils import epath

from t2t_jax.config import Config
from t2t_jax.data.corpus import open_places
from t2t_jax.data.feeding import BatchLookup, Position
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.prepare import find_prepared, training_pairs
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from t2t_jax.training.divergence import Rollbacks
from t2t_jax.workdir import Workdir


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
    before, start = rollbacks.last_before(step)
    return lookup.position(start, step - 1 - before)


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
    corpora = open_places(data.train, task.open, data.dir, weights=True)
    pairs = training_pairs(corpora, vocabulary, task.data(), task, arrays)
    return RunText(workdir, config, vocabulary, task, pairs)
