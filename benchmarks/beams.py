"""Compares beam widths: `python -m benchmarks.beams --workdir=DIR --test=PREFIX`.

Prints for each width BLEU, the mean score and log-probability of the best hypotheses,
and two counts of lines. "Search errors": the model scores the reference higher than the
hypothesis. "Lower": a narrower beam has found a hypothesis with a higher score. That is
possible, since a prefix of the best hypothesis can drop out of a wide beam as well.
"""

import time

from absl import flags

from benchmarks import run
from t2t_jax.commands.flags import (
    define_search_flags,
    define_test_flag,
    define_workdir_flags,
    test_sets,
)
from t2t_jax.decoding.translator import Translator
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.terminal.messages import say


def define_flags():
    define_workdir_flags(several=True)
    define_search_flags()
    define_test_flag()
    flags.DEFINE_list("beams", ["1", "4", "10"], "Beam widths, ascending.")
    flags.DEFINE_integer("lines", 0, "Use only the first N lines; 0 means all.")
    flags.DEFINE_integer("show", 3, "Number of lines with a lower score to print.")


def main(_):
    given = flags.FLAGS
    translator = Translator.load(
        flags.workdirs_of(given), given.checkpoint, given.dtype
    )
    say(repr(translator))
    data = translator.config.data
    corpus = test_sets(given, data)[0]
    pairs = list(corpus.pairs())[: given.lines or None]
    sources, references = zip(*pairs, strict=True)
    options = {"alpha": given.alpha, "penalty": given.penalty, "stop": given.stop}
    scored_references = translator.score(
        pairs, alpha=given.alpha, penalty=given.penalty, warn=False
    )
    print(f"{len(pairs):,} lines of {corpus.place}")
    print("beam   BLEU   score  log_prob  search errors  lower  not ended  seconds")
    highest: list[tuple] = []  # for each line the best translation, and its beam
    for width in map(int, given.beams):
        translator.translate(
            sources[:64], beam=width, **options, warn=False
        )  # compiles
        began = time.monotonic()
        results = translator.translate(sources, beam=width, **options, warn=False)
        seconds = time.monotonic() - began
        # Scores that differ by less than 1e-4 count as equal: that is rounding.
        errors = sum(
            t.score < r.score - 1e-4
            for t, r in zip(results, scored_references, strict=True)
        )
        lower = [
            n for n, (t, _) in enumerate(highest) if results[n].score < t.score - 1e-4
        ]
        bleu = corpus_scores([t.text for t in results], references, data.target)["bleu"]
        count = len(results)
        print(
            f"{width:4} {bleu:6.2f} {sum(t.score for t in results) / count:7.4f} "
            f"{sum(t.log_prob for t in results) / count:9.4f} {errors:14} "
            f"{len(lower):6} {sum(not t.ended for t in results):10} {seconds:8.1f}"
        )
        for n in lower[: given.show]:
            before, narrow = highest[n]
            print(
                f"       line {n + 1}: {before.score:.4f} with beam {narrow}: {before}"
            )
            print(
                f"             {results[n].score:.4f} with beam {width}: {results[n]}"
            )
        highest = [
            max(pair, key=lambda pair: pair[0].score)
            for pair in zip(
                highest or [(t, width) for t in results],
                [(t, width) for t in results],
                strict=True,
            )
        ]


if __name__ == "__main__":
    run(main, define_flags)
