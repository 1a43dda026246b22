"""Lists the sentence pairs that a training step was trained on.

python -m t2t_jax.whatwas --workdir=DIR --step=N
"""

import sys

from absl import flags

from t2t_jax.pipeline.step_lookup import batch_of_step
from t2t_jax.terminal.messages import say


def define_flags():
    flags.DEFINE_string("workdir", None, "Workdir of a trained run.", required=True)
    flags.DEFINE_integer("step", None, "Training step, from 1.", required=True)


def main(_):
    step = flags.FLAGS.step
    position, lines = batch_of_step(flags.FLAGS.workdir, step)
    say(
        f"step {step:,} is trained on batch {position.batch:,} of epoch "
        f"{position.epoch:,} (both from 0): {len(lines):,} pairs"
    )
    # As bytes: UTF-8 and plain line feeds, whatever the terminal's encoding is.
    for line in lines:
        sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()
