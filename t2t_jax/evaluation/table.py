"""Scores the test sets of a run and prints them as a table."""

from collections.abc import Sequence

from t2t_jax.config import Config
from t2t_jax.data.corpus import Corpus
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import comparisons, score_set
from t2t_jax.io.messages import say
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from t2t_jax.workdir import Workdir


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
        f"answers are in {workdir}/translations"
    )
    scores = {}
    for corpus in tests:
        scores[corpus.name] = score = score_set(translator, corpus, workdir)
        say(table_row(task_of(config).of(corpus), corpus, score))
    for line in comparisons(scores):
        say(line)
    return scores


def table_row(task: Task, corpus: Corpus, scores: dict) -> str:
    """Formats one set's scores as a row of the table."""
    return f"{corpus.name:12} {scores['lines']:6,} lines   {task.row(scores, corpus)}"
