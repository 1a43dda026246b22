"""Chooses among several hypotheses of a line: `CHOICES`, `config.decode.choose`.

A choice asks a searcher for candidates and gives each of them a number, by which they
are ranked. Numbers of a line must follow from the candidates of that line alone, so
that translations do not depend on the lines next to them.

`mbr`, minimum Bayes risk, takes the hypothesis that is most like all others: Kumar and
Byrne 2004 over the n-best list of a beam; Eikema and Aziz 2020 over samples, here by
epsilon sampling as in Freitag et al. 2023.

`rerank` ranks an n-best list by further models, too (Yee et al. 2019, noisy channel).
The sum for a hypothesis y of a source x, with Z the length penalty of the search, and
|y| the tokens of y:

    score(y) + (reverse_weight log p(x|y) + lm_weight log p(y) + length |y|) / Z(|x|)

score(y) is the search's own, log p(y|x) / Z(|y|). Dividing by the penalty of the
source puts the other terms on its scale without favoring a length, since it is one
number for all hypotheses of a line. With --penalty=length and --alpha=1, and one weight
for both models, it is the paper's sum.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from t2t_jax.config import Config, TaskConfig
from t2t_jax.decoding import scoring
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.decoding.search_options import SHARED, SamplingOptions, SearchRequest
from t2t_jax.decoding.searcher import Searcher
from t2t_jax.io.errors import UserError
from t2t_jax.parallel import processes
from t2t_jax.search.algorithm import PENALTIES
from t2t_jax.sections import at_address, field, parse_variant
from t2t_jax.text.languages import same_language
from t2t_jax.workdir import Workdir

Translations = Sequence[Translation]

PLAIN = "probability"
# Numbers that agree to this many decimals are equal: the rest is rounding, which must
# not decide between hypotheses.
DECIMALS = 9


class Choice:
    """A choice of `config.decode.choose`, with its options.

    Models that it needs are loaded when it is made. A choice of your own has
    `candidates` and `scores`, and a line in `CHOICES`.

    Attributes:
      Options: a frozen dataclass of hyperparameters, `config.decode.options`.
      options: those of the config.
    """

    Options: ClassVar[type | None] = None

    def __init__(self, config: Config):
        self.name = config.decode.choose
        self.options = config.decode.own_options(type(self))

    @classmethod
    def check(cls, config: Config) -> None:
        """Checks what the choice needs, without loading a model.

        Raises:
          UserError: something is missing, so that translating would fail.
        """

    def translate(
        self, searcher: Searcher, lines: Sequence[str], request: SearchRequest
    ) -> list[Translation]:
        """Translates lines; returns the `request.nbest` best hypotheses of each.

        They have different texts, and there may be fewer. `Hypothesis.score` is the
        number that the choice ranks by.

        Raises:
          UserError: a request that the choice cannot follow, or a model that does not
            translate.
        """
        if request.nbest < 1:
            raise UserError(f"nbest={request.nbest}; want at least 1")
        if not searcher.model.has_source:
            raise UserError(
                "a choice among hypotheses is for models that translate; "
                f"config.model.kind={searcher.config.model.kind!r} has no source: "
                "leave out --choose, or set config.decode.choose='probability'"
            )
        translations = self.candidates(searcher, lines, request)
        # A blank line, or one without a translation that meets its constraints, has a
        # single hypothesis without tokens.
        rows = [row for row, t in enumerate(translations) if t.best.tokens]
        scores = self.scores(searcher, [translations[row] for row in rows], request)
        for row, line_scores in zip(rows, scores, strict=True):
            translations[row] = ranked(translations[row], line_scores, request.nbest)
        return translations

    def candidates(
        self, searcher: Searcher, lines: Sequence[str], request: SearchRequest
    ) -> list[Translation]:
        """Returns the hypotheses of each line to choose from.

        Raises:
          UserError: an option of the request that the choice cannot follow.
        """
        raise NotImplementedError

    def scores(
        self, searcher: Searcher, translations: Translations, request: SearchRequest
    ) -> list[np.ndarray]:
        """Returns a number for each hypothesis of each line, the best one's highest.

        Args:
          translations: the `candidates`, without lines that have nothing to choose
            from.
        """
        raise NotImplementedError

    def provenance(self) -> dict:
        """Returns what the choice depends on besides the searcher, for JSON."""
        return dataclasses.asdict(self.options) if self.options else {}

    def recorded(self) -> dict:
        """Returns the choice and its `provenance`, for the record of a score."""
        return {"choose": {"name": self.name, **self.provenance()}}


class Probability(Choice):
    """Takes what the search returns: the best hypothesis of each text."""

    def translate(
        self, searcher: Searcher, lines: Sequence[str], request: SearchRequest
    ) -> list[Translation]:
        """Searches; a model without a source can do so, too.

        Several texts are taken from all of the beam, which does not change the first
        ones. With stop="first" their number says when a search ends: it stays.
        """
        options, nbest = searcher.config.decode, request.nbest
        options = options.override(**request.search)
        if nbest > 1 and options.stop == "best":
            request = dataclasses.replace(request, nbest=max(nbest, options.beam))
        return [t.distinct(nbest) for t in searcher.search(lines, request)]

    def recorded(self) -> dict:
        """{}: scores that were stored before there were choices are of this one."""
        return {}


def ranked(
    translation: Translation, scores: Sequence[float], nbest: int
) -> Translation:
    """Orders hypotheses by other scores, the highest first; of equals the earlier.

    Of hypotheses with the same text only the first is kept.
    """
    order = np.argsort(-np.round(scores, DECIMALS), kind="stable")
    ordered = tuple(
        dataclasses.replace(translation.hypotheses[n], score=float(scores[n]))
        for n in order.tolist()
    )
    return dataclasses.replace(translation, hypotheses=ordered).distinct(nbest)


def beam_candidates(
    searcher: Searcher, lines: Sequence[str], nbest: int, request: SearchRequest
) -> list[Translation]:
    """Finds the `nbest` best hypotheses of each line, with a beam at least as wide."""
    beam = request.search.get("beam")
    if beam is not None and beam < nbest:
        raise UserError(
            f"beam={beam}, but the choice is among nbest={nbest} hypotheses; want a "
            f"beam of at least {nbest}, or a smaller nbest in the options of the choice"
        )
    beam = max(searcher.config.decode.beam, nbest) if beam is None else beam
    search = {**request.search, "beam": beam}
    request = dataclasses.replace(request, nbest=nbest, search=search)
    return searcher.search(lines, request)


def sampled_candidates(
    searcher: Searcher,
    lines: Sequence[str],
    request: SearchRequest,
    options: SamplingOptions,
) -> list[Translation]:
    """Draws `request.samples` hypotheses of each line."""
    refused = [name for name in request.search if name not in SHARED]
    if request.must:
        refused.append("must")
    if refused:
        raise UserError(
            f"{', '.join(refused)}: an option of beam search, but this choice draws "
            "its candidates; leave it out, or choose among a beam: mbr:candidates=beam"
        )
    return searcher.draw(lines, request, options)


@dataclasses.dataclass(frozen=True)
class MinimumBayesRiskOptions:
    """Options of `mbr`."""

    # Candidates are drawn ("samples"), or are the n-best list of a beam ("beam").
    candidates: str = field("samples", ("samples", "beam"), safe=True)
    # How alike two texts are: an entry of `UTILITIES`.
    utility: str = field("chrf", table="metrics.text_measures.UTILITIES", safe=True)
    # Hypotheses that are drawn; one of them alone has nothing to agree with.
    samples: int = field(32, low=2, safe=True)
    # Tokens of a smaller probability are not drawn, but for the most probable one.
    epsilon: float = field(
        0.02, low=0, below=1, safe=True, hint="such as 0.02, or 0 to draw from all"
    )
    # Seed of the samples.
    seed: int = field(0, low=0, below=1 << 32, safe=True)
    # Hypotheses of the beam to choose from.
    nbest: int = field(12, low=1, safe=True)


class MinimumBayesRisk(Choice):
    """Takes the hypothesis with the highest expected utility against the others.

    Each candidate is a possible reference. Samples count alike, as often as they were
    drawn; those of a beam count with their probabilities, which are made to sum to 1.
    """

    Options = MinimumBayesRiskOptions

    def candidates(
        self, searcher: Searcher, lines: Sequence[str], request: SearchRequest
    ) -> list[Translation]:
        """Draws candidates or searches for them."""
        options = self.options
        if options.candidates == "beam":
            return beam_candidates(searcher, lines, options.nbest, request)
        request = dataclasses.replace(
            request, samples=options.samples, seed=options.seed
        )
        sampling = SamplingOptions(epsilon=options.epsilon)
        return sampled_candidates(searcher, lines, request, sampling)

    def scores(
        self, searcher: Searcher, translations: Translations, request: SearchRequest
    ) -> list[np.ndarray]:
        """Computes the expected utility of each hypothesis, 0 to 100."""
        utility = at_address("metrics.text_measures.UTILITIES")[self.options.utility]
        language = searcher.config.data.target
        weigh = drawn_alike if self.options.candidates == "samples" else posterior
        return [
            expected_utilities(
                [h.text for h in t.hypotheses], weigh(t.hypotheses), utility, language
            )
            for t in translations
        ]

    def provenance(self) -> dict:
        """Returns the options that have an influence."""
        unused = {"samples": ["nbest"], "beam": ["samples", "epsilon", "seed"]}
        values = super().provenance()
        return {
            k: v for k, v in values.items() if k not in unused[self.options.candidates]
        }


def drawn_alike(hypotheses: Sequence[Hypothesis]) -> np.ndarray:
    """Returns the weights of samples: they were drawn by their probabilities."""
    return np.full(len(hypotheses), 1 / len(hypotheses))


def posterior(hypotheses: Sequence[Hypothesis]) -> np.ndarray:
    """Returns the probabilities of hypotheses among themselves."""
    log_prob = np.array([h.log_prob for h in hypotheses], np.float64)
    p = np.exp(log_prob - log_prob.max())
    return p / p.sum()


def expected_utilities(
    texts: Sequence[str], weights: np.ndarray, utility, language: str = ""
) -> np.ndarray:
    """Computes each text's mean utility, with every text as a reference."""
    row = {text: n for n, text in enumerate(dict.fromkeys(texts))}
    rows = [row[text] for text in texts]
    # Each different text is compared once, however often it was drawn.
    weight_r = np.bincount(rows, weights, minlength=len(row))
    expected = utility([*row], [*row], language) @ weight_r
    return expected[rows]


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
    # The weight of the number of tokens, EOS included; above 0 favors long ones.
    length: float = field(0.0, safe=True)


