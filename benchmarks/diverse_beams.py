"""Compares diverse beam search with the plain beam of the same width.

    python -m benchmarks.diverse_beams --workdir=DIR --test=PREFIX
    python -m benchmarks.diverse_beams --workdir=DIR --test=PREFIX --beam=4 \\
        --searches=2:0.5,4:2

Each search returns as many translations of a line as its beam is wide. A search is
GROUPS:DIVERSITY; 1 is the plain beam. Prints a Markdown table (Vijayakumar et al. 2018
measure the same in their Table 1):

1-best BLEU: of the translations that the model prefers.
oracle chrF: of each line the translation with the highest chrF against its reference;
    the mean of these. It shows what a better choice among n could gain.
distinct-N: different N-grams of words divided by all N-grams, within a line's n
    translations; the mean over lines. Higher is more diverse.
self-BLEU: BLEU of each translation with the others of its line as references, over all
    lines. Lower is more diverse; 100 if all are equal.
different: the mean number of different texts among the n.
time: of translating all lines, without compilation, relative to the plain beam; the
    searches take turns, --rounds times, and medians count.
"""

import time
from collections.abc import Sequence
from functools import partial

from absl import flags

from benchmarks import run
from benchmarks.measuring import alternate, test_pairs
from t2t_jax.commands.flags import (
    ENSEMBLE,
    define_test_flag,
    define_workdir_flags,
    workdirs_of,
)
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.io.tables import markdown_table
from t2t_jax.metrics.plain import corpus_scores, sacrebleu_metrics

PLAIN = (1, None)
HEADS = (
    "groups",
    "diversity",
    "1-best BLEU",
    "oracle chrF",
    "distinct-1",
    "distinct-2",
    "self-BLEU",
    "different",
    "time",
)


def define_flags():
    define_workdir_flags(ENSEMBLE)
    define_test_flag()
    flags.DEFINE_integer("beam", 8, "Beam width, and the number of translations.")
    flags.DEFINE_list(
        "searches",
        ["2:0.5", "4:0.5", "4:1", "4:2", "8:1"],
        "GROUPS:DIVERSITY of each search; the plain beam is always measured first.",
    )
    flags.DEFINE_integer(
        "rounds", 3, "Times are medians of so many turns.", lower_bound=1
    )
    flags.DEFINE_integer("lines", 0, "Use only the first N lines; 0 means all.")


def main(_):
    given = flags.FLAGS
    if given.beam < 2:
        raise UserError(
            f"--beam={given.beam}; want at least 2, for something to differ"
        )
    searches = parsed_searches(given.searches)
    translator = Translator.load(workdirs_of(given), given.checkpoint, given.dtype)
    say(repr(translator))
    corpus, pairs = test_pairs(given, translator.config)
    references = [target for _, target in pairs]
    print(
        f"{len(pairs):,} lines of {corpus.place}, {given.beam} translations of each\n"
    )
    options = [
        {"groups": groups, "diversity": diversity, "nbest": given.beam}
        for groups, diversity in searches
    ]
    # The first translation of each also compiles its programs.
    found = [translated(translator, pairs, given.beam, each) for each in options]
    # In turns, so that other work on the machine slows all of them down.
    contenders = {
        str(n): partial(seconds, translator, pairs, given.beam, each)
        for n, each in enumerate(options)
    }
    medians = [*alternate(contenders, given.rounds).values()]
    rows = []
    for (groups, diversity), lists, median in zip(
        searches, found, medians, strict=True
    ):
        rows.append(
            (
                str(groups),
                "" if diversity is None else f"{diversity:g}",
                *measured(lists, references, corpus.target),
                f"{median / medians[0]:.2f}",
            )
        )
    print("\n".join(markdown_table(HEADS, rows, left=())))


def translated(
    translator: Translator, pairs: Sequence[tuple[str, str]], beam: int, options: dict
) -> list[list[str]]:
    """Returns the translations of each source, best first."""
    sources = [source for source, _ in pairs]
    found = translator.translate(sources, beam=beam, **options, warn=False)
    return [[h.text for h in translation.hypotheses] for translation in found]


def seconds(*given) -> float:
    """Returns the seconds that `translated` takes."""
    began = time.monotonic()
    translated(*given)
    return time.monotonic() - began


def parsed_searches(written: Sequence[str]) -> list[tuple[int, float | None]]:
    """Returns the groups and the diversity of each search, the plain beam first."""
    searches = [PLAIN]
    for each in written:
        groups, _, diversity = each.partition(":")
        try:
            search = int(groups), float(diversity) if diversity else None
        except ValueError:
            raise UserError(
                f"--searches has {each!r}; want GROUPS:DIVERSITY, such as 4:0.5"
            ) from None
        if search not in searches:
            searches.append(search)
    return searches


def measured(
    lists: Sequence[Sequence[str]], references: Sequence[str], language: str
) -> list[str]:
    """Computes the columns between diversity and time, as text."""
    best = [texts[0] for texts in lists]
    metrics = sacrebleu_metrics(language)

    def chrf(text: str, reference: str) -> float:
        return metrics["chrf"].sentence_score(text, [reference]).score

    oracle = [
        max(chrf(text, reference) for text in dict.fromkeys(texts))
        for texts, reference in zip(lists, references, strict=True)
    ]
    return [
        f"{corpus_scores(best, references, language)['bleu']:.2f}",
        f"{sum(oracle) / len(oracle):.2f}",
        f"{distinct(lists, 1):.3f}",
        f"{distinct(lists, 2):.3f}",
        f"{self_bleu(lists, language):.2f}",
        f"{sum(len({*texts}) for texts in lists) / len(lists):.2f}",
    ]


def distinct(lists: Sequence[Sequence[str]], n: int) -> float:
    """Returns different n-grams / all n-grams of each list, averaged over lists.

    Lists without an n-gram are left out; 0 if all are.
    """
    shares = []
    for texts in lists:
        words = [text.split() for text in texts]
        grams = [tuple(w[i : i + n]) for w in words for i in range(len(w) - n + 1)]
        if grams:
            shares.append(len({*grams}) / len(grams))
    return sum(shares) / len(shares) if shares else 0.0


def self_bleu(lists: Sequence[Sequence[str]], language: str) -> float:
    """Returns corpus BLEU of each text with the others of its list as references.

    Lists of one text are left out; 0 if all are.
    """
    texts, others = [], []
    for own in lists:
        for place, text in enumerate(own if len(own) > 1 else ()):
            texts.append(text)
            others.append([*own[:place], *own[place + 1 :]])
    if not texts:
        return 0.0
    # sacreBLEU wants one list for each reference; None where a text has fewer.
    most = max(map(len, others))
    streams = [[o[n] if n < len(o) else None for o in others] for n in range(most)]
    return sacrebleu_metrics(language)["bleu"].corpus_score(texts, streams).score


if __name__ == "__main__":
    run(main, define_flags)
