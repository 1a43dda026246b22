"""Runs the rows of an experiment: `python -m t2t_jax experiment NAME --workdir=DIR`.

NAME is one of the experiments below or a file like those in experiments/. Each row is
trained in DIR/runs and stays there for other experiments; DIR/NAME has the table and
the plots, which are made again after each run. Stop it and start it again as you like,
also several times at once on machines that share DIR: each takes the next row.
"""

import ast
import functools
import inspect
import operator
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from absl import flags
from ml_collections import config_flags

from t2t_jax import config as fields
from t2t_jax.commands.config_files import (
    given_fields,
    import_file,
    importable,
    shipped_folder,
    shipped_names,
)
from t2t_jax.commands.flags import DEFINE
from t2t_jax.io import ideas
from t2t_jax.io.errors import UserError
from t2t_jax.io.lock import exclusive
from t2t_jax.io.messages import say
from t2t_jax.io.tables import text_table
from t2t_jax.tools.experiment import Experiment
from t2t_jax.tools.experiment.experiment import (
    LEASES,
    RUNS,
    ExperimentRequest,
    freeze,
    with_changes,
)

WORD = "NAME"  # the argument that is not a flag


def define_flags():
    flags.DEFINE_string(
        "workdir",
        None,
        "A folder for the runs and tables of experiments; several share their runs.",
    )
    flags.DEFINE_string("name", None, "Folder of this plan in --workdir; default NAME.")
    flags.DEFINE_string(
        "rows",
        "",
        "Run only these rows, separated by commas; * and ? stand for any characters.",
    )
    flags.DEFINE_boolean("retry", False, "Run rows again that failed.")
    flags.DEFINE_boolean("replan", False, "Replace the plan by the file as it is now.")
    flags.DEFINE_boolean("report", False, "Only make the tables and plots again.")
    flags.DEFINE_boolean(
        "dry_run",
        False,
        "Only list the rows, their parameters, and a forecast of the time and disk "
        "space they take.",
    )
    flags.DEFINE_boolean(
        "measure", False, "With --dry_run: measure some steps of each row instead."
    )
    flags.DEFINE_string(
        "slice", "", "With --dry_run: also forecast the time on chips such as v5e:2x4."
    )
    flags.DEFINE_boolean(
        "wait", True, "At the end, wait for rows that other processes run."
    )
    config_flags.DEFINE_config_dict(
        "config", fields.defaults(), "Fields to change in all rows."
    )
    if name := _given_name():
        module = load(name)
        explained = meanings(module)
        for parameter, default in parameters(module).items():
            if parameter in flags.FLAGS:
                raise UserError(
                    f"{module.__file__}: get_experiment has a parameter {parameter!r}, "
                    f"and --{parameter} is another flag; rename the parameter"
                )
            meaning = explained.get(parameter, "")
            text = f"Parameter of the experiment: {meaning}".rstrip(": ")
            DEFINE[type(default)](parameter, default, text)


def introduction() -> str:
    """The first part of --help: an experiment's docstring, or all experiments."""
    if name := _given_name():
        return load(name).__doc__ or name
    return f"{__doc__.strip()}\n\nExperiments:\n{overview()}"


def _given_name() -> str:
    """The experiment on the command line, which is read before flags are parsed."""
    words = iter(sys.argv[1:])
    for word in words:
        if not word.startswith("-"):
            return word
        flag = word.lstrip("-")
        if flag in flags.FLAGS and not flags.FLAGS[flag].boolean:
            next(words, None)  # its value, as in `--workdir DIR`
    return ""


def main(argv):
    args = flags.FLAGS
    if len(argv) < 2:
        raise UserError(
            f"name an experiment ({', '.join(shipped_names(FOLDER))}) or a file: "
            "python -m t2t_jax experiment table3 --workdir=DIR"
        )
    module = load(argv[1])
    request = _request(argv[1], parameters(module))

    def define(request: ExperimentRequest) -> Experiment:
        experiment = define_experiment(module, request.parameters)
        return with_changes(experiment, request.changes)

    folder = None if args.dry_run else _folder(Path(argv[1]).stem)
    # Mistakes above are reported before JAX is imported.
    from t2t_jax.parallel.process_setup import set_up_process
    from t2t_jax.tools.experiment import estimates
    from t2t_jax.tools.experiment.running import select

    set_up_process()
    if args.dry_run:
        rows = select(define(request).rows, args.rows)
        print(estimates.dry_run(rows, args.slice, args.measure))
        return
    named = [parameter for parameter in request.parameters if args[parameter].present]
    experiment = freeze(folder, request, named, define, args.replan)
    _run(experiment, folder)


