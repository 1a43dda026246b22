"""BLEU, chrF and TER of a set as `Measure`s: they follow from sums over its lines.

So differences of two systems have an interval (`measures.paired`), and the best of many
choices among hypotheses is found without scoring each by itself. The scores are those
of `plain.py`.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np

from t2t_jax.metrics.measures import Measure, Pair
from t2t_jax.metrics.plain import sacrebleu_metrics, with_missing

CHRF_ORDERS, CHRF_BETA = 6, 2  # sacreBLEU's defaults
BLEU_ORDERS = 4


# Columns of sacreBLEU's counts of a line, in the order in which scores use them.
_COLUMNS = {
    "bleu": [*range(2, 2 * BLEU_ORDERS + 2), 0, 1],
    "bleu_lc": [*range(2, 2 * BLEU_ORDERS + 2), 0, 1],
    "chrf": [*np.arange(3 * CHRF_ORDERS).reshape(-1, 3).T.flat],
    "ter": [0, 1],
}


def text_measures(
    language: str = "", further: Sequence[Sequence[str]] = ()
) -> dict[str, Measure]:
    """Returns `bleu`, `bleu_lc`, `chrf` and `ter` for text of a language.

    `further` are lists of references besides those of the pairs. sacreBLEU counts the
    edits of TER (Snover et al. 2006), which is slow.
    """

    def measure(name: str, description: str, score: Callable, higher: bool = True):
        counts = functools.partial(_counts, name, language, further)
        return Measure(description, counts, score, higher)

    return {
        "bleu": measure("bleu", "sacreBLEU of plain text", bleu_of),
        "bleu_lc": measure("bleu_lc", "sacreBLEU, lower-cased", bleu_of),
        "chrf": measure("chrf", "chrF2", chrf_of),
        "ter": measure("ter", "TER, less is better", ter_of, False),
    }


def _counts(
    name: str,
    language: str,
    further: Sequence,
    answers: Sequence[str],
    pairs: Sequence[Pair],
) -> np.ndarray:
    """sacreBLEU's own counts of each line, of which it makes the score of that name."""
    references = [pair[1] for _, pair in zip(answers, pairs, strict=True)]
    metric, columns = sacrebleu_metrics(language)[name], _COLUMNS[name]
    lists = with_missing([references, *further]) or [references]
    rows = metric._extract_corpus_statistics(answers, lists)
    return np.array(rows, np.float64).reshape(-1, len(columns))[:, columns]


def ter_of(sums: np.ndarray) -> np.ndarray:
    """Computes TER from sums [..., 2]; 100 for edits without a word of a reference."""
    edits, words = sums[..., 0], sums[..., 1]
    return 100 * np.where(words > 0, edits / np.maximum(words, 1), edits > 0)


def bleu_of(sums: np.ndarray, effective_order: bool = False) -> np.ndarray:
    """Computes BLEU from sums [..., 2 orders + 2]: matches, n-grams, both lengths.

    Orders without a match are smoothed (`exp`; Chen and Cherry 2014, method 3): the
    k-th of them counts as 1 / 2^k matches.

    Args:
      effective_order: leaves out orders that the answer is too short for, as sacreBLEU
        does for sentences; otherwise the score is then 0.
    """
    match, total = sums[..., :BLEU_ORDERS], sums[..., BLEU_ORDERS:-2]
    answer_length, reference_length = np.maximum(sums[..., -2], 1), sums[..., -1]
    counts = total > 0
    missed = counts & (match == 0)
    smoothed = 0.5 ** np.cumsum(missed, axis=-1)
    matched = np.where(missed, smoothed, np.maximum(match, 1))
    logarithm = np.log(100 * matched / np.maximum(total, 1))
    orders = np.maximum(counts.sum(-1), 1)
    mean = np.where(counts, logarithm, 0).sum(-1) / orders
    score = np.exp(mean + np.minimum(1 - reference_length / answer_length, 0))
    # Without any match nothing is smoothed.
    scored = match.any(-1) & (effective_order | counts.all(-1))
    return np.where(scored, score, 0.0)


