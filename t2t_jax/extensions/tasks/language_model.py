"""Language modeling: one-sided text; bits per byte and perplexity."""

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from t2t_jax.config import Config
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.extensions.data.one_sided_text import documents, open_lines
from t2t_jax.io.errors import UserError
from t2t_jax.metrics import likelihoods
from t2t_jax.metrics.measures import Measure
from t2t_jax.sections import field
from t2t_jax.tasks.task import Task

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator


@dataclasses.dataclass(frozen=True)
class LanguageModelOptions:
    """Options of `language_model`."""

    # "line": each line is an example. "document": empty lines separate the examples.
    unit: str = field("line", ("line", "document"))
    # Tokens that the model reads at a time when it is scored; 0: data.max_length.
    window: int = field(0, low=0, safe=True)
    # Tokens from one window to the next, for texts that are longer; 0: half a window.
    stride: int = field(0, low=0, safe=True)


class LanguageModel(Task):
    """Predicts text from its beginning.

    Texts of more than `config.data.max_length` tokens are trained on in consecutive
    blocks of that length, and scored with a window that slides along them. An answer is
    the log-probability of the text and its number of tokens.
    """

    Options = LanguageModelOptions
    has_source = False
    sides = (1,)
    cuts = True
    unused = ("alignments", "choose", "confidence", "min_confidence")
    measures: ClassVar[dict[str, Measure]] = likelihoods.LIKELIHOODS

    def __init__(self, config: Config):
        super().__init__(config)
        self.window = self.options.window or config.data.max_length
        self.stride = self.options.stride or -(-self.window // 2)
        if self.stride > self.window:
            raise UserError(
                f"config.task.options.stride={self.stride} is more than the window of "
                f"{self.window} tokens, and would skip text; want at most the window "
                "(config.task.options.window, or config.data.max_length)"
            )

    def open(self, spec: str, folder: str = "") -> Corpus:
        """Opens a text: its lines, or with `unit="document"` its documents."""
        data = self.config.data
        lines = open_lines(spec, data.source, data.target, folder)
        return lines if self.options.unit == "line" else documents(lines)

    def answers(
        self, translator: "Translator", pairs: Sequence[Pair], warn: bool = True
    ) -> list[str]:
        """Computes the log-probability and the number of tokens of each text."""
        from t2t_jax.decoding import scoring  # imports JAX

        vocabulary = translator.vocabulary
        texts = vocabulary.encode([text for _, text in pairs], end=True)
        log_probs = scoring.log_probs(
            vocabulary, translator.members, texts, self.window, self.stride
        )
        return [likelihoods.answer(math.fsum(x), len(x)) for x in log_probs]

    def example(self, answer: str, pair: Pair) -> list[str]:
        """Formats the score of a text, and the text on one line."""
        log_prob, pieces = answer.split("\t")
        text = textwrap.shorten(pair[1], 200, placeholder=" ...")
        return [f"log_prob {log_prob} of {pieces} tokens: {text}"]
