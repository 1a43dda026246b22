"""Describes a config beside the paper: `python -m t2t_jax describe --config=NAME`.

With --workdir it describes the config and the vocabulary of a trained workdir. Reads no
text and allocates no parameters.
"""

import json
import os
import sys

from absl import flags

from t2t_jax.commands.flags import define_config_flag
from t2t_jax.io.errors import UserError
from t2t_jax.tools.plan.describe import describe, describe_workdir
from t2t_jax.tools.plan.describe_page import page


def default_config() -> str | None:
    """The config to describe if neither a config nor a workdir is given."""
    # Another run may be using the GPU: do not claim 3/4 of its memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    workdir, config_flags = _given_flags()
    return None if workdir and not config_flags else "tiny"


def define_flags():
    define_config_flag()
    flags.DEFINE_string(
        "workdir", None, "Describe this trained workdir instead of a config."
    )
    flags.DEFINE_boolean("json", False, "Print a JSON object, for programs.")


def main(_):
    given = flags.FLAGS
    workdir, config_flags = _given_flags()
    if workdir and config_flags:
        raise UserError(
            f"both --workdir and --{config_flags[0]} are given, but a workdir has its "
            "own config; leave out one of them"
        )
    if given.workdir == "":
        raise UserError("--workdir is empty; name a folder, or leave the flag out")
    result = describe_workdir(given.workdir) if workdir else describe(given.config)
    print(
        json.dumps(result, indent=1, ensure_ascii=False) if given.json else page(result)
    )


def _given_flags() -> tuple[bool, list[str]]:
    """Returns whether --workdir is given, and the flags about a config.

    Reads the command line itself, as it is called before the flags are parsed.
    """
    given = [a for a in sys.argv[1:] if a.startswith("-")]
    names = [argument.lstrip("-").partition("=")[0] for argument in given]
    config_flags = [n for n in names if n.partition(".")[0] in ("config", "noconfig")]
    return "workdir" in names, config_flags
