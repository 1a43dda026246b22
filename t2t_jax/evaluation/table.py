"""Scores the test sets of a run and prints them as a table."""

from collections.abc import Sequence

from t2t_jax.config import Config
from t2t_jax.data.corpus import Corpus, GrammarCorpus
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import comparisons, score_set
from t2t_jax.grammar.corpus import word_for_word
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.terminal.messages import say
from t2t_jax.workdir.workdir import Workdir


def score_all(
    workdir: Workdir, config: Config, tests: Sequence[Corpus]
) -> dict[str, dict]:
    """Scores test sets with the options of `config.decode` and prints a table.

    Returns:
      Scores by the name of the set, as in `scores/SET.json`.
    """
    if not tests:
        return {}
    translator = Translator.load(workdir, config.decode.checkpoint)
    steps = ", ".join(f"{s:,}" for s in translator.steps)
    one = len(translator.steps) == 1
    say(
        f"scoring with {'step' if one else 'the average of steps'} {steps}; "
        f"translations are in {workdir}/translations"
    )
    scores = {}
    for corpus in tests:
        scores[corpus.name] = score = score_set(translator, corpus, workdir)
        say(table_row(corpus, score))
    for line in comparisons(scores):
        say(line)
    return scores


def table_row(corpus: Corpus, score: dict) -> str:
    """One set's scores as a row; for the built-in corpus also the word-for-word BLEU.

    The word-for-word translation is the baseline that knows words but no grammar.
    """
    grammar = isinstance(corpus, GrammarCorpus)
    row = f"{corpus.name:12} {score['lines']:6,} lines   BLEU {score['bleu']:5.1f}   "
    if not grammar:  # named after their protocols, so that none passes for sacreBLEU
        for name in ("bleu_paper", "bleu_lc_tok"):
            row += f"{name} {score[name]:5.1f}   "
    row += f"chrF {score['chrf']:5.1f}   perplexity {score['perplexity']:.3f}"
    if not grammar:
        return row
    if corpus.source == "en":
        sources, references = zip(*corpus.pairs(), strict=True)
        words = [word_for_word(line) for line in sources]
        row += (
            f"   (word for word: BLEU {corpus_scores(words, references)['bleu']:.1f})"
        )
    return row
