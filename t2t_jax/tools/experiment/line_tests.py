"""Tests over test lines: are one row's answers to a set better than another's?"""

import hashlib
import json
from pathlib import Path

from t2t_jax.data.corpus import Corpus
from t2t_jax.evaluation.provenance import hashed
from t2t_jax.evaluation.scores import TRANSLATIONS
from t2t_jax.io.atomic import write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import TESTS
from t2t_jax.tasks.table import known_measures, task_of
from t2t_jax.tools.experiment.results import RowResult, RunResult, read_json

CACHE = "line_p_values.json"  # in the experiment's folder; the tests take seconds each
METRICS = ("bleu", "bleu_lc", "chrf", "ter")  # of translations


def has_lines(row: RowResult, column: str) -> bool:
    """True if the column is a score of the row's answers to a test set."""
    test_set, _, metric = column.rpartition(".")
    if test_set in ("dev", "train"):
        return False
    # Other tasks have an interval of each score that follows from sums over lines.
    name = metric if metric in METRICS else f"{metric}_interval"
    known = metric in METRICS or metric in known_measures()
    return known and any(name in run.scores(test_set) for run in row.runs)


def line_p_values(
    ours: RowResult, theirs: RowResult, column: str, folder: Path
) -> dict[str, float]:
    """Compares two rows' answers, line by line, by each test of `TESTS`.

    The runs are compared in pairs: the first seed of one row with the first seed of
    the other, and so on.

    Args:
      column: `SET.METRIC`, for which `has_lines` is true of both.
      folder: keeps the p-values of earlier calls in `CACHE`.

    Returns:
      By test, the largest p of all pairs. A pair whose difference has the opposite
      sign of the difference between the means has p = 1.

    Raises:
      UserError: answers or references are missing or have changed.
    """
    difference = ours.mean(column) - theirs.mean(column)
    # Not strict: a row may have fewer seeds.
    pairs = [
        pair
        for pair in zip(ours.runs, theirs.runs, strict=False)
        if all(run.value(column) is not None for run in pair)
    ]
    if not pairs:
        raise UserError("no two runs of the same seed are scored")
    found = [_pair(*pair, column, folder) for pair in pairs]
    return {
        test: max(
            pair[test] if pair["difference"] * difference > 0 else 1.0 for pair in found
        )
        for test in TESTS
    }


def _pair(
    ours: RunResult, theirs: RunResult, column: str, folder: Path
) -> dict[str, float]:
    """The p-values of two runs, and the difference between their scores."""
    test_set, _, metric = column.rpartition(".")
    scores = ours.scores(test_set)
    if scores["sha256"] != theirs.scores(test_set)["sha256"]:
        raise UserError(f"the two were scored on different lines of {test_set}")
    task = task_of(ours.run.config)
    # A scored place starts at the current folder: it includes config.data.dir.
    corpus = task.open(scores["set"])
    answers = [_answers(run, test_set, corpus) for run in (ours, theirs)]
    hashes = [hashlib.sha256(content).hexdigest() for content in answers]
    # The place alone would miss a change of its files.
    key = " ".join([*hashes, scores["set"], scores["sha256"], metric])
    cached = _read_cache(folder)
    if key not in cached:
        pairs = task.of(corpus).examples(corpus)
        if hashed([target for _, target in pairs]) != scores["reference_sha256"]:
            raise UserError(f"{corpus.place} has changed since it was scored")
        # Not splitlines(), which would also split at characters such as U+2028.
        lines = [content.decode().split("\n")[:-1] for content in answers]
        found = task.of(corpus).significance(metric, *lines, pairs, corpus)
        cached[key] = found
        write_atomically(folder / CACHE, json.dumps(cached, indent=1).encode())
    return cached[key]


def _answers(run: RunResult, test_set: str, corpus: Corpus) -> bytes:
    file = run.path / TRANSLATIONS / f"{test_set}.{corpus.target}"
    name = file.relative_to(run.path.parent)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{name} does not exist") from None
    wanted = run.scores(test_set)["translations_sha256"]
    if hashlib.sha256(content).hexdigest() != wanted:
        raise UserError(f"{name} has changed since it was scored")
    return content


def _read_cache(folder: Path) -> dict[str, dict[str, float]]:
    try:
        return read_json(folder / CACHE)
    except ValueError:  # damaged: all is computed again
        return {}
