"""Translates lines: `python -m t2t_jax translate --workdir=DIR < source > target`.

It answers lines as the task of the model says (`Task.respond`): a classifier writes
their labels, a parser their trees, a language model goes on from them.

At a terminal it is a prompt that answers sentence by sentence. With --output and
--resume, translating a large file can be stopped and continued. With --pairs it writes
pairs of training text: back-translation.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from t2t_jax.commands.confidence_flags import (
    CONFIDENCE,
    Marks,
    define_confidence_flags,
)
from t2t_jax.commands.flags import (
    ENSEMBLE,
    PRESERVING,
    SAMPLING,
    SEARCH,
    chosen_task,
    define_adapter_flag,
    define_choice_flag,
    define_constraint_flags,
    define_engine_flag,
    define_search_flags,
    define_task_flag,
    define_weights_flag,
    define_workdir_flags,
    load_translator,
    read_config,
    refuse_unused,
    search_flags,
)
from t2t_jax.commands.pairs_flags import (
    check_pairs_flags,
    define_pairs_flags,
    languages_of,
    pair_options,
)
from t2t_jax.data.text_files import HASHES_ENDING, read_text
from t2t_jax.decoding.jobs import InputFile, record, run_job
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.search_options import SHARED, PreservingOptions, SamplingOptions
from t2t_jax.extensions.run.synthetic_text import merge_pairs, write_pairs
from t2t_jax.io.atomic import write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.io.output_files import check_folder, check_output
from t2t_jax.io.parts import merge, parse_part, part_of
from t2t_jax.parallel import processes
from t2t_jax.sections import at_address

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.extensions.decoding.preserving import Report
    from t2t_jax.tasks.task import Task

DISTRIBUTED = True
CHUNK = 4_096  # lines sorted and translated together, if --batch_size is not given


def define_flags():
    define_workdir_flags(ENSEMBLE, required=False)
    define_weights_flag()
    define_engine_flag()
    define_adapter_flag(
        "NAME=DIR, once or more: input lines are NAME<tab>TEXT, an empty name is the "
        "model alone."
    )
    define_task_flag()
    define_search_flags()
    define_choice_flag()
    define_constraint_flags()
    define_search_flags(options=PreservingOptions)
    define_pairs_flags()
    integer, string, boolean = (
        flags.DEFINE_integer,
        flags.DEFINE_string,
        flags.DEFINE_boolean,
    )
    string("input", None, "File to translate, plain or .gz; default: standard input.")
    string(
        "output",
        None,
        "File to write; it appears when all lines are translated. Default: standard "
        "output.",
    )
    boolean(
        "resume",
        False,
        "Continue a stopped job that was writing to --output or --pairs.",
    )
    string("part", None, "I/N: translate the I-th of N parts of --input.")
    flags.DEFINE_alias("shard", "part")
    boolean("merge", False, "Join the finished parts of --output or --pairs; no more.")
    integer(
        "batch_size",
        CHUNK,
        "Number of lines that are read, sorted by length and translated together. With "
        "1, each line is answered as soon as it is read. Translations do not depend on "
        "it.",
        lower_bound=1,
    )
    integer(
        "nbest",
        1,
        "Translations per line; more than 1 prints NUMBER ||| TRANSLATION ||| SCORE "
        "for each, with the line's number counted from 0. Their texts differ, but for "
        "those of --sample; there may be fewer.",
    )
    boolean(
        "scores",
        False,
        "Print TRANSLATION ||| SCORE; the score of a label is its probability, that of "
        "a filled line the product of those of its pieces.",
    )
    boolean(
        "alignments",
        False,
        "Print TRANSLATION ||| ALIGNMENT: I-J for each word J of the translation, "
        "where I is the source word it attends to most; counted from 0 (Pharaoh "
        "format).",
    )
    define_confidence_flags()
    boolean("sample", False, "Sample --nbest translations instead of searching.")
    define_search_flags(options=SamplingOptions)


def main(_):
    args = flags.FLAGS
    if args.merge:
        return merge_parts(args)
    if not args.workdir:
        raise UserError("--workdir is missing; give it as --workdir=VALUE")
    part = parse_part(args.part) if args.part is not None else (1, 1)
    check_pairs_flags(args)
    marks = Marks.from_flags(args)  # mistakes are reported before loading
    for name, needed in (("part", "input"), ("resume", "output")):
        if args[name].value and not (args[needed].value or args.pairs):
            raise UserError(f"--{name} goes with --{needed}; name a file")
    if processes.from_first(
        "the part", lambda: args.resume and is_finished(args, part)
    ):
        say(f"part {args.part} is finished; --merge compares what parts are made from")
        return None
    changes = pair_options(args)
    preserved = preserving_flags(args)
    from t2t_jax.extensions.decoding.preserving import Report

    report = Report()
    search, options = search_of(args, preserved, report)
    if args.choose is not None:
        from t2t_jax.decoding.choosing import parse_choice

        parse_choice(args.choose)  # mistakes are reported before loading
    path = prefix = text = None
    with processes.fail_together("opening the input and the output"):
        if processes.is_first() and args.pairs is not None:
            check_folder("pairs", prefix := part_of(Path(args.pairs), part))
        if processes.is_first() and args.output is not None:
            check_output(path := part_of(Path(args.output), part))
        if processes.is_first() and args.input is not None:
            text = InputFile(Path(args.input), part)
    # Files are checked before loading, so that mistakes are reported at once.
    read_config(args)
    translator, named = load_translator(args), {}
    for value in args.adapter:
        name, equals, place = value.partition("=")
        if not equals and len(args.adapter) > 1:
            raise UserError(f"--adapter={value}: of several, each needs a NAME=DIR")
        if equals:
            if name in named or not (name and place):
                reason = f"{name} is given twice" if name in named else "want NAME=DIR"
                raise UserError(f"--adapter={value}: {reason}")
            named[name] = place
        else:
            translator = translator.with_adapter(value)
    task, translator = chosen_task(translator, args)
    refuse_unused(task, args)
    # What is computed from translations must not cut them, either.
    translator = translator.with_extra_length(options["extra_length"])
    if args.choose is not None:
        translator = translator.with_choice(args.choose)
    if marks:
        marks.check(translator)

    def translate(lines: list[str], number: int) -> list[Translation]:
        """Translates lines, the first with this number (from 1)."""
        return task.respond(translator, lines, search, args.nbest, number)

    adapters = {}
    if named:
        by_name = at_address("extensions.decoding.adapted.by_name")
        translate, adapters = by_name(
            translator,
            named,
            lambda model, lines, number: task.respond(
                model, lines, search, args.nbest, number
            ),
        )

    translate([], 1)  # checks the options before the input is waited for

    languages = languages_of(task) if args.pairs is not None else None
    piped = text or path or processes.distributed()
    typed = not piped and sys.stdin.isatty() and sys.stdout.isatty()
    if typed and task.predicts == "target":
        return _prompt(translator, options, args, task)
    if typed:
        say(repr(translator))
        say("Type a line to have it answered; Ctrl-D ends.")
    batch_size = 1 if typed else args.batch_size  # answers each line as it is typed

    def translate_lines(lines: list[str], number: int) -> str:
        """Translates lines to the text of an output."""
        translations = translate(lines, number)
        alignments = None
        if args.alignments:
            pairs = [(t.source, h) for t in translations for h in t.hypotheses]
            alignments = iter(translator.align(pairs, warn=False))
        ends = marks.fields(translator, translations) if marks else None
        return "".join(
            record(translation, i, args.nbest > 1, args.scores, alignments, ends)
            for i, translation in enumerate(translations, number - 1)
        )

    # Everything the output depends on; --resume refuses a job that differs in it.
    made_from = {
        **translator.provenance(),
        **options,
        **adapters,
        **({"terms_sha256": preserved.terms.sha256} if args.terms else {}),
        "sample": args.sample,
        "fields": [args.nbest > 1, args.scores, args.alignments],
        **(marks.options() if marks else {}),
    }
    job = made_from, args.resume, batch_size
    if args.pairs is not None:
        note = {"workdir": args.workdir, "input": args.input}
        write_pairs(translate, text, prefix, languages, changes, note, *job)
        return None
    if args.format:
        translated = translate([read_text(Path(args.input))], 1)[0].text.encode()
        if path is not None:
            write_atomically(path, translated)
            say(f"1 text is translated: {path}")
        else:
            sys.stdout.buffer.write(translated)
    else:
        run_job(translate_lines, text, path, *job)
    if marks:
        marks.report()
    for line in report.lines():
        say(line)
    return None


def merge_parts(args: flags.FlagValues) -> None:
    """Joins the parts of --output or --pairs, as --merge asks."""
    unused = [
        f"--{name}"
        for name in {*args} - {"merge", "output", "pairs"}
        if args[name].present and "t2t_jax" in args.find_module_defining_flag(name)
    ]
    if unused or bool(args.output) == bool(args.pairs):
        raise UserError(
            "--merge joins parts without a model or an input; want either --output="
            f"FILE or --pairs=PREFIX, without {', '.join(sorted(unused)) or 'others'}"
        )
    with processes.fail_together("merging the parts", processes.LONG_TIMEOUT):
        if processes.is_first() and args.output:
            merge(Path(args.output))
        elif processes.is_first():
            merge_pairs(Path(args.pairs))


def is_finished(args: flags.FlagValues, part: tuple[int, int]) -> bool:
    """True if the part that is asked for is complete, as when an array runs again."""
    named = part_of(Path(args.pairs or args.output), part)
    # The last file of a part to appear.
    last_file = f"{named}.{HASHES_ENDING}" if args.pairs else str(named)
    return part[1] > 1 and Path(last_file).exists() and Path(f"{named}.json").exists()


def _prompt(
    translator: "Translator", options: dict, args: flags.FlagValues, task: "Task"
) -> None:
    from t2t_jax.commands.prompt import Prompt

    for name in ("sample", "choose", "alignments", "scores", *CONFIDENCE):
        if args[name].present and args[name].value is not False:
            raise UserError(
                f"--{name} does not work at the prompt; use --input=FILE or a pipe "
                "(:help lists what the prompt can do)"
            )
    say(repr(translator))
    Prompt(translator, {**options, "warn": True}, task).run()


def search_of(
    args: flags.FlagValues, preserved: PreservingOptions, report: "Report"
) -> tuple[Callable, dict]:
    """Chooses beam search or sampling by the flags.

    Args:
      preserved: by the flags.
      report: counts what happened to markup, placeholders and terms.

    Returns:
      A function (translator, lines, **extra) -> translations, and its options.
    """
    constraints = {"prefix": args.prefix, "must_not": args.must_not or ()}
    search = search_flags(args)
    if args.sample:
        shared = *SHARED, "extra_length"
        beam = [name for name in SEARCH if name not in shared]
        beam += ["must", "choose", *PRESERVING]
        unused = [f"--{name}" for name in beam if args[name].present]
        if unused:
            raise UserError(
                f"{', '.join(unused)}: an option of beam search, which --sample "
                "replaces; leave out either"
            )
        sampling = {name: args[name].value for name in SAMPLING}
        common = {name: search.get(name) for name in shared}
        options = {"samples": args.nbest, **sampling, **common, **constraints}
        return lambda t, lines, **extra: t.sample(lines, **options, **extra), options
    unused = [f"--{name}" for name in SAMPLING if args[name].present]
    if unused:
        raise UserError(f"{', '.join(unused)}: an option of sampling; add --sample")
    search = {name: search.get(name) for name in SEARCH}
    options = {"nbest": args.nbest, **search, "must": args.must or (), **constraints}
    options |= {name: args[name].value for name in PRESERVING if args[name].present}
    arguments = options | {"report": report, "terms": preserved.terms}
    return lambda t, lines, **extra: t.translate(lines, **arguments, **extra), options


# The options of lines, or of their tokens, that cannot be combined with a flag.
LINE_OPTIONS = "alignments", "confidence", "min_confidence", "pairs"
EXCLUDED = {
    "format": ("part", "resume", "batch_size", "nbest", "scores", *LINE_OPTIONS),
    "markup": LINE_OPTIONS,
    "split": LINE_OPTIONS,
    "placeholders": LINE_OPTIONS,
}


def preserving_flags(args: flags.FlagValues) -> PreservingOptions:
    """Reads and checks the flags of what is preserved, without loading a model."""
    from t2t_jax.extensions.decoding.preserving import preserving_options

    for name, excluded in EXCLUDED.items():
        for option in excluded if args[name].value else ():
            if args[option].present and args[option].value is not False:
                raise UserError(
                    f"--{option} does not work with --{name}, which does not write "
                    "lines as they are searched; leave one out"
                )
    if args.format and not args.input:
        raise UserError(f"--format={args.format} needs --input=FILE, a whole text")
    if args.format and processes.distributed():
        raise UserError("--format: want one process; several share lines, not a text")
    return preserving_options({name: args[name].value for name in PRESERVING}, "--")
