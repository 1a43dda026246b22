"""Results of a translator: typed, and readable in a notebook."""

import dataclasses
import math

import numpy as np

from t2t_jax.metrics.likelihoods import perplexity
from t2t_jax.text.units import core
from t2t_jax.text.words import TokenWords


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation of a line.

    Attributes:
      text: plain text, on one line.
      score: log_prob / length penalty; hypotheses are ranked by it.
      log_prob: natural logarithm, summed over all tokens and EOS.
      ended: False if it reached its length limit without EOS.
      tokens: the ids of its tokens, with EOS if it ended. The same text can be split
        into other subwords, with another probability.
      vocabulary: the SHA-256 of the tokenizer that the tokens are of; empty if unknown.
    """

    text: str
    score: float
    log_prob: float
    ended: bool
    tokens: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    vocabulary: str = dataclasses.field(default="", repr=False, compare=False)

    @property
    def failure(self) -> str:
        """Why a search found nothing for a line; empty if it found this."""
        if math.isfinite(self.log_prob):
            return ""
        if math.isnan(self.log_prob):
            return "the model's probabilities are not finite (NaN)"
        return "no translation meets its constraints"

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Translation:
    """The hypotheses for a line; `str(translation)` is the text of the best one.

    Attributes:
      source: the line.
      hypotheses: best first; samples in the order of drawing.
      cut: the number of tokens at the end of a too long line that were not translated.
    """

    source: str
    hypotheses: tuple[Hypothesis, ...]
    cut: int = 0

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]

    @property
    def text(self) -> str:
        return self.best.text

    @property
    def score(self) -> float:
        return self.best.score

    @property
    def log_prob(self) -> float:
        return self.best.log_prob

    @property
    def ended(self) -> bool:
        return self.best.ended

    def distinct(self, count: int | None = None) -> "Translation":
        """Keeps the first hypothesis of each text, and at most `count` of these.

        A search finds a text several times, split into different tokens.
        """
        by_text: dict[str, Hypothesis] = {}
        for hypothesis in self.hypotheses:
            by_text.setdefault(hypothesis.text, hypothesis)
        return dataclasses.replace(self, hypotheses=(*by_text.values(),)[:count])

    def surrounded(self, text: str) -> "Translation":
        """Returns the translation of a text whose `core` was the source."""
        begin, end = core(text)
        leading, trailing = text[:begin], text[end:]
        hypotheses = (
            dataclasses.replace(
                hypothesis, text=f"{leading}{hypothesis.text}{trailing}"
            )
            for hypothesis in self.hypotheses
        )
        return dataclasses.replace(self, source=text, hypotheses=tuple(hypotheses))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        parts = [repr(self.text), f"score={self.score:.4f}"]
        if len(self.hypotheses) > 1:
            parts.append(f"{len(self.hypotheses)} hypotheses")
        if not self.ended:
            parts.append("not ended")
        if self.cut:
            parts.append(f"{self.cut} tokens of the source cut")
        return f"Translation({', '.join(parts)})"


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The label of a sentence; `str(prediction)` is the label.

    Attributes:
      label: the most probable one.
      probabilities: of all labels; they sum to 1.
    """

    label: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        """The probability of the label."""
        return self.probabilities[self.label]

    def ranked(self) -> tuple[Hypothesis, ...]:
        """The labels as hypotheses, best first; their scores are probabilities."""
        best = sorted(self.probabilities.items(), key=lambda item: -item[1])
        return tuple(
            Hypothesis(label, p, math.log(p) if p else -math.inf, ended=True)
            for label, p in best
        )

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"Prediction({self.label!r}, probability={self.probability:.4f})"


