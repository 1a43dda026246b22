"""Answers and scores part of the dev set during training."""

from collections.abc import Sequence

import numpy as np

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.choosing import PLAIN
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.parallel import processes
from t2t_jax.tasks.task import Task


class DevAnswers:
    """Scores the model's answers to the first examples of the dev sets.

    Called with the parameters and the step; returns the `quick_scores` of the task,
    such as `bleu`, or an empty dict if `config.train.dev_lines` is 0 or there is no dev
    set. A mixture of tasks joins those of its dev sets. `config.decode.choose` does not
    apply: answers are those of the search.
    """

    def __init__(
        self,
        task: Task,
        config: Config,
        vocabulary: Vocabulary,
        model: Model,
        dev: Sequence[Corpus],
    ):
        self._task = task
        limit = config.train.dev_lines
        self._sets = task.dev_sets(dev, limit) if dev and limit else {}
        # A choice among many hypotheses would cost more than the training in between.
        config = fields.changed(config, "decode", choose=PLAIN, options={})
        self._translator = lambda parameters, step: Translator(
            config, vocabulary, model, parameters, [step]
        )

    def __call__(self, parameters: Parameters, step: int) -> dict[str, float]:
        if not self._sets:
            return {}
        translator = self._translator(parameters, step)
        return self._task.joined_scores(
            {
                name: self._scores(translator, step, *dev_set)
                for name, dev_set in self._sets.items()
            }
        )

    def _scores(
        self, translator: Translator, step: int, task: Task, pairs: Sequence[Pair]
    ) -> dict[str, float]:
        """Answers and scores one set, and prints examples."""
        answers = task.answers(translator, pairs, warn=False)
        scores = processes.from_first(
            "dev scores", lambda: task.quick_scores(answers, pairs)
        )
        # Seeded by the step: a resumed run prints the same examples.
        count = min(2 if len(self._sets) == 1 else 1, len(answers))
        for row in np.random.default_rng(step).choice(len(answers), count, False):
            for line in task.example(answers[row], pairs[row]):
                say(f"  {line}")
        return scores
