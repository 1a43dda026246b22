"""Chooses among several hypotheses of a line: `CHOICES`."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from t2t_jax.config import Config
from t2t_jax.decoding.choice import Choice
from t2t_jax.decoding.minimum_bayes_risk import MinimumBayesRisk
from t2t_jax.decoding.reranking import Reranking
from t2t_jax.decoding.results import Translation
from t2t_jax.io.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator

# Numbers that agree to this many decimals are equal: the rest is rounding, which must
# not decide between hypotheses.
DECIMALS = 9


class Probability(Choice):
    """Takes what the search returns: the hypothesis with the highest score."""


# A choice is a class with the methods of `Choice`, and a line here.
CHOICES = {"probability": Probability, "mbr": MinimumBayesRisk, "rerank": Reranking}
PLAIN = "probability"


def choose(
    choice: Choice,
    translator: "Translator",
    lines: Sequence[str],
    nbest: int,
    search: dict,
) -> list[Translation]:
    """Translates lines; returns the `nbest` best hypotheses of each by a choice.

    They have different texts, and there may be fewer. `Hypothesis.score` is the number
    that the choice ranks by.

    Args:
      translator: with the choice "probability".
      search: the arguments of `Translator.translate`, except `lines` and `nbest`.

    Raises:
      UserError: an argument that the choice cannot follow, or a model that does not
        translate.
    """
    if nbest < 1:
        raise UserError(f"nbest={nbest}; want at least 1")
    if not translator.model.has_source:
        raise UserError(
            "a choice among hypotheses is for models that translate; "
            f"config.model.kind={translator.config.model.kind!r} has no source: leave "
            "out --choose, or set config.decode.choose='probability'"
        )
    found = choice.candidates(translator, lines, search)
    # A blank line, or one without a translation that meets its constraints, has a
    # single hypothesis without pieces.
    rows = [row for row, t in enumerate(found) if t.best.tokens]
    scores = choice.scores(translator, [found[row] for row in rows], search)
    for row, of_line in zip(rows, scores, strict=True):
        found[row] = ranked(found[row], of_line, nbest)
    return found


def ranked(
    translation: Translation, scores: Sequence[float], nbest: int
) -> Translation:
    """Orders hypotheses by other scores, the highest first; of equals the earlier.

    Of hypotheses with the same text only the first is kept.
    """
    order = np.argsort(-np.round(scores, DECIMALS), kind="stable")
    best: dict[str, int] = {}
    for n in order.tolist():
        best.setdefault(translation.hypotheses[n].text, n)
    kept = tuple(
        dataclasses.replace(translation.hypotheses[n], score=float(scores[n]))
        for n in [*best.values()][:nbest]
    )
    return dataclasses.replace(translation, hypotheses=kept)


def choice_of(config: Config) -> Choice:
    """Makes the choice of a config, and loads the models that it needs."""
    return config.decode.variant("choose")(config)


def check_choice(config: Config) -> None:
    """Checks that the choice of a config can be made, before a long run.

    Raises:
      UserError: it cannot; the message says what is missing.
    """
    config.decode.variant("choose").check(config)


def parse_choice(text: str) -> tuple[str, dict]:
    """Parses `"mbr:samples=32,utility=bleu"` into the entry and its options.

    Raises:
      UserError: no such entry or option, or a value of another type.
    """
    name, _, rest = text.partition(":")
    if name not in CHOICES:
        raise UserError(f"--choose={text!r}{did_you_mean(name, CHOICES)}")
    kind = CHOICES[name].Options
    known = {f.name: f for f in dataclasses.fields(kind)} if kind else {}
    options = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise UserError(
                f"--choose={text!r}: {part!r} is not OPTION=VALUE; write for example "
                "mbr:samples=32,utility=chrf (a folder's name cannot have a comma)"
            )
        if option not in known:
            suggested = did_you_mean(option, known) if known else "; it has none"
            raise UserError(f"--choose={text!r}: no option {option!r}{suggested}")
        if option in options:
            raise UserError(f"--choose={text!r}: {option} is given twice; want it once")
        wanted = type(known[option].default)
        try:
            options[option] = wanted(value)
        except ValueError:
            raise UserError(
                f"--choose={text!r}: {option}={value!r}; want {wanted.__name__}, such "
                f"as {known[option].default!r}"
            ) from None
    return name, options


def choice_fields(choose: str, options: dict) -> dict:
    """Returns the values of `config.decode` for a choice with options of its own.

    Args:
      choose: an entry of `CHOICES`, with options as for `parse_choice` or without.
      options: further options by name.

    Raises:
      UserError: as `parse_choice`.
    """
    name, written = parse_choice(choose)
    return {"choose": name, "options": written | options}


def described(choice: Choice, config: Config) -> dict:
    """Returns what translations depend on because of the choice; {} for "probability".

    Scores that were stored before there were choices are those of "probability".
    """
    name = config.decode.choose
    return {} if name == PLAIN else {"choose": {"name": name, **choice.provenance()}}
