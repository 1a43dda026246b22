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

from absl import flags

from t2t_jax import __version__
from t2t_jax.commands.confidence_flags import CONFIDENCE, Marks, define_confidence_flags
from t2t_jax.commands.flags import (
    ENSEMBLE,
    SAMPLING,
    SEARCH,
    chosen_task,
    define_choice_flag,
    define_constraint_flags,
    define_sampling_flags,
    define_search_flags,
    define_task_flag,
    define_workdir_flags,
    refuse_unused,
    search_flags,
    workdirs_of,
)
from t2t_jax.commands.pairs_flags import (
    check_pairs_flags,
    define_pairs_flags,
    languages_of,
    pair_options,
)
from t2t_jax.commands.prompt import Prompt
from t2t_jax.decoding.choosing import parse_choice
from t2t_jax.decoding.jobs import InputFile, parse_shard, record, run_job, shard_of
from t2t_jax.decoding.pairs_output import write_pairs
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.io.output_files import check_folder, check_output
from t2t_jax.parallel import processes
from t2t_jax.tasks.task import Task

DISTRIBUTED = True
PENALTY = "alpha", "penalty"  # of the scores: samples have them, too
CHUNK = 4_096  # lines sorted and translated together, if --batch_size is not given


def define_flags():
    define_workdir_flags(ENSEMBLE)
    define_task_flag()
    define_search_flags()
    define_choice_flag()
    define_constraint_flags()
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
    string("shard", None, "I/N: translate the I-th of N parts of --input.")
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
        "for each, with the line's number counted from 0.",
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
    define_sampling_flags()


def main(_):
    given = flags.FLAGS
    shard = parse_shard(given.shard) if given.shard is not None else (1, 1)
    check_pairs_flags(given)
    marks = Marks.of(given)  # mistakes are reported before loading
    for name, needed in (("shard", "input"), ("resume", "output")):
        if given[name].value and not (given[needed].value or given.pairs):
            raise UserError(f"--{name} goes with --{needed}; name a file")
    changes = pair_options(given)
    search, options = search_of(given)
    if given.choose is not None:
        parse_choice(given.choose)  # mistakes are reported before loading
    path = prefix = text = None
    with processes.fail_together("opening the input and the output"):
        if processes.is_first() and given.pairs is not None:
            check_folder("pairs", prefix := shard_of(Path(given.pairs), shard))
        if processes.is_first() and given.output is not None:
            check_output(path := shard_of(Path(given.output), shard))
        if processes.is_first() and given.input is not None:
            text = InputFile(Path(given.input), shard)
    # Files are checked above, before loading, so that mistakes are reported at once.
    translator = Translator.load(workdirs_of(given), given.checkpoint, given.dtype)
    task, translator = chosen_task(translator, given)
    refuse_unused(task, given)
    if given.choose is not None:
        translator = translator.with_choice(given.choose)
    if marks:
        marks.check(translator)

    def translate(lines: list[str], number: int) -> list[Translation]:
        """Translates lines, the first with this number (from 1)."""
        return task.respond(translator, lines, search, given.nbest, number)

    translate([], 1)  # checks the options before the input is waited for

    languages = languages_of(task) if given.pairs is not None else None
    piped = text or path or processes.distributed()
    typed = not piped and sys.stdin.isatty() and sys.stdout.isatty()
    if typed and task.predicts == "target":
        return _prompt(translator, options, given, task)
    if typed:
        say(repr(translator))
        say("Type a line to have it answered; Ctrl-D ends.")
    batch_size = 1 if typed else given.batch_size  # answers each line as it is typed

    def translate_lines(lines: list[str], number: int) -> str:
        """Translates lines to the text of an output."""
        translations = translate(lines, number)
        alignments = None
        if given.alignments:
            pairs = [(t.source, h) for t in translations for h in t.hypotheses]
            alignments = iter(translator.align(pairs, warn=False))
        ends = marks.fields(translator, translations) if marks else None
        return "".join(
            record(translation, i, given.nbest > 1, given.scores, alignments, ends)
            for i, translation in enumerate(translations, number - 1)
        )

    # Everything the output depends on; --resume refuses a job that differs in it.
    made_from = {
        **translator.provenance(),
        **options,
        "sample": given.sample,
        "shard": "/".join(map(str, shard)),
        "fields": [given.nbest > 1, given.scores, given.alignments],
        **(marks.options() if marks else {}),
        "t2t_jax": __version__,
    }
    job = made_from, given.resume, batch_size
    if given.pairs is not None:
        note = {"workdir": given.workdir, "input": given.input}
        write_pairs(translate, text, prefix, languages, changes, note, *job)
        return None
    run_job(translate_lines, text, path, *job)
    if marks:
        marks.report()
    return None


def _prompt(
    translator: Translator, options: dict, given: flags.FlagValues, task: Task
) -> None:
    for name in ("sample", "choose", "alignments", "scores", *CONFIDENCE):
        if given[name].present and given[name].value is not False:
            raise UserError(
                f"--{name} does not work at the prompt; use --input=FILE or a pipe "
                "(:help lists what the prompt can do)"
            )
    say(repr(translator))
    Prompt(translator, {**options, "warn": True}, task).run()


def search_of(given: flags.FlagValues) -> tuple[Callable, dict]:
    """Chooses beam search or sampling by the flags.

    Returns:
      A function (translator, lines, **more) -> translations, and its options.

    Raises:
      UserError: flags of beam search with --sample, or of sampling without it.
    """
    constraints = {"prefix": given.prefix, "must_not": given.must_not or ()}
    search = search_flags(given)
    if given.sample:
        beam = [name for name in SEARCH if name not in PENALTY]
        unused = [
            f"--{name}" for name in (*beam, "must", "choose") if given[name].present
        ]
        if unused:
            raise UserError(
                f"{', '.join(unused)}: an option of beam search, which --sample "
                "replaces; leave out either"
            )
        sampling = {name: given[name].value for name in SAMPLING}
        penalty = {name: search.get(name) for name in PENALTY}
        options = {"samples": given.nbest, **sampling, **penalty, **constraints}
        return lambda t, lines, **more: t.sample(lines, **options, **more), options
    unused = [f"--{name}" for name in SAMPLING if given[name].present]
    if unused:
        raise UserError(f"{', '.join(unused)}: an option of sampling; add --sample")
    search = {name: search.get(name) for name in SEARCH}
    options = {"nbest": given.nbest, **search, "must": given.must or (), **constraints}
    return lambda t, lines, **more: t.translate(lines, **options, **more), options
