"""Lookup of the sentences that a run trained on in a given step."""

from dataclasses import replace

from etils import epath

from t2t_jax.data.batch_lookup import BatchLookup
from t2t_jax.data.corpus import open_places
from t2t_jax.data.feeding import Position
from t2t_jax.data.prepare import find_prepared
from t2t_jax.data.variation import variation_of, varied
from t2t_jax.tasks.table import task_of
from t2t_jax.terminal.errors import UserError
from t2t_jax.training.rollbacks import Rollbacks
from t2t_jax.workdir.workdir import Workdir


def batch_of_step(
    workdir: Workdir | epath.PathLike, step: int
) -> tuple[Position, list[str]]:
    """Looks up the data position of a step's batch and the pairs in it.

    Returns:
      The position, and each pair as a line of JSON.

    Raises:
      UserError: the run does not have this step, or its prepared text is not on this
        machine.
    """
    workdir = Workdir.open(workdir)
    config = workdir.config()
    if not 1 <= step <= config.train.steps:
        raise UserError(
            f"--step={step}; want a step of the run, from 1 to {config.train.steps:,}"
        )
    vocabulary, pairs = workdir.vocabulary(), find_prepared(workdir.text())
    task, data = task_of(config), config.data
    corpora = open_places(data.train, task.open, data.dir, weights=True)
    texts = [*zip(corpora, pairs.sizes, strict=True)]
    pairs = replace(pairs, noise=task.noise(vocabulary, texts))
    pairs = varied(pairs, variation_of(task.data(), corpora, vocabulary, task.encode))
    lookup = BatchLookup(config, pairs, vocabulary)
    # Batches follow one another from the last rollback on, one per step.
    before, start = Rollbacks(workdir).last_before(step)
    position = lookup.position(start, step - 1 - before)
    return position, lookup.lines(position)
