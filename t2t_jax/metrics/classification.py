"""Scores of a classifier: accuracy, macro F1, calibration.

An answer is one line, fields separated by tabs: the predicted label, then
`LABEL=PROBABILITY` for every label of the model:

    positive	negative=0.0173	positive=0.9827

A label may contain spaces and `=`, but no tab; the last `=` of a field counts. Accuracy
and macro F1 need only the first field, so they also score other systems' labels.

Shape suffixes: n examples, c classes, b bins.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import Measure, Pair, mean, percent, with_count

BINS = 15  # of the calibration error, as in Guo et al. 2017


def answer_line(label: str, probabilities: Mapping[str, float]) -> str:
    """Formats an answer: the predicted label, and the probability of each label."""
    # Six significant digits, not decimals: the logarithm of a small one is scored too.
    return "\t".join([label, *(f"{x}={p:.6g}" for x, p in probabilities.items())])


def labels_of(answers: Sequence[str]) -> list[str]:
    """Returns the predicted labels."""
    return [answer.partition("\t")[0] for answer in answers]


def probabilities_of(answers: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Returns the probabilities, float64 [n, c], and the labels of their columns.

    Raises UserError if an answer has none, or other labels than the first.
    """
    rows, columns = [], None
    for number, answer in enumerate(answers, 1):
        predicted, *fields = answer.split("\t")
        parts = [field.rpartition("=") for field in fields]
        labels = [label for label, _, _ in parts]
        columns = labels if columns is None else columns
        row = [_number(written) for _, _, written in parts]
        if labels != columns or predicted not in labels or None in row:
            raise UserError(
                f"answer {number:,} is {answer!r}; want a label, then a tab and "
                f"LABEL=PROBABILITY for each of {', '.join(columns) or 'the labels'}"
            )
        rows.append(row)
    return np.array(rows), columns or []


def _number(written: str) -> float | None:
    """The probability; None if it is none."""
    try:
        probability = float(written)
    except ValueError:
        return None
    return probability if 0 <= probability <= 1 else None


def _golden(pairs: Sequence[Pair]) -> np.ndarray:
    return np.array([label for _, label in pairs], object)


def _predicted(answers: Sequence[str]) -> np.ndarray:
    return np.array(labels_of(answers), object)


def _correct(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    return with_count(_predicted(answers) == _golden(pairs))


def _by_class(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """Counts of each class: correct, predicted and true; float64 [n, 3 c].

    The classes are those of the examples, whatever the answers: so the counts of two
    systems compare, and a model that writes its labels as text does not add a class
    with each mistake of spelling.
    """
    golden_n, predicted_n = _golden(pairs), _predicted(answers)
    classes_c = np.array(sorted({*golden_n}), object)
    true_nc = golden_n[:, None] == classes_c
    said_nc = predicted_n[:, None] == classes_c
    return np.concatenate([true_nc & said_nc, said_nc, true_nc], 1).astype(np.float64)


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    """The mean F1 of the classes that are true or predicted in a sample."""
    correct_c, said_c, true_c = np.split(sums, 3, axis=-1)
    either_c = said_c + true_c
    f1_c = 2 * correct_c / np.maximum(either_c, 1)
    return 100 * f1_c.sum(-1) / np.maximum((either_c > 0).sum(-1), 1)


def _bins(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """Confidence - correctness in its bin, and the number of examples; [n, b + 1]."""
    probabilities_nc, columns = probabilities_of(answers)
    predicted_n = _predicted(answers)
    column = {label: i for i, label in enumerate(columns)}
    column_n = [column[label] for label in predicted_n]
    confidence_n = probabilities_nc[np.arange(len(column_n)), column_n]
    # Bins are half open: the first is (0, 1/15], the last (14/15, 1].
    bin_n = np.clip(np.ceil(confidence_n * BINS).astype(int) - 1, 0, BINS - 1)
    rows_nb = np.zeros((len(bin_n), BINS + 1))
    rows_nb[:, -1] = 1
    rows_nb[np.arange(len(bin_n)), bin_n] = confidence_n - (
        predicted_n == _golden(pairs)
    )
    return rows_nb


def _calibration_error(sums: np.ndarray) -> np.ndarray:
    """sum over bins of |confidence - correct|, per example."""
    return np.abs(sums[..., :-1]).sum(-1) / np.maximum(sums[..., -1], 1)


def _true_probabilities(answers: Sequence[str], pairs: Sequence[Pair]):
    """Probabilities [n, c], and which of them is that of the true label."""
    probabilities_nc, columns = probabilities_of(answers)
    return probabilities_nc, _golden(pairs)[:, None] == np.array(columns, object)


def _nll(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    probabilities_nc, true_nc = _true_probabilities(answers, pairs)
    true_n = (probabilities_nc * true_nc).sum(1)
    return with_count(-np.log(np.maximum(true_n, np.finfo(np.float64).tiny)))


def _brier(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    probabilities_nc, true_nc = _true_probabilities(answers, pairs)
    return with_count(((probabilities_nc - true_nc) ** 2).sum(1))


# The first chooses checkpoints.
LABEL_MEASURES = {
    "accuracy": Measure("% of correct labels", _correct, percent),
    "macro_f1": Measure("mean F1 of the classes of the set, %", _by_class, _macro_f1),
}
PROBABILITY_MEASURES = {
    "ece": Measure(
        f"expected calibration error, 0 to 1, {BINS} bins",
        _bins,
        _calibration_error,
        higher_is_better=False,
        digits=4,
    ),
    "nll": Measure(
        "mean -log p of the true label, in nats", _nll, mean, False, digits=4
    ),
    "brier": Measure("Brier score, 0 to 2", _brier, mean, False, digits=4),
}
