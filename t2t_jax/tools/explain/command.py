"""Explains translations on a page: `python -m t2t_jax explain --workdir=DIR "A line."`

The page is one HTML file that loads nothing: each token with its probability and what
else was probable, attention, word alignment, the beam tree with each hypothesis's cause
of death, the layers' predictions, and what each token depends on. Verdicts are printed.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from t2t_jax.commands.flags import (
    chosen_task,
    define_constraint_flags,
    define_search_flags,
    define_task_flag,
    define_workdir_flags,
    read_config,
    search_flags,
    workdirs_of,
)
from t2t_jax.data.text_files import read_lines
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import printable, say
from t2t_jax.io.output_files import check_page
from t2t_jax.tools.explain import MOST
from t2t_jax.tools.pages.run_log import short_names
from t2t_jax.workdir import Workdir

if TYPE_CHECKING:
    from t2t_jax.tools.explain.explanation import Explanation

WORD = "SENTENCE"  # the argument that is not a flag
LARGE = 20e6  # bytes of a page that browsers are slow with


def define_flags():
    define_workdir_flags("Two, separated by a comma, are shown side by side.")
    define_task_flag()
    define_search_flags(leave_out=("groups", "diversity"))  # the tree is of one beam
    define_constraint_flags()
    string = flags.DEFINE_string
    string(
        "output",
        None,
        "The page, an .html file. One that is there already is kept as NAME.1.html.",
        required=True,
    )
    string("input", None, "File of sentences, one a line, in place of SENTENCE.")
    string(
        "target",
        None,
        "A translation of SENTENCE to compare with: where the search lost it, and why "
        "the model said something else.",
    )
    string("targets", None, "File of such translations, one for each line of --input.")
    flags.DEFINE_integer("nbest", 1, "Hypotheses that the search looks for.")
    flags.DEFINE_integer(
        "alternatives",
        MOST,
        "The most tokens of a translation after which the page shows what the search "
        "would have said instead; each is a search of its own.",
    )
    string("title", None, "Title of the page; by default the first sentence.")


def main(argv):
    args = flags.FLAGS
    output = Path(args.output).expanduser()
    check_page("output", output)
    lines, targets = _lines(argv, args), None
    if args.target is not None:
        targets = [args.target]
    elif args.targets is not None:
        targets = _read(args.targets, "targets")
    places = workdirs_of(args)
    places = [places] if isinstance(places, str) else places
    if len(places) > 2:
        raise UserError(
            f"--workdir names {len(places)} workdirs; want one, or two to show side "
            "by side"
        )
    read_config(args)  # mistakes are reported before JAX is imported
    from t2t_jax.tools.explain.explanation import Explanation

    explained = [
        _explain(place, name, lines, targets, args)
        for place, name in zip(places, _distinct_names(places), strict=True)
    ]
    explanation = functools.reduce(Explanation.beside, explained)
    explanation.save(output, args.title)
    print(printable(explanation.verdicts()))
    size = output.stat().st_size
    count = f"{len(lines)} sentence{'s' * (len(lines) > 1)}"
    say(f"{output}: {count}, {size / 1e3:,.0f} kB")
    if size > LARGE:
        say("the page is large; browsers may be slow with it: explain fewer lines")


def _lines(argv: list[str], args: flags.FlagValues) -> list[str]:
    """The sentences to explain: the argument, or the lines of --input."""
    if (len(argv) > 1) == (args.input is not None):
        raise UserError("want either a sentence in quotes or --input=FILE, one of them")
    if args.target is not None and args.input is not None:
        raise UserError("--target goes with a single sentence; want --targets=FILE")
    if args.targets is not None and args.input is None:
        raise UserError("--targets goes with --input")
    if args.input is None:
        return [argv[1]]
    return _read(args.input, "input")


def _read(name: str, flag: str) -> list[str]:
    """The lines of a text file; an empty one stays, as its place counts."""
    try:
        lines = [*read_lines(Path(name).expanduser())]
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"--{flag}={name}: there is no such file") from None
    if lines in ([], [""]):
        raise UserError(f"--{flag}={name} is empty; want one sentence a line")
    return lines


def _distinct_names(places: list[str]) -> list[str]:
    """The shortest names that tell workdirs apart; numbered if one is named twice."""
    names = short_names(places)
    if len({*names}) == len(names):
        return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def _explain(
    place: str,
    name: str,
    lines: list[str],
    targets: list[str] | None,
    args: flags.FlagValues,
) -> "Explanation":
    """Explains the lines with the model of one workdir."""
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.tools.explain.explain import explain

    translator = Translator.load(place, args.checkpoint, args.dtype)
    task, translator = chosen_task(translator, args)
    task.check_sources(lines)
    if (groups := translator.config.decode.groups) > 1:
        say(f"{place} has a beam of {groups} groups; the page shows the plain beam")
        translator = translator.with_options(groups=1)
    options = {"no_repeat_ngram": 0, "repetition_penalty": 1.0}
    if any(getattr(translator.config.decode, n) != x for n, x in options.items()):
        say(f"{place} avoids repetitions; the page shows a search that allows them")
        translator = translator.with_options(**options)
    explanation = explain(
        translator,
        lines,
        targets,
        nbest=args.nbest,
        prefix=args.prefix,
        must=args.must or (),
        must_not=args.must_not or (),
        alternatives=args.alternatives,
        name=name,
        **search_flags(args),
    )
    return explanation.with_passport((*_scores(place), ("code", _code())))


def _scores(place: str) -> list[tuple[str, str]]:
    """The BLEU of the workdir's test sets."""
    from t2t_jax.evaluation.scores import stored_scores

    sets = sorted(stored_scores(Workdir.open(place)).items())
    return [
        (f"BLEU of {name}", f"{scores['bleu']:.2f}, {scores['signature']}")
        for name, scores in sets
        if "bleu" in scores and "signature" in scores
    ]


def _code() -> str:
    from t2t_jax.evaluation.provenance import code_version

    version = code_version()
    changes = " with uncommitted changes" * bool(version["uncommitted_changes"])
    commit = version["commit"]
    return f"commit {commit[:12]}{changes}" if commit else "not from a checkout"
