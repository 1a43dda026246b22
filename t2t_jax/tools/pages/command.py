"""Plots the logs of runs: loss, dev scores, learning rate, gradient norm, speed.

python -m t2t_jax plot --workdir=DIR[,DIR...] [--output=FILE.svg|.png|.pdf]

Works while runs are training; nothing in a workdir is changed.
"""

import io
from pathlib import Path

from absl import flags

from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import split_names
from t2t_jax.io.output_files import check_file, write_file
from t2t_jax.tools.pages import run_plots
from t2t_jax.tools.pages.run_log import find_runs

PICTURES = (".svg", ".png", ".pdf")


def define_flags():
    flags.DEFINE_string(
        "workdir",
        None,
        "Workdirs of one or several runs, separated by commas: folders or "
        "gs://BUCKET/FOLDER; 'runs/*' is every run in runs.",
        required=True,
    )
    flags.DEFINE_string(
        "output",
        "plot.svg",
        "Picture to write: .svg, which browsers open, .png or .pdf. An earlier file "
        "of this name is kept under a new one.",
    )
    flags.DEFINE_enum(
        "x",
        "steps",
        [*run_plots.AXES],
        "The axis: steps, tokens trained on, or hours of training steps.",
    )
    flags.DEFINE_integer(
        "smooth",
        None,
        "Draw the mean of so many logged training values, and each one faint behind; "
        "1 for none; by default a number that suits the length of the runs.",
    )


def main(_):
    args = flags.FLAGS
    output = Path(args.output).expanduser()
    _check_output(output)
    patterns = split_names(args.workdir)
    if not patterns:
        raise UserError(f"--workdir={args.workdir!r} names no workdir")
    workdirs = [folder for pattern in patterns for folder in find_runs(pattern)]
    drawn = io.BytesIO()
    figure = run_plots.figure(workdirs, args.x, args.smooth)
    figure.savefig(drawn, format=output.suffix.lower()[1:], dpi=150)
    write_file(output, drawn.getvalue())


def _check_output(output: Path) -> None:
    if output.suffix.lower() not in PICTURES:
        raise UserError(
            f"--output={output}: want a name that ends in {', '.join(PICTURES)}"
        )
    check_file("output", output)
