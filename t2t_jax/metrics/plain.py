"""BLEU, chrF and TER of plain text, as sacreBLEU defines them (Post 2018).

TER is slow on reordered text: 3,000 lines of news, half of them reversed, took most of
a minute. All other metrics together take seconds.

Importing sacreBLEU takes a third of a second, so it is imported on first use.
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
    """Computes BLEU and chrF of plain text; fast enough for use during training.

    Args:
      hypotheses: translations.
      references: one for each hypothesis.
      language: of hypotheses and references; if empty, a language with spaces between
        words.

    Returns:
      `bleu`, `signature`, `chrf`, `chrf_signature`.

    Raises:
      ValueError: the numbers of hypotheses and references differ.
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
    """Computes all scores of plain text, with one reference for each hypothesis.

    Returns:
      For every `NAME` of `sacrebleu_metrics`: the score; its `NAME_signature`, or
      `signature` for `bleu`; and for `bleu`, `chrf` and `ter` also `NAME_interval`
      (see `bootstrap.scored`).

    Raises:
      ValueError: the numbers of hypotheses and references differ.
    """
    check_lengths(hypotheses, references)
    scores = {}
    for name, metric in sacrebleu_metrics(language).items():
        interval = name in ("bleu", "chrf", "ter")
        scores |= scored(name, metric, hypotheses, references, interval)
    return scores


def sacrebleu_metrics(language: str) -> "dict[str, Metric]":
    """sacreBLEU's metrics for plain text of a language, by the name of their score.

    `bleu` is tokenised by 13a, `bleu_intl` by intl. Exceptions are Chinese, with
    sacreBLEU's own tokenizer, and Japanese and Korean, which are scored by characters:
    sacreBLEU's tokenizers for these need further packages, and a score must not depend
    on what is installed. The signature names the tokenizer.

    Add a metric here, and raise `SCORES_VERSION` in evaluation/scores.py.
    """
    import sacrebleu

    language = re.split(r"[-_.]", language.lower())[0]  # zh-CN, zh_TW -> zh
    tokenizer = {"zh": "zh", "ja": "char", "ko": "char"}.get(language, "13a")
    spaceless = tokenizer != "13a"
    metrics = {
        "bleu": sacrebleu.BLEU(tokenize=tokenizer),
        "bleu_lc": sacrebleu.BLEU(tokenize=tokenizer, lowercase=True),
        "bleu_intl": sacrebleu.BLEU(tokenize="intl"),
        "chrf": sacrebleu.CHRF(),
        "ter": sacrebleu.TER(normalized=spaceless, asian_support=spaceless),
    }
    return {name: with_plain_floats(metric) for name, metric in metrics.items()}
