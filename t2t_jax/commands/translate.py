"""Translates lines: `python -m t2t_jax.translate --workdir=DIR < source > target`.

At a terminal it answers sentence by sentence. With --output, translating a large file
can be stopped and continued.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from absl import flags

from t2t_jax import __version__
from t2t_jax.commands.flags import (
    define_search_flags,
    define_workdir_flags,
    workdirs_of,
)
from t2t_jax.decoding.jobs import (
    Input,
    check_output,
    parse_shard,
    record,
    run_job,
    shard_of,
)
from t2t_jax.decoding.prompt import Prompt
from t2t_jax.decoding.translator import Translator
from t2t_jax.parallel import processes
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say

DISTRIBUTED = True
CHUNK = 4_096  # lines sorted and translated together, if --batch_size is not given
SAMPLING = ("temperature", "top_k", "top_p", "seed")


def define_flags():
    define_workdir_flags(several=True)
    define_search_flags()
    integer, string, boolean = (
        flags.DEFINE_integer,
        flags.DEFINE_string,
        flags.DEFINE_boolean,
    )
    string("input", None, "A file to translate, plain or .gz; standard input if none.")
    string("output", None, "A file to write when all is done; standard output if none.")
    boolean("resume", False, "Continue what a stopped job began to write to --output.")
    string("shard", None, "I/N: the I-th of N parts of --input, for as many machines.")
    integer(
        "batch_size",
        CHUNK,
        "Lines that are read, sorted by length and translated together. With 1 each is "
        "written as soon as it was read. Translations do not depend on it.",
        lower_bound=1,
    )
    integer("nbest", 1, "More than 1 prints NUMBER ||| TRANSLATION ||| SCORE for each.")
    boolean("scores", False, "Print TRANSLATION ||| SCORE.")
    boolean(
        "alignments",
        False,
        "Print TRANSLATION ||| ALIGNMENT, which source word each word looks at most: "
        "I-J, counted from 0 (Pharaoh format).",
    )
    string("prefix", None, "What every translation begins with.")
    flags.DEFINE_multi_string(
        "must", None, "A word or phrase that translations hold; may be repeated."
    )
    flags.DEFINE_multi_string(
        "must_not", None, "A word or phrase that they do not hold; may be repeated."
    )
    boolean("sample", False, "Draw translations at random (--nbest of them).")
    flags.DEFINE_float("temperature", 1.0, "Of samples: below 1, likelier ones.")
    integer("top_k", 0, "Of samples: only the K most probable pieces; 0 is all.")
    flags.DEFINE_float("top_p", 1.0, "Of samples: only pieces of this probability.")
    integer("seed", 0, "Of samples: another one, other samples.")


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
            text = Input(Path(given.input), shard)
    translator = Translator.load(workdirs_of(given), given.checkpoint, given.dtype)
    piped = text or path or processes.distributed()
    if not piped and sys.stdin.isatty() and sys.stdout.isatty():
        return _prompt(translator, options, given)

    def translate_lines(lines: list[str], number: int) -> str:
        """The output for some lines, of which the first has a number."""
        found = translate(translator, lines, first_line=number)
        alignments = None
        if given.alignments:
            pairs = [(t.source, h) for t in found for h in t.hypotheses]
            alignments = iter(translator.align(pairs, warn=False))
        return "".join(
            record(translation, i, given.nbest > 1, given.scores, alignments)
            for i, translation in enumerate(found, number - 1)
        )

    made_from = {
        **translator.made_from(),
        **options,
        "sample": given.sample,
        "shard": "/".join(map(str, shard)),
        "fields": [given.nbest > 1, given.scores, given.alignments],
        "t2t_jax": __version__,
    }
    run_job(translate_lines, text, path, made_from, given.resume, given.batch_size)
    return None


def _prompt(translator: Translator, options: dict, given: flags.FlagValues) -> None:
    for name in ("sample", "alignments", "scores"):
        if given[name].value:
            raise UserError(f"--{name} needs an input that is not typed; see :help")
    say(repr(translator))
    Prompt(translator, {**options, "warn": True}).run()


def translation_of(given: flags.FlagValues) -> tuple[Callable, dict]:
    """The call that the flags ask for, and its options."""
    constraints = {"prefix": given.prefix, "must_not": given.must_not or ()}
    penalties = {"alpha": given.alpha, "penalty": given.penalty}
    if given.sample:
        unused = [f"--{name}" for name in ("beam", "stop", "must") if given[name].value]
        if unused:
            raise UserError(
                f"{', '.join(unused)}: an option of beam search, which --sample "
                "replaces; leave out one of them"
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
