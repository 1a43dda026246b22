"""Re-ranking of an n-best list by further models (Yee et al. 2019, noisy channel).

The sum for a hypothesis y of a source x, with Z the length penalty of the search, and
|y| the pieces of y:

    score(y) + (reverse_weight log p(x|y) + lm_weight log p(y) + length |y|) / Z(|x|)

score(y) is the search's own, log p(y|x) / Z(|y|). Dividing by the penalty of the
source puts the other terms on its scale without favouring a length, since it is one
number for all hypotheses of a line. With --penalty=length and --alpha=1, and one weight
for both models, it is the paper's sum.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from t2t_jax.config import Config, TaskConfig
from t2t_jax.decoding import scoring
from t2t_jax.decoding.choice import Choice, beam_candidates
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.search_options import penalty_options
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import compute_dtype
from t2t_jax.parallel import processes
from t2t_jax.search.algorithm import PENALTIES
from t2t_jax.sections import field
from t2t_jax.workdir import Workdir

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator

MODELS = "reverse", "lm"  # the options that name a workdir


@dataclasses.dataclass(frozen=True)
class RerankingOptions:
    """Options of `rerank`."""

    # Hypotheses of the beam to choose from.
    nbest: int = field(12, low=1, safe=True)
    # The workdir of a model that translates in the other direction; empty: none.
    reverse: str = field("", safe=True)
    # The weight of its log-probability of the source.
    reverse_weight: float = field(1.0, safe=True)
    # The workdir of a language model of the target; empty: none.
    lm: str = field("", safe=True)
    # The weight of its log-probability of the hypothesis.
    lm_weight: float = field(0.2, safe=True)
    # The weight of the number of pieces, EOS included; above 0 favours long ones.
    length: float = field(0.0, safe=True)


class Reranking(Choice):
    """Takes the hypothesis of a beam with the highest sum of several models' scores.

    The models may have other vocabularies: texts pass between them. A model of weight 0
    is not loaded.
    """

    Options = RerankingOptions

    def __init__(self, config: Config):
        from t2t_jax.decoding.translator import Translator  # it imports this module

        super().__init__(config)
        self.models: dict[str, Translator] = {}
        for name, place in _places(self.options).items():
            self.models[name] = model = Translator.load(place)
            CHECKS[name](place, model.config, config)

    @classmethod
    def check(cls, config: Config) -> None:
        """Checks that the workdirs are there and hold models of the right kind."""
        for name, place in _places(config.decode.own_options(cls)).items():
            if processes.is_first():
                CHECKS[name](place, Workdir.open(place).config(), config)

    def candidates(
        self, translator: "Translator", lines: Sequence[str], search: dict
    ) -> list[Translation]:
        """Searches for the n-best list."""
        return beam_candidates(translator, lines, self.options.nbest, search)

    def scores(
        self, translator: "Translator", found: Sequence[Translation], search: dict
    ) -> list[np.ndarray]:
        """Computes the weighted sum for each hypothesis."""
        weights_k = self.weights()
        return [
            terms_nk @ weights_k for terms_nk in self.terms(translator, found, search)
        ]

    def weights(self) -> np.ndarray:
        """Returns the weights of the `terms`."""
        options = self.options
        return np.array(
            [1.0, options.reverse_weight, options.lm_weight, options.length]
        )

    def terms(
        self, translator: "Translator", found: Sequence[Translation], search: dict
    ) -> list[np.ndarray]:
        """Computes the terms of the sum, without their weights.

        Returns:
          For each line float64 [hypotheses, 4]: the search's score; and divided by the
          penalty of the source's length, the log-probabilities of the reverse and of
          the language model (0 without them), and the number of pieces.
        """
        penalties = penalty_options(
            translator.config.decode, search["alpha"], search["penalty"]
        )
        penalty, alpha = PENALTIES[penalties["penalty"]], penalties["alpha"]
        rows = [(t.source, h) for t in found for h in t.hypotheses]
        reverse = self._reverse([(h.text, source) for source, h in rows])
        of_text = self._language([h.text for _, h in rows])
        encoded = translator.vocabulary.source.encode([t.source for t in found])
        terms, at = [], 0
        for t, ids in zip(found, encoded, strict=True):
            end = at + len(t.hypotheses)
            others = (
                reverse[at:end],
                of_text[at:end],
                [len(h.tokens) for h in t.hypotheses],
            )
            others_nk = np.array(others).T / penalty(len(ids) + 1, alpha)
            score_n1 = np.array([[h.score] for h in t.hypotheses])
            terms.append(np.concatenate([score_n1, others_nk], axis=1))
            at = end
        return terms

    def _reverse(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The log-probability of each source given its hypothesis."""
        if "reverse" not in self.models:
            return [0.0] * len(pairs)
        scores = self.models["reverse"].score(pairs, warn=False)
        return [score.log_prob for score in scores]

    def _language(self, texts: Sequence[str]) -> list[float]:
        """The log-probability of each hypothesis by itself."""
        if "lm" not in self.models:
            return [0.0] * len(texts)
        model, task = self.models["lm"], self._language_task()
        ids = model.vocabulary.encode([*texts], end=True)
        of_pieces = scoring.log_probs(
            model.vocabulary, model.members, ids, task.window, task.stride
        )
        return [math.fsum(log_probs) for log_probs in of_pieces]

    def _language_task(self):
        """The task of the language model, which knows its window."""
        config = self.models["lm"].config
        return config.task.variant("kind")(config)

    def provenance(self) -> dict:
        """Returns the options, with hashes of parameters in place of folders."""
        values = {k: v for k, v in super().provenance().items() if k not in MODELS}
        if "lm" in self.models:
            values |= self._language_task().answer_options()  # the window
        return values | {
            name: {
                "checkpoints": list(model.steps),
                "parameters_sha256": model.members[0].parameters_sha256(),
                "dtype": compute_dtype(model.config.model).name,
            }
            for name, model in self.models.items()
        }


def _places(options: RerankingOptions) -> dict[str, str]:
    """The workdirs of the models that have a weight, by the name of the option.

    Raises:
      UserError: nothing is named that could change an order.
    """
    if not (options.reverse or options.lm or options.length):
        raise UserError(
            "rerank has nothing to rank by; name a model, as in rerank:reverse=DIR or "
            "rerank:lm=DIR, or a weight of the length, as in rerank:length=0.1"
        )
    weights = {"reverse": options.reverse_weight, "lm": options.lm_weight}
    return {
        name: place
        for name in MODELS
        if (place := getattr(options, name)) and weights[name]
    }


def _check_reverse(place: str, config: Config, ours: Config) -> None:
    kind, data, translation = config.task.kind, config.data, TaskConfig().kind
    if kind != translation:
        raise UserError(
            f"reverse={place} has config.task.kind={kind!r}; want a model of the task "
            f"{translation!r}, which translates back"
        )
    wanted = ours.data.target, ours.data.source
    if ours.task.kind == translation and (data.source, data.target) != wanted:
        raise UserError(
            f"reverse={place} translates {data.source} -> {data.target}; want the "
            f"opposite direction of this model, {wanted[0]} -> {wanted[1]}"
        )


def _check_lm(place: str, config: Config, ours: Config) -> None:
    if config.task.kind != "language_model":
        raise UserError(
            f"lm={place} has config.task.kind={config.task.kind!r}; want a model of "
            "the task 'language_model', trained on text of the target"
        )


CHECKS = {"reverse": _check_reverse, "lm": _check_lm}
