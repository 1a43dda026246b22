"""Starts a command by its name: `python -m t2t_jax COMMAND`.

This file imports nothing heavy, because a command may first re-execute itself to get
huge pages (`parallel/huge_pages.py`).
"""

import importlib
import keyword
import sys

from t2t_jax.parallel import huge_pages

# Group -> command -> what it does. A command is the module of that name in commands/,
# with an underscore after a keyword of Python.
COMMANDS = {
    "train": {
        "main": "train a config, or continue, then score its test sets",
        "distill": "translate a text by a teacher, and train a student on it",
        "experiment": "run the rows of a table: seeds, statistics, plots",
    },
    "use": {
        "translate": "translate a file, standard input, or sentences typed at a prompt",
        "score": "compute log-probabilities of given targets",
        "evaluate": "answer and score a test set, by the scores of its task",
        "compare": "compare systems on a test set: which is better, and where",
    },
    "exchange": {
        "import": "read a published model: Hugging Face, fairseq, Marian, PyTorch",
        "export": "write a run for CTranslate2, Hugging Face, ONNX, StableHLO",
    },
    "look": {
        "explain": "show on a page why a sentence was translated this way",
        "describe": "describe a config beside the paper: sizes, rates, FLOPs",
        "plot": "draw the logs of runs: losses, scores, rates; a page or a picture",
    },
    "check": {
        "verify": "measure on this machine what the documentation promises",
        "plan": "forecast whether a run fits on other chips, and how long it takes",
        "doctor": "find what is wrong with a text before training on it",
        "whatwas": "list the sentences of a step's batch, or execute steps again",
    },
}


def launch(name: str) -> None:
    """Runs a command with the flags of the command line."""
    huge_pages.restart_if_useful()
    # Imported only now: a restart would import JAX twice.
    from t2t_jax.commands import runner

    module = f"{name}_" if keyword.iskeyword(name) else name
    runner.run(name, importlib.import_module(f"t2t_jax.commands.{module}"))


def main() -> None:
    """Runs the console script, whose first argument is the command."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    names = [name for group in COMMANDS.values() for name in group]
    if name in ("--help", "-h", "help"):
        print(overview())
        return
    if name not in names:
        from t2t_jax.io.errors import did_you_mean

        print(f"error: no command {name!r}{did_you_mean(name, names)}", file=sys.stderr)
        sys.exit(2)
    # The command then sees the arguments that `python -m t2t_jax.COMMAND` would give.
    del sys.argv[1]
    sys.argv[0] = f"{sys.argv[0]} {name}"
    launch(name)


def overview() -> str:
    """Lists the commands by group."""
    lines = ["python -m t2t_jax COMMAND [--help]"]
    for group, commands in COMMANDS.items():
        lines += [
            "",
            group,
            *(f"  {name:10} {does}" for name, does in commands.items()),
        ]
    return "\n".join(lines)
