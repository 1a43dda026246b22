"""The one exception that a person is meant to read."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something a person can mend: says what was got, what was wanted, and how.

    The commands print its message without a traceback and exit with status 2;
    from Python it is an ordinary `ValueError`.
    """


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint such as `; did you mean 'layers'?`, or all names where none is near."""
    names = [str(n) for n in names]
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return "; there are: " + ", ".join(names)
