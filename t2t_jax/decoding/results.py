"""What a translator returns: typed, and readable in a notebook."""

import dataclasses
import math

import numpy as np

from t2t_jax.metrics.perplexity import perplexity


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation of a line.

    Attributes:
      text: what a person reads.
      score: log_prob / length penalty, what hypotheses are ranked by.
      log_prob: natural logarithm, over all pieces and the end of the sentence.
      ended: False if it reached its longest length before its end.
      tokens: the ids of its pieces, with the end of the sentence if it ended. The same
        text could be other pieces, of another probability.
    """

    text: str
    score: float
    log_prob: float
    ended: bool
    tokens: tuple[int, ...] = dataclasses.field(default=(), repr=False)

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Translation:
    """What was found for a line; `str(translation)` is the best text.

    Attributes:
      source: the line.
      hypotheses: best first; samples in the order in which they were drawn.
      cut: how many pieces at the end of the line were too many to be translated.
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

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        parts = [repr(self.text), f"score={self.score:.4f}"]
        if len(self.hypotheses) > 1:
            parts.append(f"{len(self.hypotheses)} hypotheses")
        if not self.ended:
            parts.append("not ended")
        if self.cut:
            parts.append(f"{self.cut} pieces of the source cut")
        return f"Translation({', '.join(parts)})"


@dataclasses.dataclass(frozen=True)
class Score:
    """How probable a model finds a target, given its source.

    Attributes:
      pieces: the target's, as a person reads them; the last is the end of the sentence.
      log_probs: natural logarithm of each.
      score: log_prob / length penalty, as a search would rank it.
    """

    pieces: tuple[str, ...]
    log_probs: tuple[float, ...] = dataclasses.field(repr=False)
    score: float

    @property
    def log_prob(self) -> float:
        """Of the target: the sum over its pieces."""
        return math.fsum(self.log_probs)

    @property
    def perplexity(self) -> float:
        """Per piece, end of the sentence included."""
        return perplexity(-self.log_prob / len(self.log_probs))

    def __repr__(self) -> str:
        return (
            f"Score(log_prob={self.log_prob:.4f}, {len(self.pieces)} pieces, "
            f"perplexity={self.perplexity:.3f})"
        )


@dataclasses.dataclass(frozen=True)
class Alignment:
    """Which word of the source each word of the target comes from.

    Words are what white space divides, counted from 0. `str(alignment)` is the Pharaoh
    format: `0-0 1-2`, source-target.
    """

    links: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return " ".join(f"{source}-{target}" for source, target in self.links)


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The attention weights of one pair; each row sums to 1 (section 3.2.1).

    Attributes:
      source, target: pieces, `</s>` last.
      read: pieces that the decoder reads where it predicts `target`: `<s>` first.
      encoder: float32 [layers, heads, source, source].
      decoder: float32 [layers, heads, target, target], queries first; row t is of the
        position that predicts piece t and has read `read[: t + 1]`.
      cross: float32 [layers, heads, target, source].
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray

    @property
    def read(self) -> tuple[str, ...]:
        return ("<s>", *self.target[:-1])

    def __repr__(self) -> str:
        layers, heads = self.cross.shape[:2]
        return (
            f"AttentionMaps({len(self.source)} source pieces, {len(self.target)} "
            f"target pieces, {layers} layers of {heads} heads)"
        )

    def plot(self, which: str = "cross", layer: int | None = None, head=None, ax=None):
        """Draws a heat map: rows are queries, columns are what they look at.

        Args:
          which: `cross`, `encoder` or `decoder`.
          layer: from 0; the mean of all if None.
          head: from 0; the mean of all if None.
          ax: a matplotlib axis; a new figure's, with a colour bar, if None. White is 0,
            the darkest blue this map's largest weight; `ax.images[0].set_clim(0, 1)`
            gives maps that are drawn side by side one scale.

        Returns:
          The matplotlib axis. Needs matplotlib (`pip install matplotlib`).
        """
        import matplotlib.pyplot as plt  # only who draws needs it

        labels = {
            "cross": (self.target, self.source),
            "encoder": (self.source, self.source),
            "decoder": (self.target, self.read),
        }
        if which not in labels:
            raise ValueError(f"which={which!r}; want one of {', '.join(labels)}")
        weights = getattr(self, which)
        weights = weights.mean(0) if layer is None else weights[layer]
        weights = weights.mean(0) if head is None else weights[head]
        rows, columns = labels[which]
        alone = ax is None
        if alone:
            size = 2.5 + 0.32 * len(columns), 1.5 + 0.32 * len(rows)
            ax = plt.subplots(figsize=size, layout="constrained")[1]
        image = ax.imshow(weights, cmap="Blues", vmin=0, vmax=max(weights.max(), 1e-9))
        if alone:
            ax.figure.colorbar(image, ax=ax, label="weight", shrink=0.6)
        plain = {"parse_math": False}  # a "$" in a piece is a dollar
        ax.set_xticks(range(len(columns)), columns, rotation=90, **plain)
        ax.set_yticks(range(len(rows)), rows, **plain)
        ax.tick_params(length=0)
        ax.set_xlabel("looks at")
        ax.set_ylabel("predicts" if which != "encoder" else "position of")
        of = [
            f"{name} {n}"
            for name, n in (("layer", layer), ("head", head))
            if n is not None
        ]
        ax.set_title(", ".join([f"{which} attention", *(of or ["mean"])]))
        return ax
