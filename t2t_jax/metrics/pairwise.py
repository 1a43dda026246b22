"""Similarity of sentences, of all pairs at once: `UTILITIES`.

Each function computes sacreBLEU's score of every hypothesis against every reference,
with one matrix product for each order of n-grams in place of a loop over pairs.

Shape suffixes: n texts, h hypotheses, r references, o orders, f features.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.metrics.plain import sacrebleu_metrics

CHRF_ORDERS, CHRF_BETA = 6, 2  # sacreBLEU's defaults
BLEU_ORDERS = 4


class Matches(NamedTuple):
    """N-grams of texts, and those that two texts share; all counts are whole numbers.

    Attributes:
      count_no: float64, the n-grams of each text and order.
      match_onn: float64, sum over n-grams of the smaller of two texts' counts.
    """

    count_no: np.ndarray
    match_onn: np.ndarray


def ngram_matches(texts: Sequence[Sequence[str]], orders: int) -> Matches:
    """Counts the n-grams, of orders 1 to `orders`, that each two texts share.

    Args:
      texts: each a sequence of tokens, which may be characters.
    """
    lengths = np.array([len(text) for text in texts], np.int64)
    text_of = np.repeat(np.arange(len(texts)), lengths)  # of each token
    numbers: dict[str, int] = {}
    token = np.array(
        [numbers.setdefault(token, len(numbers)) for text in texts for token in text],
        np.int64,
    )
    # Tokens that follow within the text; an n-gram begins where at least n - 1 do.
    rest = np.concatenate([np.arange(n)[::-1] for n in lengths] or [token])
    start = np.arange(len(token))
    ngram = token
    match_onn = np.zeros((orders, len(texts), len(texts)))
    for order in range(orders):
        if order:
            kept = rest[start] >= order
            start, ngram = start[kept], ngram[kept]
            # An n-gram is the one before and its last token, numbered densely again,
            # so that numbers stay small whatever the order.
            pair = ngram * len(numbers) + token[start + order]
            ngram = np.unique(pair, return_inverse=True)[1].reshape(-1)
        if not len(ngram):
            break
        match_onn[order] = _shared(text_of[start], ngram, len(texts))
    count_no = np.maximum(lengths[:, None] - np.arange(orders), 0)
    return Matches(count_no.astype(np.float64), match_onn)


def _shared(text_of: np.ndarray, ngram: np.ndarray, texts: int) -> np.ndarray:
    """Sums the smaller count of each n-gram over all pairs of texts, float64 [n, n]."""
    ngram, text_of = np.divmod(np.sort(ngram * texts + text_of), texts)
    place = np.arange(len(ngram))
    new_ngram = np.diff(ngram, prepend=-1) > 0
    new_text = new_ngram | (np.diff(text_of, prepend=-1) != 0)
    # The k-th occurrence of an n-gram in a text is a feature of its own. A text has it
    # or not, so the smaller of two counts is a product of zeros and ones.
    occurrence = place - np.maximum.accumulate(np.where(new_text, place, 0))
    features_of_ngram = 1 + np.maximum.reduceat(occurrence, np.flatnonzero(new_ngram))
    end_of_ngram = np.cumsum(features_of_ngram)
    feature = (end_of_ngram - features_of_ngram)[np.cumsum(new_ngram) - 1] + occurrence
    # Whole numbers below 2^24: float32 is exact, in whatever order they are added.
    has_nf = np.zeros((texts, end_of_ngram[-1]), np.float32)
    has_nf[text_of, feature] = 1
    return (has_nf @ has_nf.T).astype(np.float64)


def _of_unique(score: Callable) -> Callable:
    """Computes a function of texts once for each different text.

    Equal texts get equal rows and columns, to the bit.
    """

    @functools.wraps(score)
    def of_pairs(
        hypotheses: Sequence[str], references: Sequence[str], language: str = ""
    ) -> np.ndarray:
        texts = [*dict.fromkeys([*hypotheses, *references])]
        if not (hypotheses and references):
            return np.zeros((len(hypotheses), len(references)))
        row = {text: n for n, text in enumerate(texts)}
        score_nn = score(texts, language)
        return score_nn[
            np.ix_([row[h] for h in hypotheses], [row[r] for r in references])
        ]

    return of_pairs


@_of_unique
def chrf(texts: Sequence[str], language: str = "") -> np.ndarray:
    """Computes sacreBLEU's sentence chrF2 (Popovic 2015), 0 to 100.

    Args:
      hypotheses, references: texts.
      language: has no influence: words do not matter.

    Returns:
      float64 [h, r].
    """
    spaceless = ["".join(text.split()) for text in texts]
    count_no, match_onn = ngram_matches(spaceless, CHRF_ORDERS)
    # Orders that a text is too short for do not count.
    both_onn = (count_no.T[:, :, None] > 0) & (count_no.T[:, None, :] > 0)
    most_no = np.maximum(count_no, 1).T
    orders_nn = np.maximum(both_onn.sum(0), 1)
    precision_nn = (match_onn / most_no[:, :, None]).sum(0) / orders_nn
    recall_nn = (match_onn / most_no[:, None, :]).sum(0) / orders_nn
    factor = CHRF_BETA**2
    denominator_nn = factor * precision_nn + recall_nn
    numerator_nn = (1 + factor) * precision_nn * recall_nn
    return 100 * numerator_nn / np.where(denominator_nn > 0, denominator_nn, 1)


@_of_unique
def bleu(texts: Sequence[str], language: str = "") -> np.ndarray:
    """Computes sacreBLEU's sentence BLEU, 0 to 100.

    Orders without a match are smoothed (`exp`; Chen and Cherry 2014, method 3), those
    that the hypothesis is too short for do not count (`effective_order`).

    Args:
      hypotheses, references: texts.
      language: of the texts, which chooses the tokenizer as for the `bleu` of a test
        set (`plain.sacrebleu_metrics`).

    Returns:
      float64 [h, r].
    """
    tokenize = tokenizer(language)
    words = [tokenize(text.rstrip()).split() for text in texts]
    count_no, match_onn = ngram_matches(words, BLEU_ORDERS)
    total_on1 = count_no.T[:, :, None]
    counts_onn = np.broadcast_to(total_on1 > 0, match_onn.shape)
    missed_onn = counts_onn & (match_onn == 0)
    # The k-th order without a match counts as 1 / 2^k matches.
    smoothed_onn = 0.5 ** np.cumsum(missed_onn, axis=0)
    matched_onn = np.where(missed_onn, smoothed_onn, np.maximum(match_onn, 1))
    logarithm_onn = np.log(100 * matched_onn / np.maximum(total_on1, 1))
    orders_nn = np.maximum(counts_onn.sum(0), 1)
    mean_nn = np.where(counts_onn, logarithm_onn, 0).sum(0) / orders_nn
    length_n1 = np.maximum(count_no[:, :1], 1)
    brevity_nn = np.minimum(1 - count_no[:, 0] / length_n1, 0)
    # Without a single match the score is 0, and not what smoothing makes of it.
    return np.where(match_onn.any(0), np.exp(mean_nn + brevity_nn), 0.0)


@functools.lru_cache(8)
def tokenizer(language: str) -> Callable[[str], str]:
    """Returns BLEU's tokenizer of a language: words of text, joined by spaces."""
    return sacrebleu_metrics(language)["bleu"].tokenizer


# A utility is a function (hypotheses, references, language) -> float64 [h, r], higher
# for texts that are more alike, and a line here.
UTILITIES = {"chrf": chrf, "bleu": bleu}
