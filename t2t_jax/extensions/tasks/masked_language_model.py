"""Masked language modeling: hidden tokens of one-sided text are restored."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.results import Translation
from t2t_jax.extensions.data.noise import MASK, Masking, MaskingOptions, Noise
from t2t_jax.extensions.data.one_sided_text import open_lines
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import Measure, percent
from t2t_jax.tasks.task import OF_SEARCH, Task

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator


def counts(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """Reads (correct, hidden, log-probability of the hidden tokens) off each answer."""
    rows = np.zeros((len(answers), 3))
    for number, line in enumerate(answers, 1):
        try:
            rows[number - 1] = [float(field) for field in line.split("\t")[:3]]
        except ValueError:
            raise UserError(
                f"line {number} of the answers: got {line[:60]!r}; want CORRECT, "
                "HIDDEN, LOG_PROB and PIECES, separated by tabs, as in translations/ "
                "of a workdir"
            ) from None
    return rows


class MaskedLanguageModel(Task):
    """The masked language model of BERT, without its second task.

    An answer is `CORRECT tab HIDDEN tab LOG_PROB tab PIECES`: how many of the hidden
    tokens are the most probable ones, how many are hidden, the sum of their
    log-probabilities, and as JSON the hidden token, the most probable one and its
    probability of each place. Dev and test sets always have the same tokens hidden.
    """

    Options = MaskingOptions
    predicts = "source"
    sides = (1,)
    symbols = (MASK,)
    unused = (*OF_SEARCH, "nbest")
    measures: ClassVar[dict[str, Measure]] = {
        "accuracy": Measure("% of hidden tokens", counts, percent),
        "masked_perplexity": Measure(
            "of hidden tokens, less is better",
            counts,
            lambda sums: np.exp(-sums[..., 2] / np.maximum(sums[..., 1], 1)),
            higher_is_better=False,
        ),
    }

    def open(self, spec: str, folder: str = "") -> Corpus:
        """Opens one-sided text (see `open_lines`)."""
        data = self.config.data
        return open_lines(spec, data.source, data.target, folder)

    @property
    def vocab_sizes(self) -> tuple[int, ...]:
        """The number of tokens of the one tokenizer."""
        if not self.config.data.joint_vocabulary:
            raise UserError(
                "config.data.joint_vocabulary=False, but a masked language model reads "
                "and predicts the same tokens; leave it at True"
            )
        return self.config.data.vocab_sizes

    @property
    def predicted_share(self) -> float:
        """The share of hidden pieces."""
        return self.options.mask_rate

    def noise(
        self, vocabulary: Vocabulary, texts: Sequence[tuple[Corpus, int]]
    ) -> Noise:
        """Hides other subwords in each epoch."""
        return Masking(vocabulary, self.options)

    def respond(
        self,
        translator: "Translator",
        lines: Sequence[str],
        search: Callable[..., list[Translation]],
        nbest: int = 1,
        first_line: int = 1,
    ) -> list[Translation]:
        """Fills each `<mask>` of the lines; a score is the product of probabilities."""
        filled_lines = translator.fill(lines, first_line=first_line)
        return [
            Translation(line, (filled.hypothesis(),))
            for line, filled in zip(lines, filled_lines, strict=True)
        ]

    def answers(
        self, translator: "Translator", pairs: Sequence[Pair], warn: bool = True
    ) -> list[str]:
        """Computes the probabilities of the hidden tokens of each line."""
        from t2t_jax.extensions.decoding.predictions import restore  # imports JAX

        masking = Masking(translator.vocabulary, self.options)
        lines = [line for _, line in pairs]
        restored = restore(
            translator.vocabulary, translator.members, lines, masking, warn
        )
        answers = []
        for pieces in restored:
            correct = sum(p.hidden == p.predicted for p in pieces)
            log_prob = sum(p.log_prob for p in pieces)
            entries = [(p.hidden, p.predicted, round(p.probability, 3)) for p in pieces]
            as_json = json.dumps(entries, ensure_ascii=False)
            answers.append(f"{correct}\t{len(pieces)}\t{log_prob:.6f}\t{as_json}")
        return answers

    def example(self, answer: str, pair: Pair) -> list[str]:
        """Formats the hidden tokens of a line, and what was predicted."""
        pieces = json.loads(answer.split("\t")[3])
        replacements = ", ".join(
            f"{was} -> {best} ({p:.2f})" for was, best, p in pieces
        )
        return [f"{'line':12} {pair[1]}", f"{'hidden':12} {replacements}"]
