"""Errors that a user can fix, and hints for misspelled names."""

import difflib
from collections.abc import Iterable, Sequence


class UserError(ValueError):
    """An error that the user can fix: what was got, what was wanted, how to fix it.

    The commands print its message without a traceback and exit with status 2;
    from Python it is an ordinary `ValueError`.
    """


def first_line(error: BaseException, limit: int = 300) -> str:
    """Returns the first line of an error's message, shortened to `limit` characters.

    Without a message, the name of its class. Libraries add pages: TensorStore's errors
    fill many lines, and end with their cause.
    """
    text = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return shortened(text, limit)


def shortened(text: str, limit: int = 300) -> str:
    """Returns a text without its middle if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    end = limit // 3
    return f"{text[: limit - end - 5]} ... {text[-end:]}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns a hint such as `; did you mean 'layers'?`; all names if none is close."""
    names = [str(n) for n in names if n != ""]  # "" is the default of a choice
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return "; there are: " + ", ".join(names)


def listed(names: Sequence[str], limit: int = 4) -> str:
    """Names for an error message: the first ones, and how many more there are."""
    remainder = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + remainder
