"""Tests over test lines: is one row's translation of a set better than another's?"""

import hashlib
import json
from pathlib import Path

from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation.provenance import hashed
from t2t_jax.evaluation.scores import TRANSLATIONS
from t2t_jax.experiment.results import RowResult, RunResult, read_json
from t2t_jax.files.atomic import write_atomically
from t2t_jax.metrics.significance import paired_test
from t2t_jax.terminal.errors import UserError

CACHE = "line_tests.json"  # in the experiment's folder; the tests take seconds each
METRICS = ("bleu", "bleu_lc", "chrf", "ter")
TESTS = {"bootstrap": "bs", "randomisation": "ar"}


def has_lines(row: RowResult, column: str) -> bool:
    """True if the column is a score of the row's translations of a test set."""
    test_set, _, metric = column.rpartition(".")
    scored = any(metric in run.scores(test_set) for run in row.runs)
    return metric in METRICS and test_set not in ("dev", "train") and scored


def line_p_values(
    ours: RowResult, theirs: RowResult, column: str, folder: Path
) -> dict[str, float]:
    """Compares two rows' translations, line by line, by each test of `TESTS`.

    The runs are compared in pairs: the first seed of one row with the first seed of
    the other, and so on.

    Args:
      column: `SET.METRIC`, for which `has_lines` is true of both.
      folder: keeps the p-values of earlier calls in `CACHE`.

    Returns:
      By test, the largest p of all pairs. A pair whose difference has the opposite
      sign of the difference between the means has p = 1.

    Raises:
      UserError: translations or references are missing or have changed.
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
    translations = [_translations(run, test_set) for run in (ours, theirs)]
    hashes = [hashlib.sha256(content).hexdigest() for content in translations]
    # The place alone would miss a change of its files.
    key = " ".join([*hashes, scores["set"], scores["sha256"], metric])
    cached = _read_cache(folder)
    if key not in cached:
        references = _references(ours, test_set)
        # Not splitlines(), which would also split at characters such as U+2028.
        lines = [content.decode().split("\n")[:-1] for content in translations]
        sides = *lines, references, ours.run.config.data.target
        tests = {
            test: paired_test(metric, *sides, kind) for test, kind in TESTS.items()
        }
        cached[key] = {test: found["p_value"] for test, found in tests.items()}
        cached[key]["difference"] = tests["bootstrap"]["difference"]
        write_atomically(folder / CACHE, json.dumps(cached, indent=1).encode())
    return cached[key]


def _translations(run: RunResult, test_set: str) -> bytes:
    file = run.path / TRANSLATIONS / f"{test_set}.{run.run.config.data.target}"
    name = file.relative_to(run.path.parent)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{name} does not exist") from None
    wanted = run.scores(test_set)["translations_sha256"]
    if hashlib.sha256(content).hexdigest() != wanted:
        raise UserError(f"{name} has changed since it was scored")
    return content


def _references(run: RunResult, test_set: str) -> list[str]:
    data, scores = run.run.config.data, run.scores(test_set)
    # A scored place starts at the current folder: it includes config.data.dir.
    corpus = open_corpus(scores["set"], data.source, data.target)
    references = [target for _, target in corpus.pairs()]
    if hashed(references) != scores["reference_sha256"]:
        raise UserError(f"{corpus.place} has changed since it was scored")
    return references


def _read_cache(folder: Path) -> dict[str, dict[str, float]]:
    try:
        return read_json(folder / CACHE)
    except ValueError:  # damaged: all is computed again
        return {}
