"""What is told to a person."""

import sys

import tqdm


def say(text: str = "") -> None:
    """Prints a line on standard error, above any progress bar."""
    tqdm.tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()
