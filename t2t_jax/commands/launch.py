"""Starts a command by its name: `t2t_jax COMMAND` or `python -m t2t_jax COMMAND`.

This file imports nothing heavy, because a command may first re-execute itself to get
huge pages (`parallel/huge_pages.py`).
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from t2t_jax.parallel import huge_pages

# Group -> name -> its line in the overview. Its module is as `runner.run` says.
COMMANDS = {
    "train": {
        "train": "train or continue, then score; the same as `python -m t2t_jax.main`",
        "distill": "translate a text by a teacher, and train a student",
        "prepare": "prepare a training text, also in parts on several machines",
        "experiment": "run the rows of a table: seeds, statistics, plots",
    },
    "use": {
        "translate": "translate a file, standard input, or sentences typed at a prompt",
        "score": "compute log-probabilities of given targets",
        "serve": "translate for other programs and browsers, over HTTP",
        "learn": "train an adapter on corrections, and take it if it is better",
        "evaluate": "answer and score a test set, by its task's scores",
        "compare": "compare systems on a test set: which is better, and where",
    },
    "exchange": {
        "import": "read a published model: Hugging Face, fairseq, Marian, PyTorch",
        "export": "write a run for CTranslate2, Hugging Face, StableHLO",
    },
    "look": {
        "explain": "show on a page why a sentence was translated this way",
        "describe": "describe a config next to the paper: sizes, rates, FLOPs",
        "plot": "draw the logs of runs: losses, scores, rates; a page or a picture",
    },
    "check": {
        "verify": "measure on this machine what the documentation promises",
        "check": "list what a run finds and what is missing, and start nothing",
        "plan": "forecast whether a run fits on other chips, and how long it takes",
        "doctor": "find what is wrong with a text before training on it",
        "whatwas": "list the sentences of a step's batch, or execute steps again",
    },
}
# The command of a tool is a file of the tool's folder, that of the core is a file here.
TOOLS = {
    "experiment": "experiment.command",
    "compare": "compare.command",
    "import": "bridges.import_command",
    "export": "bridges.export_command",
    "explain": "explain.command",
    "describe": "plan.describe_command",
    "plot": "pages.command",
    "verify": "verify.command",
    "check": "plan.check_command",
    "plan": "plan.command",
    "doctor": "doctor.command",
    "serve": "serve.command",
    "learn": "learn.command",
}
ALIASES = {"main": "train"}  # `python -m t2t_jax.main` is the main job's first name


def commands() -> dict[str, str]:
    """The module of each command below t2t_jax, by all its names."""
    named = {
        name: f"tools.{TOOLS[name]}" if name in TOOLS else f"commands.{name}"
        for group in COMMANDS.values()
        for name in group
    }
    return named | {alias: named[name] for alias, name in ALIASES.items()}


def module_of(name: str) -> ModuleType:
    """Imports the module of a command."""
    return importlib.import_module(f"t2t_jax.{commands()[name]}")


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
        from t2t_jax.io.messages import closed_pipe_ends

        with closed_pipe_ends():
            print(overview(Path(sys.argv[0]).name))
        return
    if name not in commands():
        from t2t_jax.io.errors import did_you_mean

        near = did_you_mean(name, commands())
        print(f"error: no command {name!r}{near}", file=sys.stderr)
        sys.exit(2)
    del sys.argv[1]  # the command's flags begin after its name
    sys.argv[0] = f"{sys.argv[0]} {name}"
    launch(name)


def overview(program: str = "__main__.py") -> str:
    """Lists the commands by group, below how the program was called."""
    called = "python -m t2t_jax" if program == "__main__.py" else program
    lines = [f"{called} COMMAND [--help]"]
    for group, listed in COMMANDS.items():
        lines += ["", group]
        lines += [f"  {name:10} {does}" for name, does in listed.items()]
    return "\n".join(lines)
