"""Translates and scores part of the dev set during training."""

from collections.abc import Sequence

import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.corpus import Pair
from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.parallel import processes
from t2t_jax.terminal.messages import say


class DevTranslations:
    """Scores beam-search translations of the first lines of the dev set.

    Called with the parameters and the step; returns `bleu` and `chrf`, or an empty
    dict if `config.train.dev_lines` is 0 or there is no dev set.
    """

    def __init__(
        self,
        config: Config,
        vocabulary: Vocabulary,
        model: Model,
        dev_lines: Sequence[Pair],
    ):
        self._lines = dev_lines[: config.train.dev_lines]
        self._target = config.data.target
        self._translator = lambda parameters, step: Translator(
            config, vocabulary, model, parameters, [step]
        )

    def __call__(self, parameters: Parameters, step: int) -> dict[str, float]:
        if not self._lines:
            return {}
        sources, references = zip(*self._lines, strict=True)
        results = self._translator(parameters, step).translate(sources, warn=False)
        translations = [result.text for result in results]
        scores = processes.from_first(
            "dev BLEU", lambda: corpus_scores(translations, references, self._target)
        )
        # Seeded by the step: a resumed run prints the same two examples.
        for row in np.random.default_rng(step).choice(
            len(sources), min(2, len(sources)), False
        ):
            say(f"  source       {sources[row]}")
            say(f"  translation  {translations[row]}")
            say(f"  reference    {references[row]}")
        return {"bleu": scores["bleu"], "chrf": scores["chrf"]}
