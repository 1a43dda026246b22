"""What wider beams find: `python -m benchmarks.beams --workdir=DIR --test=PREFIX`.

For each beam: BLEU, the mean score and log-probability of the best hypotheses, and two
counts of lines. Search errors: the model itself ranks the reference above what was
found. Lower: a narrower beam had found something of a higher score, which can be, as
what would have become the best may leave a wide beam as well as a narrow one.
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
    flags.DEFINE_list("beams", ["1", "4", "10"], "Widths, ascending.")
    flags.DEFINE_integer("lines", 0, "Only the first so many; 0 is all.")
    flags.DEFINE_integer("show", 3, "Lines to show whose score became lower.")


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
    forced = translator.score(
        pairs, alpha=given.alpha, penalty=given.penalty, warn=False
    )
    print(f"{len(pairs):,} lines of {corpus.place}")
    print("beam   BLEU   score  log_prob  search errors  lower  not ended  seconds")
    highest: list[tuple] = []  # for each line the best so far, and its beam
    for width in map(int, given.beams):
        translator.translate(
            sources[:64], beam=width, **options, warn=False
        )  # compiles
        began = time.monotonic()
        found = translator.translate(sources, beam=width, **options, warn=False)
        seconds = time.monotonic() - began
        errors = sum(
            t.score < r.score - 1e-4 for t, r in zip(found, forced, strict=True)
        )
        lower = [
            n for n, (t, _) in enumerate(highest) if found[n].score < t.score - 1e-4
        ]
        bleu = corpus_scores([t.text for t in found], references, data.target)["bleu"]
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
        highest = [
            max(pair, key=lambda pair: pair[0].score)
            for pair in zip(
                highest or [(t, width) for t in found],
                [(t, width) for t in found],
                strict=True,
            )
        ]


if __name__ == "__main__":
    run(main, define_flags)
