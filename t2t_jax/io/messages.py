"""Messages to the user, on standard error."""

import sys

import tqdm

_silent = False


def silence() -> None:
    """Stops all messages of this process; process 0 prints those of all processes."""
    global _silent
    _silent = True


def is_silent() -> bool:
    """True after `silence`."""
    return _silent


def say(text: str = "") -> None:
    """Prints a line on standard error, above any progress bar."""
    if _silent:
        return
    # tqdm clears its bars, writes, and draws them again.
    tqdm.tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()
