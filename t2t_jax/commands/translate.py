"""Translates lines: `python -m t2t_jax.translate --workdir=DIR < source > target`.

With the workdir of a classifier, it writes the label of each line instead; with that of
a masked language model, the line with each <mask> filled in.

At a terminal it is a prompt that answers sentence by sentence. With --output and
--resume, translating a large file can be stopped and continued.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from absl import flags

from t2t_jax import __version__
from t2t_jax.commands.flags import (
    ENSEMBLE,
    define_constraint_flags,
    define_search_flags,
    define_task_flag,
    define_workdir_flags,
    source_check,
    with_task,
    workdirs_of,
)
from t2t_jax.decoding.jobs import InputFile, parse_shard, record, run_job, shard_of
from t2t_jax.decoding.output_file import check_output
from t2t_jax.decoding.prompt import Prompt
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.translator import Translator
from t2t_jax.parallel import processes
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say

DISTRIBUTED = True
CHUNK = 4_096  # lines sorted and translated together, if --batch_size is not given
SAMPLING = ("temperature", "top_k", "top_p", "seed")
# Options of the search and of its outputs, which other models do not have.
OF_SEARCH = (
    *("beam", "alpha", "penalty", "stop", "prefix", "must", "must_not"),
    *("alignments", "sample", *SAMPLING),
)


def define_flags():
    define_workdir_flags(ENSEMBLE)
    define_task_flag()
    define_search_flags()
    define_constraint_flags()
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
    boolean("resume", False, "Continue a stopped job that was writing to --output.")
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
        "Print TRANSLATION ||| SCORE; of a classifier LABEL ||| PROBABILITY, of a "
        "masked language model LINE ||| PROBABILITY.",
    )
    boolean(
        "alignments",
        False,
        "Print TRANSLATION ||| ALIGNMENT: I-J for each word J of the translation, "
        "where I is the source word it attends to most; counted from 0 (Pharaoh "
        "format).",
    )
    boolean("sample", False, "Sample --nbest translations instead of searching.")
    flags.DEFINE_float(
        "temperature", 1.0, "Sampling: below 1 favours more probable translations."
    )
    integer("top_k", 0, "Sampling: only the K most probable pieces; 0 means all.")
    flags.DEFINE_float(
        "top_p", 1.0, "Sampling: only the most probable pieces, up to this probability."
    )
    integer("seed", 0, "Sampling: seed of the random numbers.")


def main(_):
    given = flags.FLAGS
    shard = parse_shard(given.shard) if given.shard is not None else (1, 1)
    for name, needed in (("shard", "input"), ("resume", "output")):
        if given[name].value and not given[needed].value:
            raise UserError(f"--{name} goes with --{needed}; name a file")
    translate, options = translation_of(given)
    path = text = None
    with processes.fail_together("opening the input and the output"):
        if processes.is_first() and given.output is not None:
            check_output(path := shard_of(Path(given.output), shard))
        if processes.is_first() and given.input is not None:
            text = InputFile(Path(given.input), shard)
    # Files are checked above, before loading, so that mistakes are reported at once.
    translator = Translator.load(workdirs_of(given), given.checkpoint, given.dtype)
    translator, check = with_task(translator, given), source_check(translator, given)
    piped = text or path or processes.distributed()
    typed = not piped and sys.stdin.isatty() and sys.stdout.isatty()
    batch_size = given.batch_size
    if other := OTHERS.get(translator.model.predicts):
        _refuse_search(given, other)
        translate, options = other.answers(given), {}
        batch_size = 1 if typed else batch_size  # answers each line as it is typed
    elif typed:
        return _prompt(translator, options, given, check)

    def translate_lines(lines: list[str], number: int) -> str:
        """Translates lines, the first with this number (from 1), to output text."""
        check(lines, number)
        translations = translate(translator, lines, first_line=number)
        alignments = None
        if given.alignments:
            pairs = [(t.source, h) for t in translations for h in t.hypotheses]
            alignments = iter(translator.align(pairs, warn=False))
        return "".join(
            record(translation, i, given.nbest > 1, given.scores, alignments)
            for i, translation in enumerate(translations, number - 1)
        )

    # Everything the output depends on; --resume refuses a job that differs in it.
    made_from = {
        **translator.provenance(),
        **options,
        "sample": given.sample,
        "shard": "/".join(map(str, shard)),
        "fields": [given.nbest > 1, given.scores, given.alignments],
        "t2t_jax": __version__,
    }
    run_job(translate_lines, text, path, made_from, given.resume, batch_size)
    return None


class Other(NamedTuple):
    """What this command does for a model that does not translate.

    Attributes:
      is_a: words for an error message about an option of translation.
      unused: the flags that it refuses.
      answers: the flags -> a function as `translation_of` returns.
    """

    is_a: str
    unused: tuple[str, ...]
    answers: Callable[[flags.FlagValues], Callable]


def _refuse_search(given: flags.FlagValues, other: Other) -> None:
    """Raises UserError for flags of a search."""
    if unused := [f"--{name}" for name in other.unused if given[name].present]:
        raise UserError(
            f"{', '.join(unused)}: an option of translation, and --workdir="
            f"{given.workdir} is {other.is_a}; leave it out"
        )


def _classification(given: flags.FlagValues) -> Callable:
    """Labels as hypotheses, the most probable first; the score is the probability."""

    def classify(
        translator: Translator, lines: list[str], first_line: int
    ) -> list[Translation]:
        found = translator.classify(lines, first_line=first_line)
        return [
            Translation(line, prediction.ranked()[: given.nbest])
            for line, prediction in zip(lines, found, strict=True)
        ]

    return classify


def _filling(_) -> Callable:
    """Filled lines as hypotheses; the score is the product of the probabilities."""

    def fill(
        translator: Translator, lines: list[str], first_line: int
    ) -> list[Translation]:
        found = translator.fill(lines, first_line=first_line)
        return [
            Translation(line, (filled.hypothesis(),))
            for line, filled in zip(lines, found, strict=True)
        ]

    return fill


# By what the model predicts.
OTHERS = {
    "label": Other(
        "a classifier, which chooses among its labels", OF_SEARCH, _classification
    ),
    "source": Other(
        "a masked language model, which fills in each <mask>",
        (*OF_SEARCH, "nbest"),
        _filling,
    ),
}


def _prompt(
    translator: Translator, options: dict, given: flags.FlagValues, check: Callable
) -> None:
    for name in ("sample", "alignments", "scores"):
        if given[name].value:
            raise UserError(
                f"--{name} does not work at the prompt; use --input=FILE or a pipe "
                "(:help lists what the prompt can do)"
            )
    say(repr(translator))
    Prompt(translator, {**options, "warn": True}, check).run()


def translation_of(given: flags.FlagValues) -> tuple[Callable, dict]:
    """Chooses beam search or sampling by the flags.

    Returns:
      A function (translator, lines, **more) -> translations, and its options.

    Raises:
      UserError: flags of beam search with --sample, or of sampling without it.
    """
    constraints = {"prefix": given.prefix, "must_not": given.must_not or ()}
    penalties = {"alpha": given.alpha, "penalty": given.penalty}
    if given.sample:
        unused = [f"--{name}" for name in ("beam", "stop", "must") if given[name].value]
        if unused:
            raise UserError(
                f"{', '.join(unused)}: an option of beam search, which --sample "
                "replaces; leave out either"
            )
        sampling = {name: given[name].value for name in SAMPLING}
        options = {"samples": given.nbest, **sampling, **penalties, **constraints}
        return lambda t, lines, **more: t.sample(lines, **options, **more), options
    unused = [f"--{name}" for name in SAMPLING if given[name].present]
    if unused:
        raise UserError(f"{', '.join(unused)}: an option of sampling; add --sample")
    search = {name: given[name].value for name in ("beam", "nbest", "stop")}
    options = {**search, "must": given.must or (), **penalties, **constraints}
    return lambda t, lines, **more: t.translate(lines, **options, **more), options
