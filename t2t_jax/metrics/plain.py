"""BLEU, chrF and TER of plain text, as sacreBLEU defines them (Post 2018).

TER is slow on reordered text: 3,000 lines of news, half of them reversed, took most of
a minute; all other metrics together take seconds.

sacreBLEU takes a third of a second to import, so it is imported when first used.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2t_jax.metrics.bootstrap import check_lengths, scored, with_plain_floats

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str = ""
) -> dict:
    """BLEU and chrF of plain text, one reference each; quick, for use in training.

    Args:
      hypotheses: translations.
      references: as many.
      language: of both; without, they are tokenised as languages with spaces are.

    Returns:
      `bleu`, `signature`, `chrf`, `chrf_signature`.

    Raises:
      ValueError: as many hypotheses as references are needed.
    """
    check_lengths(hypotheses, references)
    bleu, chrf = (sacrebleu_metrics(language)[name] for name in ("bleu", "chrf"))
    return {
        **scored("bleu", bleu, hypotheses, references),
        **scored("chrf", chrf, hypotheses, references),
    }


def plain_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict:
    """All scores of plain text, one reference each.

    Returns:
      For every name of `sacrebleu_metrics` the score, its signature (`NAME_signature`,
      for `bleu` `signature`), and for `bleu`, `chrf` and `ter` `NAME_interval`: see
      `bootstrap.scored`.

    Raises:
      ValueError: as many hypotheses as references are needed.
    """
    check_lengths(hypotheses, references)
    scores = {}
    for name, metric in sacrebleu_metrics(language).items():
        interval = name in ("bleu", "chrf", "ter")
        scores |= scored(name, metric, hypotheses, references, interval)
    return scores


def sacrebleu_metrics(language: str) -> "dict[str, Metric]":
    """sacreBLEU's metrics for plain text of a language, by the name of their score.

    `bleu` is tokenised by 13a, `bleu_intl` by intl. Chinese, Japanese and Korean write
    no spaces: `zh` has a tokenizer in sacreBLEU; for `ja` and `ko` it would need
    further packages, and a number that depends on what is installed is none, so they
    are scored by characters. The signature tells.
    """
    import sacrebleu

    language = re.split(r"[-_.]", language.lower())[0]
    tokenizer = {"zh": "zh", "ja": "char", "ko": "char"}.get(language, "13a")
    spaceless = tokenizer != "13a"
    made = {
        "bleu": sacrebleu.BLEU(tokenize=tokenizer),
        "bleu_lc": sacrebleu.BLEU(tokenize=tokenizer, lowercase=True),
        "bleu_intl": sacrebleu.BLEU(tokenize="intl"),
        "chrf": sacrebleu.CHRF(),
        "ter": sacrebleu.TER(normalized=spaceless, asian_support=spaceless),
    }
    return {name: with_plain_floats(metric) for name, metric in made.items()}