@dataclasses.dataclass(frozen=True)
class Score:
    """The probability of a target given its source.

    Attributes:
      pieces: the target's tokens, readable; the last one is EOS.
      log_probs: the natural logarithm of each token's probability.
      score: log_prob / length penalty, as in a search.
    """

    pieces: tuple[str, ...]
    log_probs: tuple[float, ...] = dataclasses.field(repr=False)
    score: float

    @property
    def log_prob(self) -> float:
        """The log-probability of the target, summed over its pieces."""
        return math.fsum(self.log_probs)

    @property
    def perplexity(self) -> float:
        """The perplexity per token, EOS included."""
        return perplexity(-self.log_prob / len(self.log_probs))

    def __repr__(self) -> str:
        return (
            f"Score(log_prob={self.log_prob:.4f}, {len(self.pieces)} tokens, "
            f"perplexity={self.perplexity:.3f})"
        )


@dataclasses.dataclass(frozen=True)
class Alignment:
    """A word alignment of a pair: (source word, target word) links.

    Words are what ASCII white space separates, counted from 0. `str(alignment)` is in
    the Pharaoh format: `0-0 1-2`, source-target.
    """

    links: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return " ".join(f"{source}-{target}" for source, target in self.links)


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The attention weights of one pair; each row sums to 1 (section 3.2.1).

    Attributes:
      source, target: tokens, `</s>` last.
      read: the decoder's input tokens: `target` shifted right by one, after `<s>`.
      encoder: float32 [layers, heads, source, source], queries before keys.
      decoder: float32 [layers, heads, target, target]. Row t predicts `target[t]` and
        attends to `read[: t + 1]`.
      cross: float32 [layers, heads, target, source].
      units: words and signs of source and target, and the tokens of each.

    A model without attention within the source or the target has 0 layers of it.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray
    units: tuple[TokenWords, ...] = ()

    @property
    def read(self) -> tuple[str, ...]:
        return ("<s>", *self.target[:-1])

    def __repr__(self) -> str:
        layers, heads = self.cross.shape[:2]
        return (
            f"AttentionMaps({len(self.source)} source tokens, {len(self.target)} "
            f"target tokens, {layers} layers of {heads} heads)"
        )

    def plot(self, which: str = "cross", layer: int | None = None, head=None, ax=None):
        """Draws a heat map: rows are queries, columns are keys.

        Needs matplotlib (`pip install matplotlib`).

        Args:
          which: `cross`, `encoder` or `decoder`.
          layer: from 0; the mean of all layers if None.
          head: from 0; the mean of all heads if None.
          ax: matplotlib axes; those of a new figure with a colour bar if None. White is
            0, the darkest blue is the largest weight of this map. To compare several
            maps, give them one scale: `ax.images[0].set_clim(0, 1)`.

        Returns:
          The matplotlib axes.
        """
        import matplotlib.pyplot as plt  # an optional dependency

        labels = {
            "cross": (self.target, self.source),
            "encoder": (self.source, self.source),
            "decoder": (self.target, self.read),
        }
        if which not in labels:
            raise ValueError(f"which={which!r}; want one of {', '.join(labels)}")
        weights = getattr(self, which)
        if not len(weights):
            raise ValueError(f"which={which!r}: the model has none; want 'cross'")
        weights = weights.mean(0) if layer is None else weights[layer]
        weights = weights.mean(0) if head is None else weights[head]
        rows, columns = labels[which]
        new_figure = ax is None
        if new_figure:
            size = 2.5 + 0.32 * len(columns), 1.5 + 0.32 * len(rows)
            ax = plt.subplots(figsize=size, layout="constrained")[1]
        image = ax.imshow(weights, cmap="Blues", vmin=0, vmax=max(weights.max(), 1e-9))
        if new_figure:
            ax.figure.colorbar(image, ax=ax, label="weight", shrink=0.6)
        plain = {"parse_math": False}  # or matplotlib reads "$" as the start of TeX
        ax.set_xticks(range(len(columns)), columns, rotation=90, **plain)
        ax.set_yticks(range(len(rows)), rows, **plain)
        ax.tick_params(length=0)
        ax.set_xlabel("looks at")
        # The decoder's row of a token is the position that predicts it, one earlier.
        ax.set_ylabel("predicts" if which != "encoder" else "position of")
        selection = [
            f"{name} {n}"
            for name, n in (("layer", layer), ("head", head))
            if n is not None
        ]
        ax.set_title(", ".join([f"{which} attention", *(selection or ["mean"])]))
        return ax
