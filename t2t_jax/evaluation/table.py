"""The test sets of a run, scored, as a table for a person."""

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
    """Scores test sets as `config.decode` says, and prints a table."""
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
    grammar = isinstance(corpus, GrammarCorpus)
    row = f"{corpus.name:12} {score['lines']:6,} lines   BLEU {score['bleu']:5.1f}   "
    if not grammar:  # the papers' protocols by their names, so that none is taken
        for name in ("bleu_paper", "bleu_lc_tok"):  # for sacreBLEU's
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
