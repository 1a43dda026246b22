"""Workdirs of runs that nobody has trained."""

import functools
import hashlib
import json
import random

from t2t_jax import load_config
from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation.provenance import hashed, text_bytes
from t2t_jax.experiment.results import read_results, workdir_of


@functools.cache
def references():
    return [target for _, target in open_corpus("grammar:test", "en", "de").pairs()][:]


def config():
    return load_config("tiny")


def write_run(run, runs_folder, bleu=None, translations=None, **outcome):
    """Writes what a finished run leaves behind."""
    path = workdir_of(run, runs_folder)
    (path / "scores").mkdir(parents=True, exist_ok=True)
    (path / "translations").mkdir(exist_ok=True)
    totals = {"parameters": 1_312_345, "flops": 1.5e13, "tokens": 2.5e6, "minutes": 1.5}
    (path / "outcome.json").write_text(json.dumps(totals | outcome))
    if bleu is None:
        return path
    content = text_bytes(translations or references())
    scores = {
        "set": "grammar:test",
        "sha256": "the lines of the set",
        "reference_sha256": hashed(references()),
        "translations_sha256": hashlib.sha256(content).hexdigest(),
        "compare_with": "runs on the built-in corpus only",
        "bleu": bleu,
        "perplexity": 100 / bleu,
    }
    (path / "translations/test.de").write_bytes(content)
    (path / "scores/test.json").write_text(json.dumps(scores))
    return path


def write_rows(rows, runs_folder, scores, translations=None):
    """Writes the runs of rows that have scores: by row, one for each finished seed."""
    for row in rows:
        for run, bleu in zip(row.runs, scores.get(row.name, ()), strict=False):
            write_run(run, runs_folder, bleu, (translations or {}).get(row.name))
    return read_results(rows, runs_folder)


def with_mistakes(rate, seed=0):
    """The references with a fraction of their words replaced."""
    draw = random.Random(seed)
    return [
        " ".join("x" if draw.random() < rate else word for word in line.split())
        for line in references()
    ]
