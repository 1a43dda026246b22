"""Lists a batch's sentences: `python -m t2t_jax.whatwas --workdir=DIR --step=N`."""

import sys

from absl import flags
from etils import epath

from t2t_jax import command
from t2t_jax import workdir as workdirs
from t2t_jax.data.feeding import Position
from t2t_jax.data.lookup import Lookup
from t2t_jax.data.prepare import prepared_before
from t2t_jax.errors import UserError
from t2t_jax.screen import say
from t2t_jax.training.divergence import Rollbacks


def define_flags():
    flags.DEFINE_string("workdir", None, "A workdir of t2t_jax.main.", required=True)
    flags.DEFINE_integer("step", None, "A step of its training, from 1.", required=True)


def batch(workdir: epath.PathLike, step: int) -> tuple[Position, list[str]]:
    """Where the batch of a step stands in the data, and its pairs, each as JSON.

    Raises:
      UserError: no such step; the prepared text of the run is not on this machine.
    """
    workdir = workdirs.path(workdir)
    config = workdirs.read_config(workdir)
    if not 1 <= step <= config.train.steps:
        raise UserError(
            f"--step={step}; want a step of the run, from 1 to {config.train.steps:,}"
        )
    pairs = prepared_before(workdirs.read_text(workdir))
    lookup = Lookup(config, pairs, workdirs.read_vocabulary(workdir))
    before, start = Rollbacks(workdir).last_before(step)
    position = lookup.position(start, step - 1 - before)
    return position, lookup.lines(position)


def main(_):
    step = flags.FLAGS.step
    position, lines = batch(flags.FLAGS.workdir, step)
    say(
        f"step {step:,} is trained on batch {position.batch:,} of epoch "
        f"{position.epoch:,} (both from 0): {len(lines):,} pairs"
    )
    for line in lines:
        sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    command.run(main, define_flags)