def chrf_of(sums: np.ndarray) -> np.ndarray:
    """Computes chrF2 from sums [..., 3 orders]."""
    answer, reference, match = np.split(sums, 3, axis=-1)
    counts = (answer > 0) & (reference > 0)
    orders = np.maximum(counts.sum(-1), 1)
    precision = np.where(counts, match / np.maximum(answer, 1), 0).sum(-1) / orders
    recall = np.where(counts, match / np.maximum(reference, 1), 0).sum(-1) / orders
    factor = CHRF_BETA**2
    denominator = factor * precision + recall
    numerator = (1 + factor) * precision * recall
    return 100 * numerator / np.where(denominator > 0, denominator, 1)


def ngram_matches(
    texts: Sequence[Sequence[str]], orders: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts the n-grams, of orders 1 to `orders`, that each two texts share.

    Args:
      texts: each a sequence of tokens, which may be characters.

    Returns:
      The n-grams of the first text, those of the second, and those that both have: the
      sum over n-grams of the smaller count. All are whole numbers, float64 [n, n, o].
    """
    lengths = np.array([len(text) for text in texts], np.int64)
    text_of = np.repeat(np.arange(len(texts)), lengths)  # of each token
    numbers: dict[str, int] = {}
    token = np.array(
        [numbers.setdefault(token, len(numbers)) for text in texts for token in text],
        np.int64,
    )
    # Tokens that follow within the text; an n-gram begins where at least n - 1 do.
    following = np.concatenate([np.arange(n)[::-1] for n in lengths] or [token])
    start = np.arange(len(token))
    ngram = token
    match_nno = np.zeros((len(texts), len(texts), orders))
    for order in range(orders):
        if order:
            longer = following[start] >= order
            start, ngram = start[longer], ngram[longer]
            # An n-gram is the one before and its last token, numbered densely again,
            # so that numbers stay small whatever the order.
            pair = ngram * len(numbers) + token[start + order]
            ngram = np.unique(pair, return_inverse=True)[1].reshape(-1)
        if not len(ngram):
            break
        match_nno[..., order] = _shared(text_of[start], ngram, len(texts))
    count_no = np.maximum(lengths[:, None] - np.arange(orders), 0).astype(np.float64)
    ours_nno, theirs_nno = np.broadcast_arrays(count_no[:, None], count_no[None])
    return ours_nno, theirs_nno, match_nno


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


def _for_unique_texts(score: Callable) -> Callable:
    """Computes a function of texts once for each different text.

    Equal texts get equal rows and columns, to the bit.
    """

    @functools.wraps(score)
    def pair_scores(
        hypotheses: Sequence[str], references: Sequence[str], language: str = ""
    ) -> np.ndarray:
        if not (hypotheses and references):
            return np.zeros((len(hypotheses), len(references)))
        texts = dict.fromkeys([*hypotheses, *references])
        row = {text: n for n, text in enumerate(texts)}
        rows = ([row[text] for text in side] for side in (hypotheses, references))
        return score([*row], language)[np.ix_(*rows)]

    return pair_scores


@_for_unique_texts
def chrf(texts: Sequence[str], language: str = "") -> np.ndarray:
    """Computes sacreBLEU's sentence chrF2 (Popovic 2015), 0 to 100, float64 [h, r].

    The language has no influence: words do not matter.
    """
    spaceless = ["".join(text.split()) for text in texts]
    return chrf_of(np.concatenate(ngram_matches(spaceless, CHRF_ORDERS), -1))


@_for_unique_texts
def bleu(texts: Sequence[str], language: str = "") -> np.ndarray:
    """Computes sacreBLEU's sentence BLEU, 0 to 100, float64 [h, r].

    Orders that the hypothesis is too short for do not count (`bleu_of`). The language
    chooses the tokenizer as for the `bleu` of a test set (`plain.sacrebleu_metrics`).
    """
    tokenize = tokenizer(language)
    words = [tokenize(text.rstrip()).split() for text in texts]
    ours_nno, theirs_nno, match_nno = ngram_matches(words, BLEU_ORDERS)
    columns = [match_nno, ours_nno, ours_nno[..., :1], theirs_nno[..., :1]]
    sums = np.concatenate(columns, -1)
    return bleu_of(sums, effective_order=True)


@functools.lru_cache(8)
def tokenizer(language: str) -> Callable[[str], str]:
    """Returns BLEU's tokenizer of a language: words of text, joined by spaces."""
    return sacrebleu_metrics(language)["bleu"].tokenizer


# A utility is a function (hypotheses, references, language) -> float64 [h, r], higher
# for texts that are more alike, and a line here.
UTILITIES = {"chrf": chrf, "bleu": bleu}
