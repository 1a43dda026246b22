"""Workdirs of runs that nobody has trained, and processes that hold leases."""

import contextlib
import hashlib
import json
import random
import subprocess
import sys
import zlib

from t2t_jax import load_config
from t2t_jax.evaluation.provenance import hashed, text_bytes
from t2t_jax.tools.experiment import Row, with_fields
from t2t_jax.tools.experiment.results import read_results, workdir_of
from tests.small_run import FIELDS, ROOT

WORDS = ["der", "die", "Hund", "Katze", "sieht", "geht", "rot", "blau", "heute", "nie"]
TINY = load_config("tiny")
_draw = random.Random(3)
REFERENCES = [" ".join(_draw.choices(WORDS, k=9)) for _ in range(40)]


def row(name, seeds=3, **options):
    """A row that differs from others by its number of steps."""
    steps = {"train.steps": 100 + zlib.crc32(name.encode()) % 100_000}
    return Row(name, with_fields(TINY, steps), seeds, **options)


def with_mistakes(rate, seed=0):
    """The references with a fraction of their words replaced."""
    draw = random.Random(seed)
    return [
        " ".join("x" if draw.random() < rate else word for word in line.split())
        for line in REFERENCES
    ]


def write_run(run, folder, bleu, lines=REFERENCES):
    """Writes what a finished run leaves behind, below `folder`."""
    path = workdir_of(run, folder / "runs")
    for name in ("scores", "translations"):
        (path / name).mkdir(parents=True)
    totals = {"parameters": 1_312_345, "flops": 1.5e13, "tokens": 2.5e6, "minutes": 1.5}
    (path / "outcome.json").write_text(json.dumps(totals))
    for language in ("en", "de"):
        (folder / f"test.{language}").write_bytes(text_bytes(REFERENCES))
    content = text_bytes(lines)
    scores = {
        "set": str(folder / "test"),
        "sha256": "of its lines",
        "reference_sha256": hashed(REFERENCES),
        "translations_sha256": hashlib.sha256(content).hexdigest(),
        "compare_with": "compare with scores of the same lines",
        "bleu": bleu,
        "perplexity": 100 / bleu,
    }
    (path / "translations/test.de").write_bytes(content)
    (path / "scores/test.json").write_text(json.dumps(scores))
    (path / "metrics.jsonl").write_text(
        json.dumps({"kind": "dev", "step": 1, "loss": 2.5}) + '\n{"kind": "dev", "st'
    )


def write_rows(rows, folder, scores, lines=None):
    """Writes runs with the BLEU of each finished seed, by row; reads the results."""
    for row in rows:
        for run, bleu in zip(row.runs, scores.get(row.name, ()), strict=False):
            write_run(run, folder, bleu, (lines or {}).get(row.name, REFERENCES))
    return read_results(rows, folder / "runs")


FILE = '''"""Does the seed matter?"""

from t2t_jax import load_config
from t2t_jax.tools.experiment import Experiment, Row, with_fields


def get_experiment(steps=2, count=2, broken=False):
    """Builds the experiment; it may have a row that cannot be trained."""
    base = load_config("tiny", **{fields})
    base.train.steps = steps
    seeds = range(3, 3 + count)
    rows = [Row(f"seed={{n}}", with_fields(base, {{"train.seed": n}})) for n in seeds]
    if broken:
        rows.append(Row("broken", with_fields(base, {{"train.init_from": "nowhere"}})))
    return Experiment(rows, columns=("test.bleu", "parameters"), plot=plot)


def plot(results):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    ax.plot([row.mean("test.bleu") for row in results])
    return figure
'''


def write_experiment(folder, text, **sections):
    """Writes the file of an experiment of small runs, mine.py."""
    fields = {name: dict(values) for name, values in FIELDS.items()}
    fields["data"]["dir"] = str(text)
    for name, values in sections.items():
        fields[name] |= values
    (folder / "mine.py").write_text(FILE.format(fields=fields))
    return folder / "mine.py"


HOLD = """
import sys, time
from pathlib import Path
from t2t_jax.tools.experiment.leases import Leases
lease = Leases(Path(sys.argv[1])).take(sys.argv[2])
print(lease is not None, flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def holder(leases, name):
    """Another process that takes a lease and holds it until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, leases, name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "True\n"
        yield process
    finally:
        process.kill()
        process.communicate()
