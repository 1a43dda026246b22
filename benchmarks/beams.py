"""Compares beam widths: `python -m benchmarks.beams --workdir=DIR --test=PREFIX`.

Several workdirs, separated by commas, are an ensemble. With --groups=G every width is
divided into G groups (diverse beam search); a width must be a multiple of G.

Prints for each width BLEU, the mean score and log-probability of the best hypotheses,
and two counts of lines. "Search errors": the model scores the reference higher than the
hypothesis. "Lower": a narrower beam has found a hypothesis with a higher score. That is
possible, since a prefix of the best hypothesis can drop out of a wide beam as well.
"""

import time

from absl import flags

from benchmarks import run
from benchmarks.measuring import test_pairs
from t2t_jax.commands.flags import (
    ENSEMBLE,
    define_search_flags,
    define_test_flag,
    define_workdir_flags,
    workdirs_of,
)
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.metrics.plain import corpus_scores


def define_flags():
    define_workdir_flags(ENSEMBLE)
    define_search_flags()
    define_test_flag()
    flags.DEFINE_list("beams", ["1", "4", "10"], "Beam widths, ascending.")
    flags.DEFINE_integer("lines", 0, "Use only the first N lines; 0 means all.")
    flags.DEFINE_integer("show", 3, "Number of lines with a lower score to print.")


def main(_):
    given = flags.FLAGS
    if given.beam is not None:
        raise UserError("--beam: name the widths to compare by --beams=1,4,10")
    widths = [int(width) for width in given.beams if width.isdecimal()]
    if not widths or len(widths) < len(given.beams):
        raise UserError(f"--beams={given.beams}; want numbers, such as --beams=1,4,10")
    translator = Translator.load(workdirs_of(given), given.checkpoint, given.dtype)
    say(repr(translator))
    corpus, pairs = test_pairs(given, translator.config)
    options = {name: given[name].value for name in ("groups", "diversity", "stop")}
    penalty = {"alpha": given.alpha, "penalty": given.penalty}
    of_references = translator.score(pairs, **penalty, warn=False)
    print(f"{len(pairs):,} lines of {corpus.place}")
    print("beam   BLEU   score  log_prob  search errors  lower  not ended  seconds")
    highest: list[tuple] = []  # for each line the best translation, and its beam
    for width in widths:
        found, seconds = timed(
            translator, pairs, beam=width, **options, **penalty, warn=False
        )
        # Scores that differ by less than 1e-4 count as equal: that is rounding.
        errors = sum(
            t.score < r.score - 1e-4 for t, r in zip(found, of_references, strict=True)
        )
        lower = [
            n for n, (t, _) in enumerate(highest) if found[n].score < t.score - 1e-4
        ]
        texts, references = [t.text for t in found], [target for _, target in pairs]
        bleu = corpus_scores(texts, references, corpus.target)["bleu"]
        count = len(found)
        print(
            f"{width:4} {bleu:6.2f} {sum(t.score for t in found) / count:7.4f} "
            f"{sum(t.log_prob for t in found) / count:9.4f} {errors:14} "
            f"{len(lower):6} {sum(not t.ended for t in found):10} {seconds:8.1f}"
        )
        for n in lower[: given.show]:
            before, narrow = highest[n]
            print(
                f"       line {n + 1}: {before.score:.4f} with beam {narrow}: {before}"
            )
            print(f"             {found[n].score:.4f} with beam {width}: {found[n]}")
        new = [(t, width) for t in found]
        highest = [
            max(pair, key=lambda pair: pair[0].score)
            for pair in zip(highest or new, new, strict=True)
        ]


def timed(
    translator: Translator, pairs: list[tuple[str, str]], **options
) -> tuple[list[Translation], float]:
    """Translates the sources of pairs; returns also the seconds without compilation."""
    sources = [source for source, _ in pairs]
    translator.translate(sources, **options)  # compiles for all lengths of lines
    began = time.monotonic()
    found = translator.translate(sources, **options)
    return found, time.monotonic() - began


if __name__ == "__main__":
    run(main, define_flags)
