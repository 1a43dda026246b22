"""Scores of single sentences: how near one translation is to one reference."""

from collections.abc import Callable

from t2t_jax.metrics.plain import sacrebleu_metrics
from t2t_jax.terminal.errors import UserError, did_you_mean

SENTENCE_METRICS = ("chrf", "bleu")  # those that are higher for better translations


def sentence_metric(name: str, language: str) -> Callable[[str, str], float]:
    """Returns a function (translation, reference) -> score, from 0 to 100.

    BLEU is smoothed, and counts only the n-gram orders that the sentence is long enough
    for (sacreBLEU's `exp` and `effective_order`), or most sentences would score 0.

    Args:
      name: one of `SENTENCE_METRICS`.
      language: of both lines, as for `plain.sacrebleu_metrics`.

    Raises:
      UserError: no such metric.
    """
    if name not in SENTENCE_METRICS:
        raise UserError(
            f"{name!r} is not a metric of sentences"
            f"{did_you_mean(name, SENTENCE_METRICS)}"
        )
    metric = sacrebleu_metrics(language)[name]
    if name == "bleu":
        metric.effective_order = True
    return lambda line, reference: metric.sentence_score(line, [reference]).score
