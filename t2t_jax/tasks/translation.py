"""Translation, the task of the paper: sentence pairs in, BLEU, chrF and TER out."""

import hashlib
from collections.abc import Sequence
from typing import ClassVar

from t2t_jax.data.corpus import Corpus, Pair, built_in_grammar, scheme_of
from t2t_jax.io.messages import say
from t2t_jax.metrics.measures import Measure
from t2t_jax.metrics.plain import (
    MOSES,
    by_words,
    corpus_scores,
    meaningless,
    paper_scores,
    plain_scores,
    tokenized_scores,
)
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.tasks.task import Task
from t2t_jax.text.languages import identify

LOOKS_TOKENIZED = 100  # lines that end so, as sacreBLEU counts them


class Translation(Task):
    """Translation between two languages; scored by sacreBLEU.

    Its scores and their intervals are sacreBLEU's, so they are not `measures`; systems
    are compared by `metrics/text_measures.py`.
    """

    chosen_by = "bleu"
    drops_uneven = True
    varies = ("augment", "subword_dropout")
    printed: ClassVar[dict[str, str]] = {
        "bleu": "sacreBLEU of plain text",
        "bleu_paper": "tokenized, cased",
        "bleu_lc_tok": "tokenized, lower-cased",
        "chrf": "chrF2",
        "ter": "TER, less is better",
    }

    def scores(
        self, answers: Sequence[str], pairs: Sequence[Pair], corpus: Corpus
    ) -> dict:
        """Computes the scores of `metrics/`, with their signatures."""
        references = [[target for _, target in pairs], *corpus.further]
        sides = answers, references, corpus.target
        tokenized = sum(line.endswith(" .") for line in answers)
        if tokenized >= LOOKS_TOKENIZED:
            say(
                f"warning: {tokenized:,} translations of {corpus.name} end in ' .', as "
                "tokenized text does: want plain text for training and scoring, or "
                "BLEU is not comparable"
            )
        return (
            plain_scores(*sides)
            | paper_scores(*sides, corpus.source)
            | tokenized_scores(*sides)
        )

    def quick_scores(
        self, answers: Sequence[str], pairs: Sequence[Pair]
    ) -> dict[str, float]:
        """Computes BLEU and chrF of plain text."""
        references = [target for _, target in pairs]
        scores = corpus_scores(answers, references, self.config.data.target)
        return {name: scores[name] for name in ("bleu", "chrf")}

    def example(self, answer: str, pair: Pair) -> list[str]:
        """Formats a translation between its source and its reference."""
        source, target = pair
        rows = {"source": source, "translation": answer, "reference": target}
        return [f"{name:12} {line}" for name, line in rows.items()]

    def measures_of(self, corpus: Corpus) -> dict[str, Measure]:
        """Returns the scores of text of the target language."""
        return text_measures(corpus.target, corpus.further)

    def score_options(self, corpus: Corpus) -> dict:
        """Names the tokenizer of `bleu_mecab`, and hashes further references."""
        words = by_words(corpus.target)
        options = {"words": words[0]} if words and words[1] else {}
        if corpus.further:
            texts = ["".join(f"{x}\n" for x in lines) for lines in corpus.further]
            hashes = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
            options |= {"references": len(texts) + 1, "further_sha256": hashes}
        return options

    def printed_of(self, corpus: Corpus) -> dict[str, str]:
        """Leaves out what means nothing for a language; adds sacreBLEU's default."""
        printed = {**self.printed}
        for name in meaningless(corpus.target):
            printed.pop(name, None)
        if words := by_words(corpus.target):
            package, metric = words
            hint = "" if metric else f" (pip install '{package}')"
            printed["bleu_mecab"] = f"by words, sacreBLEU's default{hint}"
        return printed

    def compare_with(self, corpus: Corpus) -> str:
        """Leaves it to `evaluation/provenance.py`."""
        return ""

    def row(self, scores: dict, corpus: Corpus) -> str:
        """Formats BLEU and chrF; for the built-in corpus also the word-for-word BLEU.

        The word-for-word translation is the baseline that knows words but no grammar.
        """
        grammar = scheme_of(corpus.spec) == "grammar"
        row = f"BLEU {scores['bleu']:5.1f}   "
        # Named after their protocols: none passes for sacreBLEU.
        for name in () if grammar else MOSES:
            if name not in meaningless(corpus.target):
                row += f"{name} {scores[name]:5.1f}   "
        row += f"chrF {scores['chrf']:5.1f}   perplexity {scores['perplexity']:.3f}"
        if not grammar or identify(corpus.source).code != "en":
            return row
        sources, references = zip(*corpus.pairs(), strict=True)
        word_for_word = built_in_grammar().word_for_word
        words = [word_for_word(source, corpus.name) for source in sources]
        bleu = corpus_scores(words, references)["bleu"]
        return f"{row}   (word for word: BLEU {bleu:.1f})"
