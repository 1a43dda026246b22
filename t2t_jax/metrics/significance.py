"""Significance of the difference between two systems that translate the same lines.

Two tests of sacreBLEU: paired bootstrap (`bs`; Koehn 2004) and approximate
randomisation (`ar`; Riezler & Maxwell 2005).
"""

from collections.abc import Sequence

import numpy as np

from t2t_jax.metrics.bootstrap import SAMPLES, SEED, fixed_seed
from t2t_jax.metrics.plain import sacrebleu_metrics

COMPARED = ("bleu", "chrf", "ter")
TESTS = {"bootstrap": "bs", "randomisation": "ar"}  # as sacreBLEU names them


def paired_bootstrap(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    language: str,
    compared: Sequence[str] = COMPARED,
) -> dict[str, dict]:
    """Compares two systems' translations of the same lines.

    Each of `SAMPLES` samples of the lines is scored for both systems. `p_value`
    estimates how often chance alone produces a difference as large as theirs.

    Args:
      compared: the metrics, names of `sacrebleu_metrics`.

    Returns:
      For each of these metrics: `score` and `interval`, `baseline_score` and
      `baseline_interval` (as in `bootstrap.scored`), `difference` (score -
      baseline_score), `p_value`, `signature`. A lower TER is better.

    Raises:
      ValueError: the numbers of hypotheses, baseline translations and references
        differ.
    """
    return {
        name: paired_test(name, hypotheses, baseline, references, language)
        for name in compared
    }


def paired_test(
    name: str,
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    language: str,
    test_type: str = "bs",
) -> dict:
    """Compares two systems' translations of the same lines by one metric.

    Args:
      name: of the metric, in `sacrebleu_metrics`.
      test_type: `bs` resamples the lines; `ar` exchanges the two systems' translations
        of lines drawn at random. Both do so `SAMPLES` times.

    Returns:
      As one metric of `paired_bootstrap`. With `ar`, which samples no scores, there are
      no intervals.

    Raises:
      ValueError: the numbers of hypotheses, baseline translations and references
        differ.
    """
    from sacrebleu.significance import PairedTest  # slow to import

    if not len(hypotheses) == len(baseline) == len(references):
        counts = f"{len(hypotheses)} hypotheses, {len(baseline)} of the baseline"
        raise ValueError(f"{counts}, {len(references)} references")
    metric = sacrebleu_metrics(language)[name]
    with fixed_seed():
        test = PairedTest(
            [("baseline", baseline), ("system", hypotheses)],
            {"score": metric},
            [references],
            test_type=test_type,
            n_samples=SAMPLES,
        )
        signatures, results = test()
    ((key, signature),) = signatures.items()
    theirs, ours = results[key]
    difference = ours.score - theirs.score
    compared = {
        "score": ours.score,
        "baseline_score": theirs.score,
        "difference": difference,
        # For a system against itself sacreBLEU reports p = 0.001, as no sample differs
        # by more than 0. The correct value is 1.
        "p_value": float(ours.p_value) if difference else 1.0,
        "signature": str(signature),
    }
    if test_type == "bs":
        compared["interval"] = _interval(ours)
        compared["baseline_interval"] = _interval(theirs)
    return compared


def _interval(result) -> dict[str, float]:
    return {"mean": float(result.mean), "half_width": float(result.ci)}


def bleu_difference(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    language: str,
) -> dict[str, float]:
    """The difference of two systems' BLEU, with a 95% interval by paired bootstrap.

    Returns:
      `score`, `baseline_score`, `difference` (score - baseline_score), and the bounds
      `low` and `high` of the difference over `SAMPLES` samples of the lines.
    """
    metric = sacrebleu_metrics(language)["bleu"]

    def counts(lines: Sequence[str]) -> np.ndarray:
        """BLEU's sums of each line: matches and n-grams of each order, two lengths."""
        scores = [
            metric.corpus_score([line], [[reference]])
            for line, reference in zip(lines, references, strict=True)
        ]
        return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores])

    def bleu(sums: np.ndarray) -> float:
        correct, total = sums[:4].tolist(), sums[4:8].tolist()
        return metric.compute_bleu(
            correct, total, int(sums[8]), int(sums[9]), smooth_method="exp"
        ).score

    systems = [counts(lines) for lines in (hypotheses, baseline)]
    score, baseline_score = (bleu(system.sum(0)) for system in systems)
    rng = np.random.default_rng(SEED)
    samples = rng.integers(len(references), size=(SAMPLES, len(references)))
    differences = [
        bleu(systems[0][sample].sum(0)) - bleu(systems[1][sample].sum(0))
        for sample in samples
    ]
    low, high = np.quantile(differences, (0.025, 0.975))
    return {
        "score": score,
        "baseline_score": baseline_score,
        "difference": score - baseline_score,
        "low": float(low),
        "high": float(high),
    }
