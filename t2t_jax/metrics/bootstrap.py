"""Bootstrap intervals of sacreBLEU's metrics (Koehn 2004)."""

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Sequence

SAMPLES, SEED = 1_000, 12345  # of every bootstrap; both are sacreBLEU's defaults
# sacreBLEU keeps every sample of all lines in memory: 72 bytes a line and sample.
LONGEST = 10_000  # lines; longer sets get no interval
_SEED_VARIABLE = "SACREBLEU_SEED"
_environment = threading.Lock()


def scored(name, metric, hypotheses, references, interval: bool = False) -> dict:
    """A score and its signature, maybe with the 95% interval of a bootstrap.

    The interval is `{"mean": m, "half_width": w}`, of the scores of `SAMPLES` samples
    of the lines: from m - w to m + w; None of more than `LONGEST` lines.
    """
    resample = interval and len(references) <= LONGEST
    with fixed_seed():
        score = metric.corpus_score(
            hypotheses, [references], n_bootstrap=SAMPLES if resample else 1
        )
    signature = metric.get_signature()  # known once it has scored
    for key in ("bs", "seed"):  # they are the interval's, and shape no score
        signature.update(key, None)
    key = "signature" if name == "bleu" else f"{name}_signature"
    scores = {name: score.score, key: str(signature)}
    if interval:
        told = json.loads(score.format(6, signature=scores[key], is_json=True))
        # A mean of 0 is left out there.
        mean, half = told.get("confidence_mean", 0.0), told.get("confidence_var", 0.0)
        found = {"mean": mean, "half_width": half}
        scores[f"{name}_interval"] = found if resample else None
    return scores


@contextlib.contextmanager
def fixed_seed() -> Iterator[None]:
    """sacreBLEU draws its samples from `SEED`, whatever the environment says."""
    with _environment:
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
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")


def with_plain_floats(metric):
    """A metric whose scores are Python's floats.

    sacreBLEU mixes them with NumPy's where some samples score 0, and then cannot take
    their mean.
    """
    compute = metric._compute_score_from_stats

    def computed(stats):
        score = compute(stats)
        score.score = float(score.score)
        return score

    metric._compute_score_from_stats = computed
    return metric
