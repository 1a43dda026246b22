"""Compares students with their teacher: quality, speed, size; a table in Markdown.

    python -m benchmarks.students --teacher=DIR --students=DIR,DIR --test=PREFIX

Each model translates the test set here and through CTranslate2, in float32 and int8
(`pip install ctranslate2`, or leave it out with --ctranslate2=). All search alike: by
the length penalty that CTranslate2 has, length^alpha, until no better result is
possible. Times are of text to text without loading; rates are medians of rounds in
turns, after one here that compiles. Megabytes are those of the weights here, float32,
and of all files of an export.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from absl import flags

from benchmarks import run
from t2t_jax.commands.flags import define_test_flag, test_sets
from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.io.tables import markdown_table
from t2t_jax.io.threads import core_count
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.parallel.machine import processor_name
from t2t_jax.tools.bridges.checks import peer_process
from t2t_jax.tools.bridges.exports import to_ctranslate2

HEADS = "model", "program", "MB", "BLEU", "chrF", "sentences/s", "times"
HERE = "t2t_jax"
PEER = "ctranslate2_peer"


class Contender(NamedTuple):
    """A model in one program.

    Attributes:
      model: its workdir.
      program: `t2t_jax`, or CTranslate2 and its type of weights.
      megabytes: of its weights.
      translate: lines -> their translations, and the seconds that these took.
    """

    model: str
    program: str
    megabytes: float
    translate: Callable[[Sequence[str]], tuple[list[str], float]]


class Result(NamedTuple):
    """What a contender reached; `rate` is in sentences a second."""

    model: str
    program: str
    megabytes: float
    bleu: float
    chrf: float
    rate: float


def here(name: str, translator: Translator) -> Contender:
    """A model in this program, on its devices."""

    def translate(lines: Sequence[str]) -> tuple[list[str], float]:
        began = time.perf_counter()
        found = translator.translate(lines, warn=False)
        return [t.text for t in found], time.perf_counter() - began

    megabytes = translator.model.count() * 4 / 1e6
    return Contender(name, HERE, megabytes, translate)


def in_ctranslate2(
    name: str, translator: Translator, weights: str, folder: Path
) -> Contender:
    """A model in CTranslate2 on the CPU, in a process of its own each time."""
    if missing := peer_process.missing_packages(PEER):
        raise UserError(
            f"{' and '.join(missing)} is not installed: pip install "
            f"{' '.join(missing)}, or leave CTranslate2 out with --ctranslate2="
        )
    folder.mkdir()
    job = to_ctranslate2.write(translator, folder, {"quantization": weights})
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    decode, vocabulary = translator.config.decode, translator.vocabulary

    def translate(lines: Sequence[str]) -> tuple[list[str], float]:
        sources = vocabulary.source.encode(lines, end=True)
        # One limit for all lines: with several, they would be several calls.
        most = max(longest_output(len(ids), decode) for ids in sources)
        limits = [most] * len(sources)
        search = {"beam": decode.beam, "alpha": decode.alpha, "limits": limits}
        text = {"lines": [*lines], "sources": sources}
        job_now = {**job, **search, **text, "threads": core_count()}
        found = peer_process.run(PEER, "beam", model=str(folder), **job_now)
        texts = found["texts"] or vocabulary.decode(found["tokens"])
        return texts, found["seconds"]

    return Contender(name, f"CTranslate2 {weights}", size, translate)


def measured(
    contenders: Sequence[Contender],
    lines: Sequence[str],
    references: Sequence[str],
    language: str,
    rounds: int,
) -> list[Result]:
    """Has the contenders translate in turns, `rounds` times each."""
    seconds: dict[int, list[float]] = {i: [] for i in range(len(contenders))}
    texts: dict[int, list[str]] = {}
    for number in range(1 + rounds):
        for i, contender in enumerate(contenders):
            if number or contender.program == HERE:  # which compiles in round 0
                texts[i], taken = contender.translate(lines)
                seconds[i] += [taken] if number else []
        say(f"round {number} of {rounds}")
    results = []
    for i, contender in enumerate(contenders):
        scores = corpus_scores(texts[i], references, language)
        rate = len(lines) / median(seconds[i])
        quality = scores["bleu"], scores["chrf"], rate
        results.append(Result(*contender[:3], *quality))
    return results


def table(results: Sequence[Result]) -> str:
    """Formats results in Markdown; `times` is the rate over that of the first model."""
    first = {r.program: r for r in results if r.model == results[0].model}
    rows = [
        [
            r.model,
            r.program,
            f"{r.megabytes:.1f}",
            f"{r.bleu:.2f}",
            f"{r.chrf:.2f}",
            f"{r.rate:.1f}",
            f"{r.rate / first[r.program].rate:.2f}",
        ]
        for r in results
    ]
    return "\n".join(markdown_table(HEADS, rows, left=(0, 1)))


def define_flags():
    flags.DEFINE_string("teacher", None, "Workdir of the teacher.", required=True)
    flags.DEFINE_list("students", [], "Workdirs of its students.")
    define_test_flag()
    flags.DEFINE_list("ctranslate2", ["float32", "int8"], "Weights in CTranslate2.")
    flags.DEFINE_integer("beam", None, "Beam width; by default the teacher's.")
    flags.DEFINE_float("alpha", 0.6, "Exponent of the length penalty, length^alpha.")
    flags.DEFINE_integer("lines", 0, "Use only the first N lines; 0 means all.")
    flags.DEFINE_integer("rounds", 3, "Measurements of each, of which medians count.")


def main(_):
    given = flags.FLAGS
    translators = {n: Translator.load(n) for n in (given.teacher, *given.students)}
    first = translators[given.teacher]
    (corpus, *more) = test_sets(given, first.config)
    if more:
        raise UserError(f"--test={given.test!r}; want one test set")
    lines, references = zip(*[*corpus.pairs()][: given.lines or None], strict=True)
    beam = given.beam or first.config.decode.beam
    search = {"beam": beam, "alpha": given.alpha, "penalty": "length", "stop": "best"}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders = []
        for number, (name, translator) in enumerate(translators.items()):
            translator = translator.with_options(**search)
            contenders.append(here(name, translator))
            contenders += [
                in_ctranslate2(name, translator, w, folder / f"{number}-{w}")
                for w in given.ctranslate2
                if w
            ]
        results = measured(contenders, lines, references, corpus.target, given.rounds)
    machine = f"{processor_name()}, {core_count()} cores"
    print(f"{len(lines):,} lines of {corpus.place}, beam {beam}; {machine}")
    print()
    print(table(results))


if __name__ == "__main__":
    run(main, define_flags)
