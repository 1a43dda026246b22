"""Scores of whole systems, with intervals, and tests of their differences."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import waiting
from t2t_jax.metrics import measures
from t2t_jax.metrics.measures import Measure
from t2t_jax.metrics.plain import sacrebleu_metrics, scored, with_missing
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.tools.compare.texts import Texts

TITLES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "comet": "COMET"}
LEVEL = 0.05  # p-values below it are called significant


def total_measures(texts: Texts) -> dict[str, Measure]:
    """Returns the measures that need no model: BLEU, chrF and TER."""
    by_name = text_measures(texts.target, texts.further)
    return {k: v for k, v in by_name.items() if k in TITLES}


def compare_totals(
    measure_by_name: Mapping[str, Measure],
    statistics: Mapping[str, Sequence[np.ndarray]],
    texts: Texts,
) -> list[dict]:
    """Scores systems, given their statistics [n, k] of each measure, and tests them.

    Returns:
      For each measure `name`, `title`, `higher_is_better`, `digits`, `signature` (of
      sacreBLEU; None if it is not its score); `systems`, each with `score` and its 95%
      `interval`; and `differences`, for each system but the first: `difference` with
      its bounds `low` and `high` (95%), the p-values `bootstrap` (paired bootstrap) and
      `randomisation` (approximate randomisation), and `verdict`: "better" or "worse" if
      both are below `LEVEL`, otherwise "not significant".
    """
    totals = []
    for name, measure in measure_by_name.items():
        baseline, *rivals = statistics[name]
        paired = [measures.paired(measure, rival, baseline) for rival in rivals]
        scored = [(paired[0]["baseline_score"], paired[0]["baseline_interval"])]
        scored += [(result["score"], result["interval"]) for result in paired]
        totals.append(
            {
                "name": name,
                "title": TITLES[name],
                "higher_is_better": measure.higher_is_better,
                "digits": measure.digits,
                "signature": _signature(name, texts),
                "systems": [
                    {"score": score, "interval": interval} for score, interval in scored
                ],
                "differences": [
                    _tested(measure, p, rival, baseline)
                    for p, rival in zip(paired, rivals, strict=True)
                ],
            }
        )
    return totals


def _tested(measure: Measure, paired: dict, rival: np.ndarray, baseline) -> dict:
    p_values = {
        "bootstrap": paired["p_value"],
        "randomisation": measures.randomised(measure, rival, baseline),
    }
    verdict = "not significant"
    if max(p_values.values()) < LEVEL:
        rose = paired["difference"] > 0
        verdict = "better" if rose == measure.higher_is_better else "worse"
    interval = {name: paired[name] for name in ("difference", "low", "high")}
    return {**interval, **p_values, "verdict": verdict}


def _signature(name: str, texts: Texts) -> str | None:
    metrics = sacrebleu_metrics(texts.target)
    if name not in metrics:
        return None
    # A signature is complete only after scoring; it has the numbers of references, so
    # one line of each is enough.
    lists = with_missing([texts.references, *texts.further])
    lines = {row.count(None): row for row in zip(*lists, strict=True)}.values()
    lists = [[text or "" for text in side] for side in zip(*lines, strict=True)]
    key = "signature" if name == "bleu" else f"{name}_signature"
    return scored(name, metrics[name], lists[0], lists)[key]


# -------------------------------------------------------------------------------- COMET

BATCH = 8  # lines; COMET's own default


class Comet:
    """A COMET model: a checkpoint (.ckpt), or a folder with one. Downloads nothing."""

    def __init__(self, place: str):
        file = _checkpoint(Path(place).expanduser())
        try:
            from comet import load_from_checkpoint
        except ImportError:
            raise UserError(
                f"--comet={place} needs the package comet, which is not installed: "
                "pip install unbabel-comet"
            ) from None
        with waiting("loading the COMET model"):
            self._model = load_from_checkpoint(str(file))
        self.measure = Measure(
            f"COMET, {file.name}", self._no_statistics, measures.mean, digits=4
        )

    def statistics(self, texts: Texts, outputs: Sequence[str]) -> np.ndarray:
        """Scores each line, [n, 2]: the score, and 1."""
        rows = [
            {"src": source, "mt": output, "ref": reference}
            for source, output, reference in zip(
                texts.sources, outputs, texts.references, strict=True
            )
        ]
        with waiting("scoring with COMET"):
            scores = self._model.predict(rows, batch_size=BATCH).scores
        return measures.with_count(scores)

    @staticmethod
    def _no_statistics(answers, pairs):
        raise NotImplementedError("COMET reads sources: call Comet.statistics")


def _checkpoint(place: Path) -> Path:
    """Finds the checkpoint of a model."""
    files = sorted(place.rglob("*.ckpt")) if place.is_dir() else [place]
    if len(files) == 1 and files[0].is_file():
        return files[0]
    problem = f"has {len(files)} files *.ckpt" if place.is_dir() else "does not exist"
    raise UserError(
        f"--comet={place} {problem}; want the .ckpt file of a COMET model on this "
        "disk, or a folder with one"
    )
