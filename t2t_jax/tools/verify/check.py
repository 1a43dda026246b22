"""Checks of the documentation's promises: their interface, results and order."""

import dataclasses
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from t2t_jax.io.errors import UserError, did_you_mean, first_line

T = TypeVar("T")


@dataclasses.dataclass
class Context:
    """The folders that checks work in, and fixtures that they share."""

    scratch: Path  # an empty folder, deleted at the end
    workdir: str | None = None  # that of --workdir
    full: bool = False  # with --full: a check may then measure more, or longer
    _shared: dict[str, object] = dataclasses.field(default_factory=dict)

    def folder(self, name: str) -> Path:
        """Returns a folder in the scratch folder, made if it does not exist."""
        folder = self.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """Returns what `make` returned at the first call with this name.

        For what is expensive and used by several checks: a small trained run, a
        compiled function. If `make` raises, the next check tries again.
        """
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]


class Unavailable(Exception):  # noqa: N818 - it is an answer, not a fault
    """Raised by a check that cannot run here. Its message is the reason, in words."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a check has measured."""

    figure: str  # for people, such as `3.1e-07`
    bound: str  # what it must satisfy, `<= 1e-05`; empty if it is only reported
    held: bool | None  # True if the bound is kept; None if it is only reported
    numbers: dict = dataclasses.field(default_factory=dict)  # for programs, as JSON
    details: tuple[str, ...] = ()  # further lines, shown below the row


@dataclasses.dataclass(frozen=True)
class Check:
    """One promise: a row of the table of `verify`."""

    group: str  # the heading that it is under, such as `numbers`
    promise: str  # what is promised, in a few words
    # Measures it. Raises `Unavailable` where it cannot; any other error counts as a
    # promise that is not held.
    run: Callable[[Context], Measured]
    quick: bool = True  # False: only --full, or --only with its name, runs it


def at_most(measured: float, bound: float, **numbers) -> Measured:
    """The `Measured` of an error that may be at most `bound`. NaN is not held."""
    return Measured(
        f"{measured:.2g}",
        f"<= {bound:.2g}",
        bool(measured <= bound),
        {"measured": float(measured), "bound": bound, **numbers},
    )


def reported(figure: str, numbers: dict, details: Iterable[str] = ()) -> Measured:
    """The `Measured` of a figure that nothing bounds."""
    return Measured(figure, "", None, numbers, tuple(details))


SHOWN = 5  # faults that are listed one by one


def with_details(measured: Measured, lines: Iterable[str]) -> Measured:
    """Adds lines to a result, the first few one by one."""
    lines = [*lines]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"and {len(lines) - SHOWN} more"]
    return dataclasses.replace(measured, details=(*measured.details, *lines))


def worst(errors: Iterable[float]) -> float:
    """The largest of some errors; NaN if one is, which Python's `max` may pass over."""
    return float(np.max([*errors], initial=0.0))


def all_equal(differing: int, compared: int, things: str, **numbers) -> Measured:
    """The `Measured` of things that must all be equal.

    If none at all was compared, it is not held.
    """
    return Measured(
        f"{differing} of {compared} {things} differ",
        "none",
        differing == 0 and compared > 0,
        {"differing": differing, "compared": compared, **numbers},
    )


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of one check, or the reason why there is none."""

    name: str
    check: Check
    measured: Measured | None = None  # None if it was not checked
    unchecked: str = ""  # the reason why it was not checked
    error: str = ""  # the traceback if the check raised an error; it is not held then
    seconds: float = 0.0

    @property
    def held(self) -> bool | None:
        """None if it was not checked, or is only reported."""
        return self.measured.held if self.measured else None

    @property
    def status(self) -> str:
        """One of `STATUSES`."""
        if self.measured is None:
            return "not checked"
        return {True: "held", False: "not held", None: "reported"}[self.measured.held]


STATUSES = "held", "not held", "reported", "not checked"


def selected_checks(
    checks: Mapping[str, Check], only: Iterable[str] = (), full: bool = False
) -> list[str]:
    """Returns the names of the checks to run, in the order of the table."""
    groups = {check.group for check in checks.values()}
    only = [*only]
    for name in only:
        if name not in checks and name not in groups:
            hint = did_you_mean(name, [*checks, *sorted(groups)])
            raise UserError(f"--only={name}: no such check{hint} (--list shows all)")
    # A check named itself runs in any case; of a group, those that `full` allows.
    return [
        name
        for name, check in checks.items()
        if name in only or ((check.group in only or not only) and (full or check.quick))
    ]


def run_check(name: str, check: Check, context: Context) -> Result:
    """Runs a check, whatever it raises."""
    measured, unchecked, error = None, "", ""
    began = time.perf_counter()
    try:
        measured = check.run(context)
    except Unavailable as e:
        unchecked = str(e)
    # SystemExit: of a command that a check runs in this process.
    except (Exception, SystemExit) as e:
        measured = Measured(
            f"{type(e).__name__}: {first_line(e, limit=60)}",
            "no error",
            False,
            {"error": f"{type(e).__name__}: {e}"},
        )
        error = traceback.format_exc()
    seconds = time.perf_counter() - began
    return Result(name, check, measured, unchecked, error, seconds)


def left_out(checks: Mapping[str, Check], names: Iterable[str]) -> list[Result]:
    """The checks that were not asked to run, with that as the reason."""
    names = {*names}
    return [
        Result(name, check, unchecked=f"only --full runs it, or --only={name}")
        for name, check in checks.items()
        if name not in names
    ]


def all_held(results: Iterable[Result]) -> bool:
    """True if something was checked, and no promise was broken.

    A figure that is only reported counts as checked.
    """
    checked = [result for result in results if result.measured]
    return bool(checked) and all(result.held is not False for result in checked)