class Reranking(Choice):
    """Takes the hypothesis of a beam with the highest sum of several models' scores.

    The models may have other vocabularies: texts pass between them. A model of weight 0
    is not loaded.
    """

    Options = RerankingOptions

    def __init__(self, config: Config):
        super().__init__(config)
        self.models: dict[str, Searcher] = {}
        for name, place in _places(self.options).items():
            self.models[name] = model = Searcher.load(place)
            CHECKS[name](place, model.config, config)

    @classmethod
    def check(cls, config: Config) -> None:
        """Checks that the workdirs are there and hold models of the right kind."""
        for name, place in _places(config.decode.own_options(cls)).items():
            if processes.is_first():
                CHECKS[name](place, Workdir.open(place).config(), config)

    def candidates(
        self, searcher: Searcher, lines: Sequence[str], request: SearchRequest
    ) -> list[Translation]:
        """Searches for the n-best list."""
        return beam_candidates(searcher, lines, self.options.nbest, request)

    def scores(
        self, searcher: Searcher, translations: Translations, request: SearchRequest
    ) -> list[np.ndarray]:
        """Computes the weighted sum for each hypothesis."""
        o = self.options
        weights_k = np.array([1.0, o.reverse_weight, o.lm_weight, o.length])
        terms = self.terms(searcher, translations, request)
        return [terms_nk @ weights_k for terms_nk in terms]

    def terms(
        self, searcher: Searcher, translations: Translations, request: SearchRequest
    ) -> list[np.ndarray]:
        """Computes the terms of the sum, without their weights.

        Returns:
          For each line float64 [hypotheses, 4]: the search's score; and divided by the
          penalty of the source's length, the log-probabilities of the reverse and of
          the language model (0 without them), and the number of tokens.
        """
        options = searcher.config.decode.override(**request.search)
        penalty, alpha = PENALTIES[options.penalty], options.alpha
        rows = [(t.source, h) for t in translations for h in t.hypotheses]
        reverse = self._reverse([(h.text, source) for source, h in rows])
        language = self._language([h.text for _, h in rows])
        encoded = searcher.vocabulary.source.encode([t.source for t in translations])
        lengths = [len(h.tokens) for _, h in rows]
        model_terms = zip(reverse, language, lengths, strict=True)
        terms = []
        for t, ids in zip(translations, encoded, strict=True):
            model_terms_nk = np.array([next(model_terms) for _ in t.hypotheses])
            model_terms_nk = model_terms_nk / penalty(len(ids) + 1, alpha)
            score_n1 = np.array([[h.score] for h in t.hypotheses])
            terms.append(np.concatenate([score_n1, model_terms_nk], axis=1))
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
        model = self.models["lm"]
        task = model.config.task.variant("kind")(model.config)  # knows its window
        ids = model.vocabulary.encode([*texts], end=True)
        token_log_probs = scoring.log_probs(
            model.vocabulary, model.members, ids, task.window, task.stride
        )
        return [math.fsum(log_probs) for log_probs in token_log_probs]

    def provenance(self) -> dict:
        """Returns the options, with hashes of parameters in place of folders."""
        values = {k: v for k, v in super().provenance().items() if k not in MODELS}
        return values | {
            name: model.provenance() for name, model in self.models.items()
        }


