"""The subtasks of a mixture that are no tasks of their own, and how one is scored."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t2t_jax.data.corpus import Corpus, Pair, copied, open_lines
from t2t_jax.data.noise import SENTINELS
from t2t_jax.io.errors import UserError
from t2t_jax.metrics import classification
from t2t_jax.metrics.measures import Measure
from t2t_jax.tasks.task import Task

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator

SPANS = "spans"


def _matches(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """1 for an answer that is the target, and 1 for each example, [n, 2]."""
    matches = [
        answer == target for answer, (_, target) in zip(answers, pairs, strict=True)
    ]
    return np.stack([matches, np.ones(len(pairs))], axis=1).astype(np.float64)


class Copy(Task):
    """Repeats a line; an answer is right if no character differs."""

    measures: ClassVar = {
        "accuracy": Measure(
            "% of exact answers",
            _matches,
            lambda sums: 100 * sums[..., 0] / sums[..., 1],
        )
    }

    def open(self, place: str, folder: str = "") -> Corpus:
        """Opens one-sided text; `grammar:` and `tfds:` have their target side."""
        data = self.config.data
        return copied(open_lines(place, data.source, data.target, folder))


class Spans(Copy):
    """Restores spans that were cut out of a line; for training alone."""

    symbols = SENTINELS

    def examples(self, corpus: Corpus) -> list[Pair]:
        """Raises UserError: it has no examples that are scored."""
        raise UserError(
            f"{SPANS}:{corpus.place}: {SPANS} has no answers to be scored; name this "
            "text in config.data.dev, which measures its loss"
        )


class Label(Task):
    """Classification as text: the answer is the label, without probabilities."""

    measures = classification.OF_LABELS

    def __init__(self, task: Task):
        super().__init__(task.config)
        self.open = task.open


class Tagged:
    """A subtask that scores a set of a mixture; other attributes are the subtask's.

    Examples are scored without their tag, which the translator puts back.
    """

    def __init__(self, subtask: Task, corpus: Corpus, zero_shot: bool):
        self._subtask, self._corpus, self._zero_shot = subtask, corpus, zero_shot

    def __getattr__(self, name: str):
        return getattr(self._subtask, name)

    def examples(self, corpus: Corpus) -> list[Pair]:
        """Returns the examples without their tag."""
        return self._subtask.examples(corpus.made_of)

    def answers(
        self, translator: "Translator", pairs: Sequence[Pair], warn: bool = True
    ) -> list[str]:
        """Computes the answers to examples of this subtask."""
        return self._subtask.answers(translator.tagged(self._corpus.tag), pairs, warn)

    def extra_scores(self, translator: "Translator", pairs: Sequence[Pair]) -> dict:
        """Computes scores that do not follow from the answers."""
        return self._subtask.extra_scores(translator.tagged(self._corpus.tag), pairs)

    def scores(
        self, answers: Sequence[str], pairs: Sequence[Pair], corpus: Corpus
    ) -> dict:
        """Computes the scores of the subtask, and whether training lacked it."""
        scores = self._subtask.scores(answers, pairs, corpus.made_of)
        return scores | {"subtask": corpus.subtask, "zero_shot": self._zero_shot}

    def compare(self, answers, baseline, pairs, corpus: Corpus) -> dict:
        """Compares with another system's answers to the same examples."""
        return self._subtask.compare(answers, baseline, pairs, corpus.made_of)

    def row(self, scores: dict, corpus: Corpus) -> str:
        """Formats the scores as the subtask does."""
        return self._subtask.row(scores, corpus.made_of) + (
            "   zero-shot" if self._zero_shot else ""
        )

    def compare_with(self, corpus: Corpus) -> str:
        """Says with which published results scores compare; "" if none is known."""
        return self._subtask.compare_with(corpus.made_of)


OWN = {"copy": Copy, SPANS: Spans}  # subtasks that are not in TASKS
