"""Runs checks one after the other; one that fails does not keep others from running."""

import contextlib
import dataclasses
import time
import traceback
from collections.abc import Callable, Iterable, Mapping

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.tools.verify.check import Check, Measured, Unavailable
from t2t_jax.tools.verify.context import Context

NOT_QUICK = "only --full runs it, or --only={name}"


@dataclasses.dataclass(frozen=True)
class Result:
    """What one check came to.

    Attributes:
      name: of the check.
      check: the check.
      measured: None if it was not checked.
      unchecked: the reason why it was not checked; empty if it was.
      error: the traceback if the check raised an error; then it is not held.
      seconds: how long it took.
    """

    name: str
    check: Check
    measured: Measured | None = None
    unchecked: str = ""
    error: str = ""
    seconds: float = 0.0

    @property
    def held(self) -> bool | None:
        """None if it was not checked, or is only reported."""
        return self.measured.held if self.measured else None


def chosen(
    checks: Mapping[str, Check], only: Iterable[str] = (), full: bool = False
) -> list[str]:
    """Returns the names of the checks to run, in the order of the table.

    Args:
      only: names of checks or of groups; empty for all that `full` allows.

    Raises:
      UserError: there is no such check or group.
    """
    groups = {check.group for check in checks.values()}
    only = [*only]
    for name in only:
        if name not in checks and name not in groups:
            hint = did_you_mean(name, [*checks, *sorted(groups)])
            raise UserError(f"--only={name}: no such check{hint} (--list shows all)")
    if not only:
        return [name for name, check in checks.items() if full or check.quick]
    # A check named itself runs in any case; of a group, those that `full` allows.
    return [
        name
        for name, check in checks.items()
        if name in only or (check.group in only and (full or check.quick))
    ]


def run_checks(
    checks: Mapping[str, Check],
    names: Iterable[str],
    context: Context,
    report: Callable[[Result], None] = lambda result: None,
    before: Callable[[str], contextlib.AbstractContextManager] = (
        lambda name: contextlib.nullcontext()
    ),
) -> list[Result]:
    """Runs checks in order.

    Args:
      names: of the checks to run.
      report: called with each result as soon as it is there.
      before: called with the name of a check; the check runs within what it returns.
    """
    results = []
    for name in names:
        started = time.perf_counter()
        with before(name):
            outcome = _run(checks[name], context)
        seconds = time.perf_counter() - started
        results.append(Result(name, checks[name], **outcome, seconds=seconds))
        report(results[-1])
    return results


def _run(check: Check, context: Context) -> dict:
    """The fields of a `Result` that a check determines."""
    try:
        return {"measured": check.run(context)}
    except Unavailable as e:
        return {"unchecked": str(e)}
    # SystemExit: of a command that a check runs in this process.
    except (Exception, SystemExit) as e:
        measured = Measured(
            f"{type(e).__name__}: {_first_line(e)}",
            "no error",
            False,
            {"error": f"{type(e).__name__}: {e}"},
        )
        return {"measured": measured, "error": traceback.format_exc()}


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    return lines[0] if len(lines[0]) <= 60 else f"{lines[0][:57]}..."


def left_out(checks: Mapping[str, Check], names: Iterable[str]) -> list[Result]:
    """The checks that were not asked to run, with that as the reason."""
    names = {*names}
    return [
        Result(name, check, unchecked=NOT_QUICK.format(name=name))
        for name, check in checks.items()
        if name not in names
    ]


def all_held(results: Iterable[Result]) -> bool:
    """True if something was checked, and no promise was broken.

    A figure that is only reported counts as checked.
    """
    checked = [result for result in results if result.measured]
    return bool(checked) and all(result.held is not False for result in checked)
