"""Checks on this machine what the documentation promises: `python -m t2t_jax verify`.

Numbers against float64 references, equal bytes, and with --workdir a trained run.
Prints a table; the exit status is 0 only if every promise that could be checked is
held. docs/verify.md explains the checks.
"""

import collections
import dataclasses
import datetime
import itertools
import json
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from absl import flags

from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say, waiting
from t2t_jax.io.output_files import check_output, write_file
from t2t_jax.io.tables import markdown_cell, markdown_table, text_table
from t2t_jax.tools.verify.check import (
    STATUSES,
    Check,
    Context,
    Result,
    all_held,
    left_out,
    run_check,
    selected_checks,
)

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
    args = flags.FLAGS
    if args.quick and args.full:
        raise UserError("--quick and --full exclude each other; leave one out")
    output = args.output and Path(args.output)
    if output:
        if output.suffix != ".md":
            raise UserError(f"--output={output}: want a name that ends in .md")
        check_output(output)
    # Mistakes above are reported before JAX is imported.
    from t2t_jax.parallel.machine import describe_machine
    from t2t_jax.parallel.process_setup import set_up_process
    from t2t_jax.tools.verify.table import CHECKS

    if args.list:
        print("\n".join(_listing(CHECKS)))
        return
    set_up_process()
    names = selected_checks(
        CHECKS, [name.strip() for name in args.only if name], args.full
    )
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="t2t_jax_verify_") as scratch:
        context = Context(Path(scratch), args.workdir, args.full)
        results = []
        for name in names:
            with waiting(f"checking {name}"):
                results.append(run_check(name, CHECKS[name], context))
            _say_result(results[-1])
    if not args.only:
        results += left_out(CHECKS, names)
    if args.json:
        print(json.dumps(as_json(results, machine), indent=1))
    else:
        print("\n".join(["", *table(results)]), flush=True)
    if output:
        command = shlex.join(["python", "-m", "t2t_jax", "verify", *sys.argv[1:]])
        text = page(results, machine, command, datetime.date.today())
        write_file(output, text.encode())
    if not all_held(results):
        sys.exit(NOT_HELD)


def _say_result(result: Result) -> None:
    """Reports a check as soon as it ends; the table follows when all have."""
    text = result.unchecked
    if result.measured:
        text = f"{result.measured.figure} ({result.seconds:.1f} s)"
    say(f"{result.name}: {_status(result)}: {text}")


def _status(result: Result) -> str:
    """The status, in capitals where a promise is broken."""
    return "NOT HELD" if result.held is False else result.status


HEADINGS = "", "check", "promise", "figure", "bound", "s"


def table(results: Sequence[Result]) -> list[str]:
    """The lines of the terminal's table, by group, and what was not checked."""
    checked = [result for result in results if result.measured]
    rows = [HEADINGS] if checked else []
    for group, members in itertools.groupby(checked, lambda r: r.check.group):
        rows += [("",), (group,)]
        for result in members:
            details = [*result.measured.details, *result.error.splitlines()]
            rows += [_cells(result), *((f"    {detail}",) for detail in details)]
    missing = [(f"  {r.name}", r.unchecked) for r in results if not r.measured]
    unchecked = ["", "not checked", *text_table(missing, (0, 1))] if missing else []
    return [
        *text_table(rows, left=range(5)),
        *unchecked,
        "",
        _summary(results),
    ]


def _cells(result: Result) -> tuple[str, ...]:
    """The cells below `HEADINGS`."""
    measured = result.measured
    return (
        _status(result),
        result.name,
        result.check.promise,
        measured.figure,
        measured.bound,
        f"{result.seconds:.1f}",
    )


def _summary(results: Sequence[Result]) -> str:
    """One line: how many held, which did not."""
    counts = collections.Counter(result.status for result in results)
    text = ", ".join(f"{counts[name]} {name}" for name in STATUSES if counts[name])
    seconds = sum(result.seconds for result in results)
    failed = [result.name for result in results if result.held is False]
    ending = f"; not held: {', '.join(failed)}" if failed else ""
    return f"{text}, in {seconds:.0f} s{ending}"


def as_json(results: Sequence[Result], machine: Mapping[str, object]) -> dict:
    """An object for programs: the machine, and each check under its name."""
    return {
        "held": all_held(results),
        "machine": dict(machine),
        "checks": {result.name: _json_of(result) for result in results},
    }


def _json_of(result: Result) -> dict:
    common = {"group": result.check.group, "promise": result.check.promise}
    if result.measured is None:
        return {**common, "checked": False, "reason": result.unchecked}
    return {
        **common,
        "checked": True,
        **dataclasses.asdict(result.measured),
        "error": result.error,
        "seconds": round(result.seconds, 2),
    }


def page(
    results: Sequence[Result],
    machine: Mapping[str, object],
    command: str,
    date: datetime.date,
) -> str:
    """A section of Markdown to paste into docs/results/devices.md."""
    lines = [
        f"## Verified on {machine['devices']} x {machine['device']}, {date}",
        "",
        f"`{command}`: {_summary(results)}.",
        "",
        *_markdown(("machine", ""), machine.items(), left=(0, 1)),
    ]
    checked = [result for result in results if result.measured]
    heads = ("check", "promise", "figure", "bound", "", "s")
    for group, members in itertools.groupby(checked, lambda r: r.check.group):
        lines += ["", f"### {group.capitalize()}", ""]
        rows, details = [], []
        for result in members:
            status, *cells, seconds = _cells(result)
            rows.append([*cells, status, seconds])
            details += [f"- {result.name}: {d}" for d in result.measured.details]
        lines += _markdown(heads, rows, left=range(5))
        lines += ["", *details] if details else []
    missing = [result for result in results if not result.measured]
    if missing:
        lines += ["", "### Not checked", ""]
        lines += [f"- {result.name}: {result.unchecked}" for result in missing]
    return "\n".join([*lines, ""])


def _markdown(heads: Sequence[str], rows: Iterable, left: Sequence[int]) -> list[str]:
    """A Markdown table of values."""
    texts = [[markdown_cell(str(value)) for value in row] for row in rows]
    return markdown_table(heads, texts, left)


def _listing(checks: Mapping[str, Check]) -> list[str]:
    """The lines of --list."""
    rows = []
    for group, names in itertools.groupby(checks, lambda name: checks[name].group):
        rows += [("",), (group,)]
        for name in names:
            condition = "" if checks[name].quick else " (--full)"
            rows.append((f"  {name}", checks[name].promise + condition))
    return text_table(rows[1:], left=(0, 1))