def _run(experiment: Experiment, folder: Path) -> None:
    """Runs the rows of --rows, and makes the tables after each."""
    from t2t_jax.tools.experiment import tables
    from t2t_jax.tools.experiment.estimates import failures, status
    from t2t_jax.tools.experiment.results import FAILED, RUNNING, read_results
    from t2t_jax.tools.experiment.running import Queue, select

    args = flags.FLAGS
    queue = Queue(folder.parent, experiment.rows)
    rows = select(experiment.rows, args.rows)

    def report() -> str:
        results = read_results(experiment.rows, queue.runs)
        running = {t.run.hash for t in queue.tasks if queue.state(t) == RUNNING}
        with exclusive(folder):  # other processes make it, too
            return tables.write_report(experiment, results, folder, running)

    def after_each_run() -> None:
        report()
        say(status(queue, joining=True))

    if not args.report:
        say(status(queue, joining=True))
        try:
            queue.run(rows, args.retry, args.wait, after_each_run)
        except KeyboardInterrupt:
            say(status(queue))
            raise
    print(report())
    for line in (status(queue), *failures(queue), f"tables and plots: {folder}"):
        say(line)
    selected = [task for task in queue.tasks if task.row in rows]
    if any(queue.state(task) == FAILED for task in selected):
        raise UserError("some rows failed; --retry runs them again")


def _folder(name: str) -> Path:
    """The folder of the plan and its tables, in --workdir."""
    args = flags.FLAGS
    if not args.workdir:
        raise UserError("--workdir is missing; name a folder for the runs and tables")
    if "://" in args.workdir:
        raise UserError(
            f"--workdir={args.workdir}: experiments need a folder on a disk, as a "
            "bucket has no locks; copy it to the bucket afterwards"
        )
    folder = Path(args.workdir) / (args.name or name)
    if folder.name in (RUNS, LEASES):
        raise UserError(
            f"{folder} is not for tables, as all experiments share it; give another "
            "--name=NAME"
        )
    return folder


def _request(name: str, defaults: Mapping[str, Any]) -> ExperimentRequest:
    """Reads the flags."""
    args = flags.FLAGS
    changes = {
        field: functools.reduce(operator.getitem, field.split("."), args.config)
        for field in given_fields(sys.argv[1:])
    }
    parameters = {name: args[name].value for name in defaults}
    return ExperimentRequest(name, parameters, changes, dict(ideas.imported))


FOLDER = "experiments"


def load(name: str) -> ModuleType:
    """Imports an experiment's file: `table3`, or `experiments/mine.py`."""
    file = importable(name, FOLDER, "experiment", name)
    module = import_file(file, f"{FOLDER}.{file.stem}")
    if not callable(getattr(module, "get_experiment", None)):
        raise UserError(
            f"{file} is not an experiment: it has no function get_experiment, which "
            "returns a t2t_jax.tools.experiment.Experiment"
        )
    return module


def overview() -> str:
    """Lists the shipped experiments with the first lines of their docstrings."""
    lines = []
    for name in shipped_names(FOLDER):
        source = (shipped_folder(FOLDER) / f"{name}.py").read_text(encoding="utf-8")
        title, _, _ = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
        lines.append([f"  {name}", title])
    return "\n".join(text_table(lines, left=(0, 1)))


def parameters(module: ModuleType) -> dict[str, Any]:
    """The defaults of an experiment's parameters, which the command takes as flags."""
    signature = inspect.signature(module.get_experiment).parameters
    defaults = {name: parameter.default for name, parameter in signature.items()}
    for name, default in defaults.items():
        if type(default) not in DEFINE:
            raise UserError(
                f"{module.__file__}: the parameter {name!r} of get_experiment needs a "
                "default that is a number, a text or True or False, as it becomes the "
                f"flag --{name}"
            )
    return defaults


def meanings(module: ModuleType) -> dict[str, str]:
    """Reads the meaning of parameters in the docstring of `get_experiment`."""
    text = inspect.getdoc(module.get_experiment) or ""
    _, _, arguments = text.partition("\nArgs:\n")
    arguments, _, _ = arguments.partition("\n\n")
    # A parameter is indented by two or four columns, and its further lines by more.
    matches = re.findall(r"^( +)(\w+): ((?:.|\n\1 )+)", arguments, re.M)
    return {name: " ".join(meaning.split()) for _, name, meaning in matches}


def define_experiment(module: ModuleType, arguments: Mapping[str, Any]) -> Experiment:
    """Calls `get_experiment`; leaves out arguments that it does not have any more."""
    accepted = arguments.keys() & parameters(module)
    try:
        experiment = module.get_experiment(**{n: arguments[n] for n in accepted})
    except ValueError as e:
        raise UserError(f"{Path(module.__file__).stem}: {e}") from e
    if not isinstance(experiment, Experiment):
        raise UserError(
            f"get_experiment of {module.__file__} returns {experiment!r}; want an "
            "Experiment"
        )
    return experiment
