"""Measures how well a model's confidence in a line tells good translations from bad.

    python -m benchmarks.confidence --workdir=DIR --test=PREFIX
    python -m benchmarks.confidence --workdir=DIR --test=PREFIX --lines=300 \\
        --measures=log_prob,dropout_mean:passes=20

Translates the test set, computes each measure of `--confidence` for each line, and
prints a Markdown table of what it says about the line's chrF against its reference:

Spearman, Pearson: correlation with chrF over lines.
AUROC: of the lines with the lowest chrF (--worst, a tenth): the probability that such a
    line has a lower confidence than one of the others; 0.5 is chance.
marked at X: the value of --min_confidence that marks a tenth of the lines.
chrF marked, other: the mean chrF of these, and of the others.

With --document=20 the same of documents, each of 20 consecutive lines, in place of
lines: their chrF, and `document_confidence`.

In brackets are 95% intervals: 1,000 bootstrap samples of the lines with a fixed seed.
The row `length` is a control: minus the number of pieces of the translation.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from absl import flags
from scipy import stats

from benchmarks import measuring, run
from t2t_jax.commands.flags import (
    ENSEMBLE,
    define_search_flags,
    define_test_flag,
    define_workdir_flags,
    search_flags,
    workdirs_of,
)
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.scoring import CONFIDENCES, document_confidence, parse_confidence
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.metrics.plain import sacrebleu_metrics

SAMPLES, SEED = 1_000, 12345  # of the bootstrap
HEADS = (
    "confidence",
    "Spearman",
    "Pearson",
    "AUROC",
    "marked at",
    "chrF marked",
    "other",
)


def define_flags():
    define_workdir_flags(ENSEMBLE)
    define_test_flag()
    define_search_flags()
    measuring.define_flags(rounds=None)
    flags.DEFINE_integer("lines", 0, "Use only the first N lines; 0 means all.")
    flags.DEFINE_integer("document", 1, "Lines of a document.", lower_bound=1)
    # A string, since the options of a measure have commas; see `split_measures`.
    flags.DEFINE_string("measures", ",".join(CONFIDENCES), "Values of --confidence.")
    flags.DEFINE_float("worst", 0.1, "The share of lines that are to be found.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    if not 0 < args.worst < 1:
        raise UserError(f"--worst={args.worst}; want a share between 0 and 1")
    measures = split_measures(args.measures)
    translator = Translator.load(workdirs_of(args), args.checkpoint, args.dtype)
    say(repr(translator))
    corpus, pairs = measuring.test_pairs(args, translator.config)
    translations = translator.translate(
        [s for s, _ in pairs], **search_flags(args), warn=False
    )
    chrf_of, size = sacrebleu_metrics(corpus.target)["chrf"], args.document
    starts = range(0, len(pairs) - size + 1, size)
    documents = [slice(start, start + size) for start in starts]
    texts, references = [t.text for t in translations], [r for _, r in pairs]
    chrf = np.array(
        [chrf_of.corpus_score(texts[d], [references[d]]).score for d in documents]
    )
    print(f"{len(pairs):,} lines of {corpus.spec}, mean chrF {chrf.mean():.2f}\n")
    rows = []
    for name, values in confidences(translator, translations, measures):
        if size > 1:
            kind = name.partition(":")[0]
            values = [document_confidence(values[d], kind)[0] for d in documents]
        cells = row(np.array(values), chrf, args.worst)
        rows.append(dict(zip(HEADS, [f"`{name}`", *cells], strict=True)))
    measuring.publish(rows, args.output)


def split_measures(text: str) -> list[str]:
    """Splits at the commas that a measure's name follows; checks each."""
    measures = []
    for part in filter(None, text.split(",")):
        if "=" in part.partition(":")[0] and measures:  # a further option
            measures[-1] += f",{part}"
        else:
            measures.append(part)
    for measure in measures:
        parse_confidence(measure)
    return measures


def confidences(
    translator: Translator, translations: Sequence[Translation], measures: Sequence[str]
):
    """Yields each measure and its values, the control last."""
    pairs = [(t.source, t.best) for t in translations]
    for measure in measures:
        name, options = parse_confidence(measure)
        settings = dataclasses.asdict(options)
        values = translator.confidence(pairs, name, warn=False, **settings)
        yield measure, np.array(values)
    yield "length", -np.array([float(len(t.best.tokens)) for t in translations])


def row(values: np.ndarray, chrf: np.ndarray, worst: float) -> list[str]:
    """The cells of a measure's row."""
    bad = worst_lines(chrf, worst)
    cells = [
        _cell(statistic, values, quality)
        for statistic, quality in ((spearman, chrf), (pearson, chrf), (auroc, bad))
    ]
    limit = np.quantile(values, worst)
    low = values < limit
    means = [f"{chrf[m].mean():.1f}" if m.any() else "-" for m in (low, ~low)]
    return [*cells, f"{limit:.3g}", *means]


def worst_lines(chrf: np.ndarray, share: float) -> np.ndarray:
    """A mask of the lines with the lowest chrF; of equals the earlier ones."""
    bad = np.zeros(len(chrf), bool)
    bad[np.argsort(chrf, kind="stable")[: max(1, round(share * len(chrf)))]] = True
    return bad


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation; equal values have the mean of their ranks."""
    return pearson(stats.rankdata(x), stats.rankdata(y))


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation; nan if one side is constant."""
    if not (np.ptp(x) and np.ptp(y)):
        return np.nan  # and no warning: a bootstrap sample may be constant
    return float(stats.pearsonr(x, y).statistic)


def auroc(values: np.ndarray, bad: np.ndarray) -> float:
    """The probability that a bad line has a lower value; ties count a half."""
    good, worst = values[~bad], values[bad]
    if not (len(good) and len(worst)):
        return np.nan
    above = stats.mannwhitneyu(good, worst, method="asymptotic").statistic
    return float(above / (len(good) * len(worst)))


def _cell(statistic: Callable, x: np.ndarray, y: np.ndarray) -> str:
    low, high = interval(statistic, x, y)
    return f"{statistic(x, y):.3f} [{low:.3f}, {high:.3f}]"


def interval(
    statistic: Callable[[np.ndarray, np.ndarray], float], x: np.ndarray, y: np.ndarray
) -> tuple[float, float]:
    """A 95% interval: percentiles over bootstrap samples of the lines (Efron 1979)."""
    rng = np.random.default_rng(SEED)
    samples = []
    for _ in range(SAMPLES):
        sample = rng.integers(len(x), size=len(x))
        samples.append(statistic(x[sample], y[sample]))
    low, high = np.nanquantile(samples, [0.025, 0.975])
    return float(low), float(high)


if __name__ == "__main__":
    run(main, define_flags)
