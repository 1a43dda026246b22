"""Checks on this machine what the documentation promises: `python -m t2t_jax verify`.

Numbers against float64 references, equal bytes, speed and memory, and with --workdir a
trained run. Prints a table; the exit status is 0 only if every promise that could be
checked is held. docs/verify.md explains the checks.
"""

import datetime
import json
import shlex
import sys
import tempfile
from pathlib import Path

from absl import flags

from t2t_jax.io.atomic import write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say, waiting
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.tools.verify import report
from t2t_jax.tools.verify.context import Context
from t2t_jax.tools.verify.running import all_held, chosen, left_out, run_checks
from t2t_jax.tools.verify.table import CHECKS

NOT_HELD = 1  # exit status; 2 is that of a mistake on the command line


def define_flags():
    flags.DEFINE_string(
        "workdir", None, "Workdir of a trained run, to check that, too."
    )
    flags.DEFINE_boolean("quick", False, "Run the checks that take seconds: default.")
    flags.DEFINE_boolean("full", False, "Run all checks, and measure more in some.")
    flags.DEFINE_list(
        "only", [], "Names of checks or groups to run, separated by commas."
    )
    flags.DEFINE_boolean("list", False, "List the checks, and run none.")
    flags.DEFINE_boolean("json", False, "Print a JSON object, for programs.")
    flags.DEFINE_string(
        "output", None, "FILE.md to write machine, versions and table to, as a page."
    )


def main(_):
    given = flags.FLAGS
    if given.list:
        print("\n".join(report.listing(CHECKS)))
        return
    if given.quick and given.full:
        raise UserError("--quick and --full exclude each other; leave one out")
    output = _output_file(given.output)
    names = chosen(CHECKS, [name.strip() for name in given.only if name], given.full)
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="t2t_jax_verify_") as scratch:
        context = Context(Path(scratch), given.workdir, given.full)
        results = run_checks(
            CHECKS,
            names,
            context,
            report=_say_result,
            before=lambda name: waiting(f"checking {name}"),
        )
    if not given.only:
        results += left_out(CHECKS, names)
    if given.json:
        print(json.dumps(report.as_json(results, machine), indent=1))
    else:
        print("\n".join(["", *report.table(results)]), flush=True)
    if output:
        text = report.page(results, machine, _command(), datetime.date.today())
        write_atomically(output, text.encode())
        say(f"wrote {output}")
    if not all_held(results):
        sys.exit(NOT_HELD)


def _say_result(result) -> None:
    """Reports a check as soon as it ends; the table follows when all have."""
    if result.measured is None:
        say(f"{result.name}: not checked: {result.unchecked}")
        return
    held = report.HELD[result.held]
    say(f"{result.name}: {held}: {result.measured.figure} ({result.seconds:.1f} s)")


def _output_file(name: str | None) -> Path | None:
    """The file of --output, refused before minutes are spent on the checks."""
    if name is None:
        return None
    file = Path(name)
    if file.suffix != ".md":
        raise UserError(f"--output={name}: want a name that ends in .md")
    if file.exists():
        raise UserError(
            f"--output={name} exists, and is not overwritten; delete it, or give "
            "another name"
        )
    if not file.parent.is_dir():
        raise UserError(f"--output={name}: there is no folder {file.parent}")
    return file


def _command() -> str:
    """What was typed, for the page."""
    return shlex.join(["python", "-m", "t2t_jax", "verify", *sys.argv[1:]])
