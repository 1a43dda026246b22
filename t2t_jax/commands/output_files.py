"""Files that a command is asked to write: checked before, never overwritten."""

from pathlib import Path

from t2t_jax.io.atomic import keep_earlier, write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say


def check_page(flag: str, output: Path) -> None:
    """Checks that a flag names an HTML file that can be written.

    Raises:
      UserError: it has another ending, its folder does not exist, or it is a folder.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--{flag}={output}: want a name that ends in .html")
    check_file(flag, output)


def check_file(flag: str, output: Path) -> None:
    """Checks that a flag names a file in a folder that exists.

    Raises:
      UserError: it does not.
    """
    if not output.parent.is_dir():
        raise UserError(
            f"--{flag}={output}: {output.parent} is not an existing folder; create it "
            "first"
        )
    if output.is_dir():
        raise UserError(f"--{flag}={output} is a folder; give a file")


def write_file(output: Path, content: bytes) -> None:
    """Writes a file; an earlier one of this name gets the next free number."""
    if output.exists() and output.read_bytes() != content:
        number = keep_earlier(output)
        say(f"the earlier {output} is now {output.stem}.{number}{output.suffix}")
    write_atomically(output, content)
    say(f"wrote {output}")
