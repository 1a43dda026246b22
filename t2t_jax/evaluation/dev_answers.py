"""Answers and scores part of the dev set during training."""

from collections.abc import Sequence

import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.corpus import Pair
from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.parallel import processes
from t2t_jax.tasks.task import Task
from t2t_jax.terminal.messages import say


class DevAnswers:
    """Scores the model's answers to the first examples of the dev set.

    Called with the parameters and the step; returns the `quick_scores` of the task,
    such as `bleu`, or an empty dict if `config.train.dev_lines` is 0 or there is no dev
    set.
    """

    def __init__(
        self,
        task: Task,
        config: Config,
        vocabulary: Vocabulary,
        model: Model,
        dev_pairs: Sequence[Pair],
    ):
        self._task = task
        self._pairs = dev_pairs[: config.train.dev_lines]
        self._translator = lambda parameters, step: Translator(
            config, vocabulary, model, parameters, [step]
        )

    def __call__(self, parameters: Parameters, step: int) -> dict[str, float]:
        if not self._pairs:
            return {}
        translator = self._translator(parameters, step)
        answers = self._task.answers(translator, self._pairs, warn=False)
        scores = processes.from_first(
            "dev scores", lambda: self._task.quick_scores(answers, self._pairs)
        )
        # Seeded by the step: a resumed run prints the same two examples.
        for row in np.random.default_rng(step).choice(
            len(answers), min(2, len(answers)), False
        ):
            for line in self._task.example(answers[row], self._pairs[row]):
                say(f"  {line}")
        return scores
