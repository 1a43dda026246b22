"""Lists a batch's sentences: `python -m t2t_jax.whatwas --workdir=DIR --step=N`."""

import sys

from absl import flags

from t2t_jax.terminal.messages import say
from t2t_jax.training.step_lookup import batch_of_step


def define_flags():
    flags.DEFINE_string("workdir", None, "A trained workdir.", required=True)
    flags.DEFINE_integer("step", None, "A step of its training, from 1.", required=True)


def main(_):
    step = flags.FLAGS.step
    position, lines = batch_of_step(flags.FLAGS.workdir, step)
    say(
        f"step {step:,} is trained on batch {position.batch:,} of epoch "
        f"{position.epoch:,} (both from 0): {len(lines):,} pairs"
    )
    for line in lines:
        sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()
