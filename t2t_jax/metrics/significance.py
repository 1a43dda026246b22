"""Significance of the difference between two systems: paired bootstrap (Koehn 2004)."""

from collections.abc import Sequence

from t2t_jax.metrics.bootstrap import SAMPLES, fixed_seed
from t2t_jax.metrics.plain import sacrebleu_metrics

COMPARED = ("bleu", "chrf", "ter")


def paired_bootstrap(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    language: str,
) -> dict[str, dict]:
    """Compares two systems' translations of the same lines.

    Each of `SAMPLES` samples of the lines is scored for both systems. `p_value`
    estimates how often chance alone produces a difference as large as theirs.

    Returns:
      For `bleu`, `chrf` and `ter`: `score` and `interval`, `baseline_score` and
      `baseline_interval` (as in `bootstrap.scored`), `difference` (score -
      baseline_score), `p_value`, `signature`. A lower TER is better.

    Raises:
      ValueError: the numbers of hypotheses, baseline translations and references
        differ.
    """
    if not len(hypotheses) == len(baseline) == len(references):
        counts = f"{len(hypotheses)} hypotheses, {len(baseline)} of the baseline"
        raise ValueError(f"{counts}, {len(references)} references")
    metrics = sacrebleu_metrics(language)
    return {
        name: _compare(metrics[name], hypotheses, baseline, references)
        for name in COMPARED
    }


def _compare(metric, hypotheses, baseline, references) -> dict:
    from sacrebleu.significance import PairedTest  # slow to import

    with fixed_seed():
        test = PairedTest(
            [("baseline", baseline), ("system", hypotheses)],
            {"score": metric},
            [references],
            test_type="bs",
            n_samples=SAMPLES,
        )
        signatures, results = test()
    ((name, signature),) = signatures.items()
    theirs, ours = results[name]
    difference = ours.score - theirs.score
    return {
        "score": ours.score,
        "interval": {"mean": float(ours.mean), "half_width": float(ours.ci)},
        "baseline_score": theirs.score,
        "baseline_interval": {
            "mean": float(theirs.mean),
            "half_width": float(theirs.ci),
        },
        "difference": difference,
        # For a system against itself sacreBLEU reports p = 0.001, as no sample differs
        # by more than 0. The correct value is 1.
        "p_value": float(ours.p_value) if difference else 1.0,
        "signature": str(signature),
    }
