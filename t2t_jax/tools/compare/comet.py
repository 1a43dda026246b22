"""COMET (Rei et al. 2020), where its package is installed and a model is on disk."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import waiting
from t2t_jax.metrics.measures import Measure
from t2t_jax.tools.compare.texts import Texts

BATCH = 8  # lines; COMET's own default


class Comet:
    """A COMET model.

    Args:
      place: its checkpoint (.ckpt), or the folder that holds it. Nothing is downloaded.

    Raises:
      UserError: the package is not installed, or there is no such checkpoint.
    """

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
            f"COMET, {file.name}", self._no_statistics, _mean, digits=4
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
        return np.stack([np.array(scores, np.float64), np.ones(len(rows))], axis=1)

    @staticmethod
    def _no_statistics(answers, pairs):
        raise NotImplementedError("COMET reads sources: call Comet.statistics")


def _mean(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


def _checkpoint(place: Path) -> Path:
    """Finds the checkpoint of a model."""
    found = sorted(place.rglob("*.ckpt")) if place.is_dir() else [place]
    if len(found) == 1 and found[0].is_file():
        return found[0]
    what = f"has {len(found)} files *.ckpt" if place.is_dir() else "does not exist"
    raise UserError(
        f"--comet={place} {what}; want the .ckpt file of a COMET model on this disk, "
        "or a folder with one"
    )
