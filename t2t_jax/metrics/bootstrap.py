"""Bootstrap intervals of sacreBLEU's metrics (Koehn 2004)."""

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Sequence

SAMPLES, SEED = 1_000, 12345  # of every bootstrap; both are sacreBLEU's defaults
# sacreBLEU keeps every sample in memory at once: 72 bytes per line and sample, so about
# 720 MB for this many lines.
LONGEST = 10_000  # lines; longer sets get no interval
_SEED_VARIABLE = "SACREBLEU_SEED"
_environment_lock = threading.Lock()


def scored(name, metric, hypotheses, references, interval: bool = False) -> dict:
    """Computes a score and its signature, optionally with a 95% confidence interval.

    Args:
      name: of the score; its key in the result.
      metric: a sacreBLEU metric.
      hypotheses: translations.
      references: as many.
      interval: adds the interval of a bootstrap.

    Returns:
      `NAME`; `NAME_signature`, or `signature` for `bleu`; and with `interval`
      `NAME_interval`: `{"mean": m, "half_width": w}` means m - w to m + w, from
      `SAMPLES` resamplings of the lines. It is None for more than `LONGEST` lines.
    """
    resample = interval and len(references) <= LONGEST
    with fixed_seed():
        score = metric.corpus_score(
            hypotheses, [references], n_bootstrap=SAMPLES if resample else 1
        )
    signature = metric.get_signature()  # complete only after scoring
    # The number of samples and the seed affect the interval, not the score; without
    # them a score has the same signature with and without an interval.
    for field in ("bs", "seed"):
        signature.update(field, None)
    key = "signature" if name == "bleu" else f"{name}_signature"
    scores = {name: score.score, key: str(signature)}
    if interval:
        # sacreBLEU's public interface gives the interval only in this JSON, which
        # omits a mean of 0.
        text = json.loads(score.format(6, signature=scores[key], is_json=True))
        mean, half = text.get("confidence_mean", 0.0), text.get("confidence_var", 0.0)
        bounds = {"mean": mean, "half_width": half}
        scores[f"{name}_interval"] = bounds if resample else None
    return scores


@contextlib.contextmanager
def fixed_seed() -> Iterator[None]:
    """Makes sacreBLEU draw its samples from `SEED`, whatever the environment says.

    sacreBLEU reads the seed only from an environment variable. The lock keeps two
    threads from restoring each other's value.
    """
    with _environment_lock:
        before = os.environ.get(_SEED_VARIABLE)
        os.environ[_SEED_VARIABLE] = str(SEED)
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_SEED_VARIABLE, None)
            else:
                os.environ[_SEED_VARIABLE] = before


def check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raises ValueError unless there is one hypothesis for each reference."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")


def with_plain_floats(metric):
    """Patches a sacreBLEU metric so that all its scores are Python floats.

    If some samples score 0, sacreBLEU mixes Python's and NumPy's floats and then fails
    to compute their mean.
    """
    compute = metric._compute_score_from_stats

    def computed(stats):
        score = compute(stats)
        score.score = float(score.score)
        return score

    metric._compute_score_from_stats = computed
    return metric
