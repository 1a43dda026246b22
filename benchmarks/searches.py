"""Compares searches of one model: widths of the beam, and diverse beam search.

    python -m benchmarks.searches --workdir=DIR --test=PREFIX --searches=1,4,10
    python -m benchmarks.searches --workdir=DIR --test=PREFIX --searches=8,8:2:0.5,8:4:2

A search is BEAM, or BEAM:GROUPS:DIVERSITY. Several workdirs are an ensemble. Prints a
Markdown table:

BLEU, score, log_prob: BLEU, mean score and mean log-probability of the best hypotheses.
search errors: lines whose reference has a higher score than the best hypothesis.
lower: lines for which an earlier search of the list found a hypothesis with a higher
    score. That is possible, since a prefix of the best hypothesis can drop out of a
    wide beam as well.
not ended: lines without an end of the sentence.
time: of translating all lines, without compilation, relative to the first search; the
    searches take turns, --rounds times, and medians count.

With --diversity each search returns as many translations of a line as its beam is wide,
and the table also has (Vijayakumar et al. 2018 measure the same in their Table 1):

oracle chrF: of each line the translation with the highest chrF against its reference;
    the mean of these. It shows what a better choice among n could gain.
distinct-N: different N-grams of words divided by all N-grams, within a line's n
    translations; the mean over lines. Higher is more diverse.
self-BLEU: BLEU of each translation with the others of its line as references, over all
    lines. Lower is more diverse; 100 if all are equal.
different: the mean number of different texts among the n.
"""

import time
from collections.abc import Sequence
from functools import partial
from statistics import mean
from typing import NamedTuple

from absl import flags

from benchmarks import measuring, run
from t2t_jax.commands.flags import (
    ENSEMBLE,
    define_test_flag,
    define_workdir_flags,
    workdirs_of,
)
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.metrics.plain import corpus_scores, sacrebleu_metrics


class Search(NamedTuple):
    """A beam's width, its groups and the penalty of what other groups have."""

    beam: int
    groups: int = 1
    diversity: float | None = None

    def __str__(self) -> str:
        if self.groups == 1:
            return str(self.beam)
        return f"{self.beam}:{self.groups}:{self.diversity:g}"


def parsed(text: str) -> Search:
    """Parses BEAM or BEAM:GROUPS:DIVERSITY."""
    try:
        beam, *group_fields = text.split(":")
        groups, diversity = group_fields or ("1", None)
        return Search(int(beam), int(groups), diversity and float(diversity))
    except ValueError:
        raise UserError(
            f"--searches has {text!r}; want BEAM or BEAM:GROUPS:DIVERSITY, such as 4 "
            "or 8:4:0.5"
        ) from None


def translated(
    translator: Translator, sources: Sequence[str], search: Search, diverse: bool
) -> list[Translation]:
    """Translates all sources, with a search's n-best lists if they are compared."""
    nbest = search.beam if diverse else 1
    return translator.translate(sources, **search._asdict(), nbest=nbest, warn=False)


def seconds(*arguments) -> float:
    """Seconds that `translated` takes."""
    began = time.monotonic()
    translated(*arguments)
    return time.monotonic() - began


def columns(
    translations: Sequence[Translation],
    references: Sequence[str],
    scores_of_references: Sequence[float],
    highest: Sequence[float],
    language: str,
) -> dict[str, float]:
    """The columns that need only the best hypotheses.

    Args:
      translations: of the sources.
      references: their references.
      scores_of_references: the model's.
      highest: the best score of each line in the searches before.
      language: of the references.
    """
    # Scores that differ by less than 1e-4 count as equal: that is rounding.
    pairs = zip(translations, scores_of_references, highest, strict=True)
    below = [(t.score < r - 1e-4, t.score < h - 1e-4) for t, r, h in pairs]
    texts = [t.text for t in translations]
    errors, lower = map(sum, zip(*below, strict=True))
    return {
        "BLEU": corpus_scores(texts, references, language)["bleu"],
        "score": mean(t.score for t in translations),
        "log_prob": mean(t.log_prob for t in translations),
        "search errors": errors,
        "lower": lower,
        "not ended": sum(not t.ended for t in translations),
    }


def diversity(
    lists: Sequence[Sequence[str]], references: Sequence[str], language: str
) -> dict[str, float]:
    """The columns of n-best lists."""
    chrf = sacrebleu_metrics(language)["chrf"].sentence_score
    oracle = [
        max(chrf(text, [reference]).score for text in dict.fromkeys(texts))
        for texts, reference in zip(lists, references, strict=True)
    ]
    return {
        "oracle chrF": mean(oracle),
        "distinct-1": distinct(lists, 1),
        "distinct-2": distinct(lists, 2),
        "self-BLEU": self_bleu(lists, language),
        "different": mean(len({*texts}) for texts in lists),
    }


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
    return mean(shares) if shares else 0.0


def self_bleu(lists: Sequence[Sequence[str]], language: str) -> float:
    """Returns corpus BLEU of each text with the others of its list as references.

    Lists of one text are left out; 0 if all are.
    """
    texts, references = [], []
    for list_texts in lists:
        for place, text in enumerate(list_texts if len(list_texts) > 1 else ()):
            texts.append(text)
            references.append([*list_texts[:place], *list_texts[place + 1 :]])
    if not texts:
        return 0.0
    # sacreBLEU wants one list for each reference; None where a text has fewer.
    longest = max(map(len, references))
    streams = [
        [o[n] if n < len(o) else None for o in references] for n in range(longest)
    ]
    return sacrebleu_metrics(language)["bleu"].corpus_score(texts, streams).score


def define_flags():
    define_workdir_flags(ENSEMBLE)
    define_test_flag()
    measuring.define_flags(rounds=3)
    flags.DEFINE_list("searches", ["1", "4", "10"], "BEAM or BEAM:GROUPS:DIVERSITY.")
    flags.DEFINE_boolean("diversity", False, "Also compare the n-best lists.")
    flags.DEFINE_integer("lines", 0, "Use only the first N lines; 0 means all.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    searches = [parsed(text) for text in args.searches]
    if args.diversity and min(search.beam for search in searches) < 2:
        raise UserError("--diversity compares lists; want beams of at least 2")
    translator = Translator.load(workdirs_of(args), args.checkpoint, args.dtype)
    say(repr(translator))
    corpus, pairs = measuring.test_pairs(args, translator.config)
    sources, references = zip(*pairs, strict=True)
    print(f"{len(pairs):,} lines of {corpus.spec}\n")
    reference_scores = [r.score for r in translator.score(pairs, warn=False)]
    highest = [float("-inf")] * len(pairs)
    rows = []
    for search in searches:
        # This translation also compiles the programs that are timed later.
        translations = translated(translator, sources, search, args.diversity)
        row = columns(
            translations, references, reference_scores, highest, corpus.target
        )
        highest = [max(h, t.score) for h, t in zip(highest, translations, strict=True)]
        if args.diversity:
            lists = [[h.text for h in t.hypotheses] for t in translations]
            row |= diversity(lists, references, corpus.target)
        rows.append({"search": str(search), **row})
    # In turns, so that other work on the machine slows all of them down.
    contenders = {
        str(s): partial(seconds, translator, sources, s, args.diversity)
        for s in searches
    }
    medians = measuring.alternate(contenders, args.rounds)
    first_time = medians[str(searches[0])]
    rows = [row | {"time": medians[row["search"]] / first_time} for row in rows]
    measuring.publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags)
