"""Lists the pairs that a step was trained on, or repeats a step or a server's answer.

python -m t2t_jax whatwas --workdir=DIR --step=N

With --rerun, executes the step again from the checkpoint before it, and reports whether
it comes to the same bytes; the exit status is 1 if not. The workdir is only read.

python -m t2t_jax whatwas --workdir=DIR --rerun --step=N     to the next checkpoint
python -m t2t_jax whatwas --workdir=DIR --rerun --step=N-M   to step M

With --answer, translates the lines of an answer of `serve` again, and reports whether
texts, tokens and scores are equal to the bit; the exit status is 1 if not.

python -m t2t_jax whatwas --workdir=DIR --answer=FILE.json
"""

import sys

from absl import flags

from t2t_jax.commands.flags import parse_steps
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import split_names
from t2t_jax.io.messages import printable, say
from t2t_jax.workdir import Workdir


def define_flags():
    flags.DEFINE_string(
        "workdir",
        None,
        "Workdir of a trained run; with --answer, those of an ensemble.",
        required=True,
    )
    flags.DEFINE_string(
        "step",
        None,
        "Training step, from 1; with --rerun also a stretch of steps, N-M.",
    )
    flags.DEFINE_string(
        "answer",
        None,
        'JSON {"request": ..., "response": ...} of /v1/translate, with its provenance, '
        "to be translated again.",
    )
    flags.DEFINE_boolean(
        "rerun",
        False,
        "Execute the steps again, and compare with the checkpoints and the log.",
    )


def main(_):
    args = flags.FLAGS
    if (args.step is None) == (args.answer is None) or (args.answer and args.rerun):
        raise UserError("want --step=N, --rerun --step=N or --answer=FILE, one of them")
    if args.answer:
        repeat_answer(args.workdir, args.answer)
        return
    first, last = parse_steps("step", args.step)
    Workdir(args.workdir).config()  # mistakes are reported before JAX is imported
    from t2t_jax.extensions.run.rerun import batch_of_step, report, rerun
    from t2t_jax.parallel.process_setup import set_up_process

    set_up_process()
    if args.rerun:
        result = rerun(args.workdir, first, last)
        for line in report(result):
            print(printable(line), flush=True)
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
        line = printable(line) if sys.stdout.isatty() else line
        sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


def repeat_answer(folders: str, file: str) -> None:
    """Prints whether an answer comes to the same bits; exits with status 1 if not."""
    workdirs = [Workdir(folder) for folder in split_names(folders)]
    for workdir in workdirs:
        workdir.config()
    from t2t_jax.extensions.run import answers

    lines, exchanges = 0, answers.read_exchanges(file)
    for number, exchange in enumerate(exchanges, 1):
        result = answers.repeat(workdirs, *exchange)
        if result.different:
            place = f"answer {number}, " if len(exchanges) > 1 else ""
            print(printable(f"not the same: {place}{result.different}"))
            say(
                "scores also depend on the processor and on the version of jaxlib; "
                "compare on the machine that answered"
            )
            sys.exit(1)
        lines += result.lines
    print(f"{lines:,} lines come to the same texts, tokens and scores, to the bit")
