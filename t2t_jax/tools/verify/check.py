"""One promise of the documentation, and what measuring it on this machine gave."""

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from t2t_jax.tools.verify.context import Context


class Unavailable(Exception):  # noqa: N818 - it is an answer, not a fault
    """Raised by a check that cannot run here. Its message is the reason, in words."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """The result of one check.

    Attributes:
      figure: what was measured, for people, such as `3.1e-07`.
      bound: what it must satisfy, such as `<= 1e-05`; empty if it is only reported.
      held: True if the bound is kept; None for a figure that is only reported.
      numbers: the same for programs: a dict that JSON can hold.
      details: further lines, shown below the row.
    """

    figure: str
    bound: str
    held: bool | None
    numbers: dict = dataclasses.field(default_factory=dict)
    details: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Check:
    """One promise: a row of the table of `verify`.

    Attributes:
      group: the heading that it stands under, such as `numbers`.
      promise: what is promised, in a few words.
      run: measures it. Raises `Unavailable` where it cannot; any other error counts as
        a promise that is not held.
      quick: False for a check that only --full, or --only with its name, runs.
    """

    group: str
    promise: str
    run: Callable[[Context], Measured]
    quick: bool = True


def at_most(measured: float, bound: float, **numbers) -> Measured:
    """The `Measured` of an error that may be at most `bound`. NaN is not held.

    Args:
      **numbers: more numbers for JSON.
    """
    return Measured(
        f"{measured:.2g}",
        f"<= {bound:.2g}",
        bool(measured <= bound),
        {"measured": float(measured), "bound": bound, **numbers},
    )


def worst(errors: Iterable[float]) -> float:
    """The largest of some errors; NaN if one is, which Python's `max` may pass over."""
    return float(np.max([*errors], initial=0.0))


def all_equal(differing: int, compared: int, what: str, **numbers) -> Measured:
    """The `Measured` of things that must all be equal.

    Args:
      differing: how many differ.
      compared: how many were compared; none at all is not held.
      what: their name, in the plural.
      **numbers: more numbers for JSON.
    """
    return Measured(
        f"{differing} of {compared} {what} differ",
        "none",
        differing == 0 and compared > 0,
        {"differing": differing, "compared": compared, **numbers},
    )
