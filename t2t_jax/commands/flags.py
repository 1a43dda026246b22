"""The flags that several commands share, and the text of --help."""

import dataclasses
import gc
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags
from ml_collections import config_flags

from t2t_jax import config as fields
from t2t_jax.commands.config_files import shipped_names
from t2t_jax.config import ENGINES, WEIGHTS, Config, SearchOptions
from t2t_jax.data.corpus import Corpus, check_files, open_specs
from t2t_jax.decoding.search_options import (
    PreservingOptions,
    SamplingOptions,
    option_names,
)
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import split_names
from t2t_jax.parallel import processes
from t2t_jax.sections import checked_options
from t2t_jax.workdir import Workdir

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.tasks.task import Task


def define_config_flag() -> None:
    """Defines --config and --config.SECTION.FIELD."""
    config_flags.DEFINE_config_file(
        "config",
        None,
        f"A preset ({', '.join(shipped_names('configs'))}) or the path of a config "
        "file, optionally followed by :ARGUMENT; --config.SECTION.FIELD=VALUE changes "
        "a field.",
    )


def define_ideas_flag() -> None:
    """Defines --ideas, which `runner.py` has read before the flags are parsed."""
    flags.DEFINE_multi_string(
        "ideas",
        [],
        "A module of your own to import first, such as my_idea or ideas/my_idea.py. It "
        "adds entries to the tables that the config chooses from",  # absl adds a clause
    )


SEARCH, SAMPLING = option_names(SearchOptions), option_names(SamplingOptions)
PRESERVING = option_names(PreservingOptions)
# What defines a flag, by the type of its default.
DEFINE = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
ENSEMBLE = "Several, separated by commas, form an ensemble."


def define_workdir_flags(
    several: str = "", dtype: bool = True, required: bool = True
) -> None:
    """Defines --workdir, --checkpoint and --dtype.

    Args:
      several: what several workdirs mean, if the command takes them.
    """
    flags.DEFINE_string(
        "workdir",
        None,
        f"Workdir of a trained run: a folder or gs://BUCKET/FOLDER. {several}".strip(),
        required=required,
    )
    if dtype:
        flags.DEFINE_enum(
            "dtype",
            None,
            ["float32", "bfloat16"],
            "Type of the activations; by default the workdir's config.model.dtype.",
        )
    define_checkpoint_flag()


def define_weights_flag() -> None:
    """Defines --weights, of commands that do not look into a model."""
    flags.DEFINE_enum(
        "weights",
        "float32",
        WEIGHTS,
        "Type of the weights: int8 rounds them, and activations where they meet them, "
        "so that weights take a quarter of the memory. Translations may differ.",
    )


def define_adapter_flag(names: str) -> None:
    """Defines --adapter; `names` says what they are for."""
    flags.DEFINE_multi_string("adapter", [], f"Workdir of an adapter; {names}")


def define_engine_flag() -> None:
    """Defines --engine, as `Translator.load` takes it."""
    flags.DEFINE_enum(
        "engine",
        None,
        ENGINES,
        "What computes: jax, for the same bits whatever is translated beside a line, "
        "on any device; ctranslate2, the quicker one for small models on a CPU (the "
        "workdir is exported once and compared); auto: the one that is quicker when "
        "both are tried. By default jax for a workdir, ctranslate2 for an export.",
    )


def define_checkpoint_flag() -> None:
    """Defines --checkpoint."""
    flags.DEFINE_string(
        "checkpoint",
        None,
        "Parameters to use: 'average', 'average:N' (of the last N checkpoints), "
        "'last', 'best', 'best:N', a step, or steps to average, separated by commas; "
        "by default the workdir's config.decode.checkpoint.",
    )


def define_test_flag(required: bool = True) -> None:
    """Defines --test."""
    flags.DEFINE_string(
        "test",
        None,
        "Test sets, separated by commas. Each is the PREFIX of two text files, "
        "relative to the current folder, such as news for news.en and news.de (or "
        ".gz); or tfds:NAME:SPLIT; or grammar:SPLIT.",
        required=required,
    )


def define_references_flag() -> None:
    """Defines --references, which `with_references` reads."""
    flags.DEFINE_string(
        "references",
        None,
        "FILE,FILE: further references of the one test set, a line for each of its "
        "lines, empty where there is none; 'all' for those of a sacrebleu: set.",
    )


def define_search_flags(
    leave_out: Sequence[str] = (), options: type = SearchOptions
) -> None:
    """Defines a flag for each of some options; the config has a search's defaults."""
    for field in dataclasses.fields(options):
        if field.name not in leave_out:
            default = None if options is SearchOptions else field.default
            DEFINE[type(field.default)](field.name, default, field.metadata["help"])


def search_flags(args: flags.FlagValues) -> dict[str, Any]:
    """Returns the options of a search that flags give, by name."""
    # Not all commands define all of them.
    named = {name: getattr(args, name, None) for name in SEARCH}
    return checked_options(SearchOptions, named, "--")


def define_choice_flag() -> None:
    """Defines --choose, which `Translator.with_choice` reads."""
    flags.DEFINE_string(
        "choose",
        None,
        "Choice among several hypotheses of a line: probability; mbr:samples=32,"
        "utility=chrf (minimum Bayes risk); or rerank:reverse=DIR,reverse_weight=1,"
        "lm=DIR,lm_weight=0.2,nbest=12. By default the workdir's config.decode.choose.",
    )


