"""`compare --runs`: where two workdirs part, as text or JSON."""

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from t2t_jax.io.errors import UserError
from t2t_jax.tools.compare.runs.arrays import arrays_section
from t2t_jax.tools.compare.runs.batches import batches_section
from t2t_jax.tools.compare.runs.logs import log_section, metrics_section
from t2t_jax.tools.compare.runs.machines import machines_section
from t2t_jax.tools.compare.runs.opened import OpenedRun, Section
from t2t_jax.tools.compare.runs.settings import config_section, data_section
from t2t_jax.workdir import Workdir, short_names

# Title -> what finds a section's content, in the order in which runs come to differ.
SECTIONS: dict[str, Callable[[OpenedRun, OpenedRun], Section]] = {
    "config": config_section,
    "data": data_section,
    "machines": machines_section,
    "batches": batches_section,
    "log": log_section,
    "arrays": arrays_section,
    "metrics": metrics_section,
}
_MARKS = {True: "differs", False: "the same", None: ""}


class Options(Protocol):
    """The flags of the command that are read here.

    Attributes:
      json: print JSON.
    """

    json: bool


def compare_runs(workdirs: Sequence[str]) -> dict[str, Section]:
    """Compares two workdirs; reads both and changes nothing.

    Returns:
      The sections by title, in the order of `SECTIONS`.

    Raises:
      UserError: not two workdirs, or one of them is damaged.
    """
    if len(workdirs) != 2:
        raise UserError(
            f"--runs compares two workdirs, and {len(workdirs)} are given; want "
            "compare --runs DIR DIR. For the curves of several runs: python -m t2t_jax "
            "plot --workdir=DIR,DIR,DIR"
        )
    names = short_names(workdirs)
    a, b = (
        OpenedRun(Workdir.open(place), name)
        for place, name in zip(workdirs, names, strict=True)
    )
    return {title: make(a, b) for title, make in SECTIONS.items()}


def main_report(workdirs: Sequence[str], options: Options) -> None:
    """Prints where two runs part; `compare --runs` calls it.

    Args:
      workdirs: two of them.
      options: the flags of the command.

    Raises:
      UserError: as `compare_runs`.
    """
    found = compare_runs(workdirs)
    if options.json:
        content = {
            title: {"differs": section.differs, **section.facts}
            for title, section in found.items()
        }
        places = [str(place) for place in workdirs]
        print(json.dumps({"runs": places, **content}, indent=1))
        return
    print("\n".join(report_lines(workdirs, found)))


def report_lines(workdirs: Sequence[str], found: dict[str, Section]) -> list[str]:
    """Formats the comparison for a terminal; values stand as `first | second`."""
    parts = [title for title, section in found.items() if section.differs]
    lines = [
        f"{workdirs[0]} | {workdirs[1]}",
        f"they part in: {', '.join(parts) or 'nothing that was compared'}",
    ]
    for title, section in found.items():
        mark = _MARKS[section.differs]
        lines += ["", f"{title}: {mark}" if mark else title]
        lines += [f"  {line}" for line in section.lines]
    lines += [
        "",
        f"curves: python -m t2t_jax plot --workdir={','.join(map(str, workdirs))}",
    ]
    return lines
