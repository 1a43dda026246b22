"""Provenance of a score: what it depends on, and what it is comparable with.

It holds no time of day, so scoring the same translations again on the same machine
gives the same provenance.
"""

import dataclasses
import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import jax

from t2t_jax import __version__
from t2t_jax.data.corpus import Corpus
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.published_sets import ScoredText, compare_with
from t2t_jax.io import ideas
from t2t_jax.metrics.measures import LONGEST, SAMPLES, SEED
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.tasks.task import Task

PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "numpy"),
    *("sentencepiece", "sacrebleu", "sacremoses"),
)


def score_provenance(
    translator: Translator,
    task: Task,
    corpus: Corpus,
    sources: Sequence[str],
    references: Sequence[str],
) -> dict:
    """Describes the origin of a set's scores, for `scores/SET.json`.

    Returns:
      `compare_with` (a line for people), `name` (of the set), `direction`,
      `source_sha256` and `reference_sha256` (of `text_bytes`), `bootstrap` (None if
      the set is too long for one), `config`, `code`, `versions`, `machine`; `ideas`
      (the SHA-256 of each module of --ideas) if there are any.
    """
    text = ScoredText(
        corpus.name,
        *(corpus.source, corpus.target),
        len(sources),
        *(hashed(sources), hashed(references)),
        *(hashed(sources[:1]), hashed(references[:1])),
        # Also within a mixture: en-de:grammar:test.
        synthetic="grammar" in corpus.place.split(":")[:-1],
    )
    resampled = len(sources) <= LONGEST
    # The versions among these facts go into `versions` instead.
    machine = {
        k: v for k, v in describe_machine().items() if k not in ("t2t_jax", *PACKAGES)
    }
    return {
        "compare_with": (
            corpus.compare_with
            or task.compare_with(corpus)
            or compare_with(text, len(translator.steps))
        )
        + _of_several(len(translator.members)),
        "name": corpus.name,
        "task": translator.config.task.kind,
        "direction": f"{corpus.source}-{corpus.target}",
        "source_sha256": text.source_sha256,
        "reference_sha256": text.reference_sha256,
        "bootstrap": {"samples": SAMPLES, "seed": SEED} if resampled else None,
        "config": dataclasses.asdict(translator.config),
        "code": code_version(),
        "versions": {
            "t2t_jax": __version__,
            **{name: metadata.version(name) for name in PACKAGES},
        },
        "machine": machine
        | {"device_kinds": dict(Counter(d.device_kind for d in jax.devices()))},
        **({"ideas": dict(ideas.imported)} if ideas.imported else {}),
    }


def _of_several(members: int) -> str:
    if members == 1:
        return ""
    return (
        f"; but this is an ensemble of {members} models: results of single models are "
        "not comparable with it"
    )


def text_bytes(lines: Sequence[str]) -> bytes:
    """Encodes lines as in a text file: UTF-8, every line ended by a line feed."""
    return "".join(f"{line}\n" for line in lines).encode()


def hashed(lines: Sequence[str]) -> str:
    """SHA-256 of the lines as a text file, in hex: what `sha256sum` prints for it."""
    return hashlib.sha256(text_bytes(lines)).hexdigest()


def code_version(folder: Path = Path(__file__).parent) -> dict[str, str | bool | None]:
    """Finds the git commit of a folder of code.

    Args:
      folder: by default this package, wherever the program starts.

    Returns:
      `commit`, and `uncommitted_changes` to tracked files; both None if the code is
      not in a checkout or git is not installed.
    """
    unknown = {"commit": None, "uncommitted_changes": None}
    # A package in site-packages may sit inside another project's checkout, which does
    # not track it. That project's commit would be wrong.
    if _git(folder, "ls-files", "--", ".") in (None, ""):
        return unknown
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changes is None:
        return unknown
    return {"commit": commit, "uncommitted_changes": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    """Runs git read-only and returns its output; None if it fails."""
    # Inside a git hook, the GIT_ variables point to the hook's repository.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    # Take no lock that another git may want, and start no file-system monitor.
    options = ("--no-optional-locks", "-c", "core.fsmonitor=false")
    try:
        done = subprocess.run(
            ["git", *options, *arguments],
            cwd=folder,
            env=kept,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return done.stdout.strip()
