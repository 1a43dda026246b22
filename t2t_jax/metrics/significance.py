"""Is one system better than another, or was it luck? Paired bootstrap (Koehn 2004)."""

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

    Both are scored on the same `SAMPLES` samples of the lines; `p_value` is how often
    a difference as large as theirs comes by chance.

    Returns:
      For `bleu`, `chrf` and `ter`: `score` and `interval`, `baseline_score` and
      `baseline_interval` (as in `bleu.py`), `difference` (score - baseline_score),
      `p_value`, `signature`. Of TER less is better.

    Raises:
      ValueError: as many of each as references are needed.
    """
    if not len(hypotheses) == len(baseline) == len(references):
        counts = f"{len(hypotheses)} hypotheses, {len(baseline)} of the baseline"
        raise ValueError(f"{counts}, {len(references)} references")
    known = sacrebleu_metrics(language)
    return {
        name: _compare(known[name], hypotheses, baseline, references)
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
        # sacreBLEU gives 0.001 for a system against itself: no sample differs more.
        "p_value": float(ours.p_value) if difference else 1.0,
        "signature": str(signature),
    }
