"""`Explanation`: what a model says of some sentences, as arrays and as a page.

Shape suffixes: s source, t target.
"""

import dataclasses
import html
from collections.abc import Sequence
from typing import NamedTuple

from etils import epath

from t2t_jax.decoding.alignment import HeadSummary, Rollout
from t2t_jax.decoding.results import AttentionMaps, Hypothesis
from t2t_jax.io.atomic import keep_earlier, write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.tools.explain.attribution import Attribution
from t2t_jax.tools.explain.beam_tree import BeamTree
from t2t_jax.tools.explain.continuations import Continuation
from t2t_jax.tools.explain.coverage import Coverage
from t2t_jax.tools.explain.distribution import Distribution
from t2t_jax.tools.explain.layers import Lens
from t2t_jax.tools.explain.words import Words
from t2t_jax.tools.pages.page import page


class Missing(NamedTuple):
    """A part that a model does not have: the reason, a sentence."""

    why: str


class Difference(NamedTuple):
    """The first piece at which a reading differs from the other one of its sentence.

    Attributes:
      position: its place in the target, from 0.
      rival: the other reading's token there.
    """

    position: int
    rival: int


class Contrast(NamedTuple):
    """Attributions of pieces, and of their margin over others.

    Attributes:
      said: attributions of the pieces of a reading.
      rivals: for each of them, a token that might have been said instead.
      contrast: attributions of log p(piece) - log p(rival).
    """

    said: Attribution
    rivals: tuple[int, ...]
    contrast: Attribution


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """A target of a sentence, as the model reads it piece by piece.

    Attributes:
      name: `translation`, found by the search, or `target`, which was given.
      hypothesis: its text, tokens, log-probability and score.
      pieces: readable, `</s>` last if it ended.
      distribution: the probability of each piece, and what else was probable.
      continuations: what the search says after other pieces.
      maps: all attention weights.
      heads: for `encoder`, `decoder` and `cross`: entropy and place of each head.
      lens: what each decoder layer would predict.
      attribution: the effect of each piece read on each piece said.
    """

    name: str
    hypothesis: Hypothesis
    pieces: tuple[str, ...]
    words: Words
    distribution: Distribution
    continuations: tuple[Continuation, ...]
    difference: Difference | None
    maps: AttentionMaps | Missing
    heads: dict[str, HeadSummary]
    rollout: Rollout | Missing
    coverage: Coverage | Missing
    lens: Lens | Missing
    attribution: Contrast | Missing


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedSentence:
    """A line and what a model makes of it.

    Attributes:
      source: the line.
      pieces: its pieces, `</s>` last.
      cut: the number of pieces at its end that are not translated.
      tree: of the search.
      readings: the translation, then the given target, if there is one.
      reference_score: the target's score in the terms of the search; None without one.
    """

    source: str
    pieces: tuple[str, ...]
    words: Words
    cut: int
    tree: BeamTree
    readings: tuple[Reading, ...]
    reference_score: float | None

    @property
    def translation(self) -> Reading:
        """The reading of the search's translation."""
        return self.readings[0]


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedModel:
    """A translator's explanations.

    Attributes:
      direction: source and target language.
      passport: (name, value) rows: everything that the explanations depend on.
      piece_of: the readable piece of each token id of the target.
    """

    name: str
    kind: str
    direction: tuple[str, str]
    passport: tuple[tuple[str, str], ...]
    piece_of: tuple[str, ...] = dataclasses.field(repr=False)
    sentences: tuple[ExplainedSentence, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """Explained translations; shown as a page in a notebook.

    Attributes:
      models: one, or two side by side, with the same sentences.
    """

    models: tuple[ExplainedModel, ...]

    @property
    def sentences(self) -> tuple[ExplainedSentence, ...]:
        """The sentences of the first model."""
        return self.models[0].sentences

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The readings of the first sentence."""
        return self.sentences[0].readings

    def __repr__(self) -> str:
        names = " beside ".join(model.name for model in self.models)
        count = len(self.sentences)
        return f"Explanation({names}, {count} sentence{'s' * (count > 1)})"

    def beside(self, other: "Explanation") -> "Explanation":
        """Returns both models' explanations of the same sentences, side by side.

        Raises:
          UserError: the sentences differ, or there would be more than two models.
        """
        lines, others = (
            [sentence.source for sentence in each.sentences] for each in (self, other)
        )
        if lines != others:
            raise UserError(
                "the explanations are of different sentences; explain the same lines "
                "with both translators"
            )
        models = self.models + other.models
        if len(models) > 2:
            raise UserError(f"got {len(models)} models; want two side by side")
        return Explanation(models)

    def with_passport(self, rows: Sequence[tuple[str, str]]) -> "Explanation":
        """Returns the same with further (name, value) rows in each passport."""
        return Explanation(
            tuple(
                dataclasses.replace(model, passport=(*model.passport, *rows))
                for model in self.models
            )
        )

    def html(self, title: str | None = None) -> str:
        """Returns a self-contained page: HTML that loads nothing."""
        # That file reads the classes above.
        from t2t_jax.tools.explain.to_payload import to_payload

        return page(to_payload(self, title))

    def save(self, path: epath.PathLike, title: str | None = None) -> None:
        """Writes the page to a file; one that is there already is kept as NAME.1."""
        content = self.html(title).encode()
        keep_earlier(path)
        write_atomically(path, content)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that styles and names do not mix."""
        return (
            f'<iframe srcdoc="{html.escape(self.html())}" '
            f'title="{html.escape(repr(self))}" '
            'style="width: 100%; height: 46rem; border: 1px solid #8888"></iframe>'
        )
