"""Starts a command by its name: `t2t_jax COMMAND` or `python -m t2t_jax COMMAND`.

This file imports nothing heavy, because a command may first re-execute itself to get
huge pages (`parallel/huge_pages.py`).
"""

import importlib
import sys
from types import ModuleType
from typing import NamedTuple

from t2t_jax.parallel import huge_pages


class Command(NamedTuple):
    """Where a command is defined, and its line in the overview."""

    module: str  # below t2t_jax; has `define_flags` and `main`, see `runner.run`
    does: str


# Group -> name -> command. The command of a tool is a file of the tool's folder.
COMMANDS = {
    "train": {
        "train": Command(
            "commands.train", "train a config, or continue, then score its test sets"
        ),
        "distill": Command(
            "commands.distill", "translate a text by a teacher, and train a student"
        ),
        "experiment": Command(
            "tools.experiment.command",
            "run the rows of a table: seeds, statistics, plots",
        ),
    },
    "use": {
        "translate": Command(
            "commands.translate",
            "translate a file, standard input, or sentences typed at a prompt",
        ),
        "score": Command(
            "commands.score", "compute log-probabilities of given targets"
        ),
        "evaluate": Command(
            "commands.evaluate", "answer and score a test set, by its task's scores"
        ),
        "compare": Command(
            "tools.compare.command",
            "compare systems on a test set: which is better, and where",
        ),
    },
    "exchange": {
        "import": Command(
            "tools.bridges.importing",
            "read a published model: Hugging Face, fairseq, Marian, PyTorch",
        ),
        "export": Command(
            "tools.bridges.exporting",
            "write a run for CTranslate2, Hugging Face, ONNX, StableHLO",
        ),
    },
    "look": {
        "explain": Command(
            "tools.explain.command",
            "show on a page why a sentence was translated this way",
        ),
        "describe": Command(
            "tools.plan.describe_command",
            "describe a config beside the paper: sizes, rates, FLOPs",
        ),
        "plot": Command(
            "tools.pages.command",
            "draw the logs of runs: losses, scores, rates; a page or a picture",
        ),
    },
    "check": {
        "verify": Command(
            "tools.verify.command",
            "measure on this machine what the documentation promises",
        ),
        "plan": Command(
            "tools.plan.command",
            "forecast whether a run fits on other chips, and how long it takes",
        ),
        "doctor": Command(
            "tools.doctor.command",
            "find what is wrong with a text before training on it",
        ),
        "whatwas": Command(
            "commands.whatwas",
            "list the sentences of a step's batch, or execute steps again",
        ),
    },
}
ALIASES = {"main": "train"}  # `python -m t2t_jax.main` is the main job's first name


def commands() -> dict[str, Command]:
    """All commands by name, aliases included."""
    named = {
        name: command for group in COMMANDS.values() for name, command in group.items()
    }
    return named | {alias: named[name] for alias, name in ALIASES.items()}


def module_of(name: str) -> ModuleType:
    """Imports the module of a command."""
    return importlib.import_module(f"t2t_jax.{commands()[name].module}")


def launch(name: str) -> None:
    """Runs a command with the flags of the command line."""
    huge_pages.restart_if_useful()
    # Imported only now: a restart would import JAX twice.
    from t2t_jax.commands import runner

    runner.run(name, module_of(name))


def main() -> None:
    """Runs the console script, whose first argument is the command."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h", "help"):
        print(overview())
        return
    if name not in commands():
        from t2t_jax.io.errors import did_you_mean

        near = did_you_mean(name, commands())
        print(f"error: no command {name!r}{near}", file=sys.stderr)
        sys.exit(2)
    del sys.argv[1]  # the command's flags begin after its name
    sys.argv[0] = f"{sys.argv[0]} {name}"
    launch(name)


def overview() -> str:
    """Lists the commands by group."""
    lines = ["python -m t2t_jax COMMAND [--help]"]
    for group, listed in COMMANDS.items():
        lines += ["", group]
        lines += [f"  {name:10} {command.does}" for name, command in listed.items()]
    return "\n".join(lines)
