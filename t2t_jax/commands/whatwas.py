"""Lists the sentence pairs that a training step was trained on, or executes it again.

python -m t2t_jax whatwas --workdir=DIR --step=N

With --rerun, executes the step again from the checkpoint before it, and reports whether
it comes to the same bytes; the exit status is 1 if not. The workdir is only read.

python -m t2t_jax whatwas --workdir=DIR --rerun --step=N     to the next checkpoint
python -m t2t_jax whatwas --workdir=DIR --rerun --step=N-M   to step M
"""

import re
import sys

from absl import flags

from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.workdir import Workdir


def define_flags():
    flags.DEFINE_string("workdir", None, "Workdir of a trained run.", required=True)
    flags.DEFINE_string(
        "step",
        None,
        "Training step, from 1; with --rerun also a stretch of steps, N-M.",
        required=True,
    )
    flags.DEFINE_boolean(
        "rerun",
        False,
        "Execute the steps again, and compare with the checkpoints and the log.",
    )


def main(_):
    args = flags.FLAGS
    first, last = parse_steps(args.step)
    Workdir(args.workdir).config()  # mistakes are reported before JAX is imported
    from t2t_jax.parallel.process_setup import set_up_process
    from t2t_jax.run.rerun import batch_of_step, report, rerun

    set_up_process()
    if args.rerun:
        result = rerun(args.workdir, first, last)
        for line in report(result):
            print(line, flush=True)
        if not result.same:
            sys.exit(1)
        return
    if last is not None:
        raise UserError(
            f"--step={args.step}: the sentences are those of one step; want a number, "
            "or add --rerun to execute the stretch again"
        )
    position, lines = batch_of_step(args.workdir, first)
    say(
        f"step {first:,} is trained on batch {position.batch:,} of epoch "
        f"{position.epoch:,} (both from 0): {len(lines):,} pairs"
    )
    # As bytes: UTF-8 and plain line feeds, whatever the terminal's encoding is.
    for line in lines:
        sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


def parse_steps(steps: str) -> tuple[int, int | None]:
    """Parses "N" as (N, None) and "N-M" as (N, M)."""
    if not (match := re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", steps)):
        raise UserError(f"--step={steps!r}; want a step, such as 600, or a stretch N-M")
    first, last = match.groups()
    return int(first), None if last is None else int(last)