def define_constraint_flags() -> None:
    """Defines constraints on translations."""
    flags.DEFINE_string("prefix", None, "Text that every translation begins with.")
    # absl appends "; repeat this option ..." to the help of these two.
    flags.DEFINE_multi_string(
        "must", None, "Word or phrase that every translation contains"
    )
    flags.DEFINE_multi_string(
        "must_not",
        None,
        "Word or phrase that no translation contains; may be repeated.",
    )


def define_task_flag() -> None:
    """Defines --task, which `chosen_task` reads."""
    flags.DEFINE_string(
        "task",
        None,
        "The subtask that a text-to-text model is asked for, such as en-de; by default "
        "each line begins with a tag, such as <2de>.",
    )


def chosen_task(
    translator: "Translator", args: flags.FlagValues
) -> tuple["Task", "Translator"]:
    """Returns the task of the config or of --task, and the translator for its lines."""
    from t2t_jax.tasks.table import task_of

    task = task_of(translator.config)
    if args.task is None:
        return task, translator
    return task.chosen(args.task, translator)


def refuse_unused(task: "Task", args: flags.FlagValues) -> None:
    """Raises UserError for options of `translate` that mean nothing for a task."""
    if unused := [f"--{name}" for name in task.unused if args[name].present]:
        raise UserError(
            f"{', '.join(unused)}: an option of translation that means nothing with "
            f"config.task.kind={task.config.task.kind!r}; leave it out"
        )


def define_process_flags() -> None:
    """Defines how processes find each other, for clusters that JAX cannot detect."""
    flags.DEFINE_string(
        "coordinator_address",
        None,
        "HOST:PORT of process 0, to run in several processes.",
    )
    flags.DEFINE_integer("num_processes", None, "Number of processes.")
    flags.DEFINE_integer("process_id", None, "Index of this process, from 0.")


def test_sets(args: flags.FlagValues, config: Config) -> list[Corpus]:
    """Opens the test sets of --test, as the task of a workdir reads them."""
    from t2t_jax.tasks.table import task_of

    corpora = open_specs(args.test, task_of(config).open)
    if not corpora:
        raise UserError(f"--test={args.test!r} names no test set; want a PREFIX")
    if processes.is_first():  # the others read none
        check_files(corpora)
    return corpora


def workdirs_of(args: flags.FlagValues) -> str | list[str]:
    """The workdir of --workdir, or the list of an ensemble's workdirs."""
    names = split_names(args.workdir)
    if not names:
        raise UserError(f"--workdir={args.workdir!r} names no workdir; want a folder")
    return names[0] if len(names) == 1 else names


def read_config(args: flags.FlagValues) -> Config:
    """The config of the first workdir of --workdir; refuses all that are none.

    Imports no JAX: so mistakes are reported at once.
    """
    workdirs = workdirs_of(args)
    workdirs = [workdirs] if isinstance(workdirs, str) else workdirs

    def read() -> dict:
        configs = [Workdir(workdir).config() for workdir in workdirs]
        return dataclasses.asdict(configs[0])

    return fields.from_config_dict(processes.from_first("opening the workdir", read))


def load_translator(args: flags.FlagValues) -> "Translator":
    """Loads the models of --workdir; call `read_config` before, which is quick."""
    # Imports make many objects and no garbage: looking for it takes a sixth of their
    # time.
    gc.disable()
    from t2t_jax.decoding.translator import Translator

    gc.enable()
    gc.freeze()
    places, engine = workdirs_of(args), getattr(args, "engine", None)
    return Translator.load(places, args.checkpoint, args.dtype, args.weights, engine)


def help_text(name: str, introduction: str, defined: list[str]) -> str:
    """Formats the text of --help."""
    lines = [introduction.strip(), "", f"Flags of {name}:"]
    for flag_name in defined:
        flag = flags.FLAGS[flag_name]
        without_default = flag.default in (None, False, "", []) or flag_name == "config"
        default = "" if without_default else f" [{flag.default}]"
        lines.append(f"  --{flag_name}{default}")
        lines += _indented(flag.help or "", 6)
    if "config" in defined:
        lines += [
            "",
            "Fields of the config, with the defaults of the paper's base model:",
        ]
        for section, values in fields.SECTIONS.items():
            listed = ", ".join(
                f"{field.name}={getattr(values, field.name)!r}"
                for field in dataclasses.fields(values)
            )
            lines += [f"  --config.{section}.FIELD=VALUE", *_indented(listed, 6)]
    lines += ["", "--helpfull lists the flags of all libraries."]
    return "\n".join(lines)


def _indented(text: str, indent: int) -> list[str]:
    margin = " " * indent
    text = " ".join(text.split())
    return textwrap.wrap(text, 80, initial_indent=margin, subsequent_indent=margin)


def parse_steps(flag: str, steps: str) -> tuple[int, int | None]:
    """Parses "N" as (N, None) and "N-M" as (N, M)."""
    if not (match := re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", steps)):
        raise UserError(
            f"--{flag}={steps!r}; want a step, such as 600, or a stretch N-M"
        )
    first, last = match.groups()
    return int(first), None if last is None else int(last)
