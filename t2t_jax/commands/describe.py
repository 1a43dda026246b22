"""Describes a config beside the paper: `python -m t2t_jax.describe --config=NAME`.

With --workdir the config and the vocabulary of a trained workdir. Reads no text and
allocates no parameters.
"""

import json
import os
import sys

from absl import flags

from t2t_jax.commands.flags import define_config_flag
from t2t_jax.planning.describe import describe, describe_workdir
from t2t_jax.planning.describe_page import page
from t2t_jax.terminal.errors import UserError


def default_config() -> str | None:
    # Another run may be using the GPU, and this needs next to nothing of it.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    workdir, of_config = _given()
    return None if workdir and not of_config else "tiny"


def define_flags():
    define_config_flag()
    flags.DEFINE_string("workdir", None, "A trained workdir, instead of a config.")
    flags.DEFINE_boolean("json", False, "Prints a JSON object, for programs.")


def main(_):
    given = flags.FLAGS
    workdir, of_config = _given()
    if workdir and of_config:
        raise UserError(
            f"both --workdir and --{of_config[0]} are given, but a workdir has its own "
            "config; leave out one of them"
        )
    if given.workdir == "":
        raise UserError("--workdir is empty; name a folder, or leave the flag out")
    found = describe_workdir(given.workdir) if workdir else describe(given.config)
    print(
        json.dumps(found, indent=1, ensure_ascii=False) if given.json else page(found)
    )


def _given() -> tuple[bool, list[str]]:
    """True if the command line names a workdir; and its flags of a config."""
    given = [a for a in sys.argv[1:] if a.startswith("-")]
    names = [argument.lstrip("-").partition("=")[0] for argument in given]
    of_config = [n for n in names if n.partition(".")[0] in ("config", "noconfig")]
    return "workdir" in names, of_config