def _places(options: RerankingOptions) -> dict[str, str]:
    """The workdirs of the models that have a weight, by the name of the option."""
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


def _check_reverse(place: str, config: Config, forward: Config) -> None:
    kind, data, translation = config.task.kind, config.data, TaskConfig().kind
    if kind != translation:
        raise UserError(
            f"reverse={place} has config.task.kind={kind!r}; want a model of the task "
            f"{translation!r}, which translates back"
        )
    opposite = forward.data.target, forward.data.source
    direction = data.source, data.target
    if forward.task.kind == translation and not all(
        map(same_language, direction, opposite)
    ):
        raise UserError(
            f"reverse={place} translates {data.source} -> {data.target}; want the "
            f"opposite direction of this model, {opposite[0]} -> {opposite[1]}"
        )


def _check_lm(place: str, config: Config, forward: Config) -> None:
    if config.task.kind != "language_model":
        raise UserError(
            f"lm={place} has config.task.kind={config.task.kind!r}; want a model of "
            "the task 'language_model', trained on text of the target"
        )


CHECKS = {"reverse": _check_reverse, "lm": _check_lm}


# A choice is a class with the methods of `Choice`, and a line here.
CHOICES = {"probability": Probability, "mbr": MinimumBayesRisk, "rerank": Reranking}


def parse_choice(text: str) -> tuple[str, dict]:
    """Parses `"mbr:samples=32,utility=bleu"` into the entry and its options."""
    kinds = {name: choice.Options for name, choice in CHOICES.items()}
    return parse_variant("--choose", text, kinds)
