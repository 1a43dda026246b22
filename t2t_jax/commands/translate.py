"""Translates lines: `python -m t2t_jax.translate --workdir=DIR < source > target`.

At a terminal it answers sentence by sentence. With `--output`, a job of a large file
can be stopped and continued.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from absl import flags

from t2t_jax import __version__, command
from t2t_jax.data.corpus import decode_lines
from t2t_jax.decoding.jobs import (
    Input,
    Output,
    Printed,
    check_output,
    chunks,
    parse_shard,
    shard_of,
)
from t2t_jax.decoding.prompt import Prompt
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.translator import Translator
from t2t_jax.errors import UserError
from t2t_jax.parallel import hosts
from t2t_jax.screen import Progress, say

CHUNK = 4_096  # lines sorted and translated together, if --batch_size is not given
SEARCH = ("beam", "alpha", "penalty", "stop", "must")
SAMPLING = ("temperature", "top_k", "top_p", "seed")


def define_flags():
    command.define_workdir_flags(several=True)
    command.define_search_flags()
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
    for wanting, wanted in (("shard", "input"), ("resume", "output")):
        if given[wanting].value and not given[wanted].value:
            raise UserError(f"--{wanting} goes with --{wanted}; name a file")
    translate, options = translation_of(given)
    path = text = None
    with hosts.together("opening the input and the output"):
        if hosts.is_first() and given.output is not None:
            check_output(path := shard_of(Path(given.output), shard))
        if hosts.is_first() and given.input is not None:
            text = Input(Path(given.input), shard)
    translator = Translator.load(
        command.workdirs_of(given), given.checkpoint, given.dtype
    )
    typed = text is None and path is None and not hosts.several()
    if typed and sys.stdin.isatty() and sys.stdout.isatty():
        for name in ("sample", "alignments", "scores"):
            if given[name].value:
                raise UserError(f"--{name} is for lines that are not typed; see :help")
        say(repr(translator))
        return Prompt(translator, {**options, "warn": True}).run()
    first = text.first if text else 0

    def done(lines: list[str], before: int) -> str:
        """What is written for some lines, of which `before` come before."""
        found = translate(translator, lines, first_line=first + before + 1)
        alignments = None
        if given.alignments:
            pairs = [(t.source, h) for t in found for h in t.hypotheses]
            alignments = iter(translator.align(pairs, warn=False))
        return "".join(
            _record(translation, number, alignments, given)
            for number, translation in enumerate(found, first + before)
        )

    made_from = {
        **translator.made_from(),
        **options,
        "sample": given.sample,
        "shard": "/".join(map(str, shard)),
        "fields": [given.nbest > 1, given.scores, given.alignments],
        "t2t_jax": __version__,
    }
    total = text.count if text else None
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress("translating", "lines", total))
        output, lines = Printed(), iter(())  # of the first process; others have none
        with hosts.together("beginning the output"):
            if hosts.is_first():
                lines = text.lines() if text else _standard_input()
            if path:
                output = stack.enter_context(Output(path, made_from, given.resume))
                lines = output.rest_of(lines)
        progress.add(output.lines)

        def parts() -> Iterator[tuple[int, list[str]]]:
            for chunk in chunks(lines, given.batch_size):
                yield output.lines, chunk

        for before, chunk in hosts.all_of_first("lines", parts):
            translated = done(chunk, before)
            if hosts.is_first():
                output.add(chunk, translated)
            progress.add(len(chunk))
    if path:
        say(f"{output.lines:,} lines are translated: {path}")
    return None


def _standard_input() -> Iterator[str]:
    return decode_lines(sys.stdin.buffer, "standard input")


def translation_of(given: flags.FlagValues) -> tuple[Callable, dict]:
    """The call that the flags ask for, and its options."""
    wished = {"prefix": given.prefix, "must_not": given.must_not or ()}
    penalties = {"alpha": given.alpha, "penalty": given.penalty}
    if given.sample:
        unused = [f"--{name}" for name in ("beam", "stop", "must") if given[name].value]
        if unused:
            raise UserError(
                f"{', '.join(unused)}: for a search, which --sample takes the place "
                "of; leave out one"
            )
        sampling = {name: given[name].value for name in SAMPLING}
        options = {"samples": given.nbest, **sampling, **penalties, **wished}
        return lambda t, lines, **more: t.sample(lines, **options, **more), options
    unused = [f"--{name}" for name in SAMPLING if given[name].present]
    if unused:
        raise UserError(f"{', '.join(unused)}: for samples; add --sample")
    search = {name: given[name].value for name in ("beam", "nbest", "stop")}
    options = {**search, "must": given.must or (), **penalties, **wished}
    return lambda t, lines, **more: t.translate(lines, **options, **more), options


def _record(translation: Translation, number: int, alignments, given) -> str:
    """The lines that are written for a translation."""
    written = ""
    for hypothesis in translation.hypotheses:
        parts = [str(number)] if given.nbest > 1 else []
        parts.append(hypothesis.text)
        if alignments:
            parts.append(str(next(alignments)))
        if given.nbest > 1 or given.scores:
            parts.append(f"{hypothesis.score:.6f}")
        written += " ||| ".join(parts) + "\n"
    return written


if __name__ == "__main__":
    command.run(main, define_flags, several=True)
