"""Scores a translator from Python, as the command `evaluate` does."""

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence

from t2t_jax.data.corpus import Corpus, Pair, distinct, open_specs
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import Workdirs, score_set
from t2t_jax.extensions.evaluation.references import with_references
from t2t_jax.extensions.training.batch_loss import checked_pairs
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.table import task_of


def evaluate(
    translator: Translator,
    test: str | Sequence[Pair],
    workdir: Workdirs | None = None,
    intervals: bool = True,
    references: str | Sequence[str | Sequence[str]] = (),
) -> dict[str, dict]:
    """Scores a translator on test sets, as the command `evaluate` does.

    Args:
      test: sets as in --test, such as "mine/test" for mine/test.en and mine/test.de;
        or a list of (source, reference) texts, whose set is called "pairs".
      workdir: that of the translator (of an ensemble those of its members), to read and
        store scores and translations there; None stores nothing.
      intervals: also returns 95% confidence intervals, by bootstrap over the lines.
      references: further references of the one set, as in --references; or a list of
        files or of lists of lines. The set is then called NAME+3refs.

    Returns:
      For each set, by name, the scores: bleu, chrf, perplexity, bleu_interval
      (mean, half_width), signature, compare_with, and others (docs/runs.md).

    Raises:
      UserError: no such set, or `test` is neither a string nor pairs of texts.
    """
    task, data = task_of(translator.config), translator.config.data
    if isinstance(test, str | os.PathLike):
        test = os.fspath(test)
        corpora = distinct(open_specs(test, task.open))
    else:
        corpora = [_given(test, data.source, data.target)]
    if references:
        corpora = with_references(corpora, references, task)
    if not corpora:
        raise UserError(f"test={test!r} names no test set; want a PREFIX, or pairs")
    with tempfile.TemporaryDirectory() as scratch:
        places = workdir or [scratch] * len(translator.members)
        scores = {c.name: score_set(translator, c, places) for c in corpora}
    hidden = "members" if workdir is None else ""  # their folders were temporary
    return {
        name: {
            key: value
            for key, value in of_set.items()
            if key != hidden and (intervals or not key.endswith("_interval"))
        }
        for name, of_set in scores.items()
    }


def _given(pairs: Sequence[Pair], source: str, target: str) -> Corpus:
    """A test set of pairs in memory."""
    pairs = checked_pairs(pairs)
    content = json.dumps(pairs, ensure_ascii=False).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    return Corpus("pairs", "pairs", source, target, lambda: iter(pairs), lambda: sha256)
