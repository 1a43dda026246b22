"""What a number is worth: everything that a score depends on, and what it may meet.

All of it is the same when the same is scored again on the same machine; the time of day
is no part of it.
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
from t2t_jax.metrics.bootstrap import LONGEST, SAMPLES, SEED
from t2t_jax.parallel.machine import describe_machine

PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "numpy"),
    *("sentencepiece", "sacrebleu", "sacremoses"),
)


def score_provenance(
    translator: Translator,
    corpus: Corpus,
    sources: Sequence[str],
    references: Sequence[str],
) -> dict:
    """Describes a scoring, as data for `scores/SET.json`.

    Returns:
      `compare_with` (a line for people), `name` (of the set), `direction`,
      `source_sha256` and `reference_sha256` (of `text_bytes`), `bootstrap`, `config`,
      `code`, `versions`, `machine`.
    """
    data = translator.config.data
    text = ScoredText(
        corpus.name,
        *(data.source, data.target),
        len(sources),
        *(hashed(sources), hashed(references)),
        *(hashed(sources[:1]), hashed(references[:1])),
        synthetic=corpus.place.startswith("grammar:"),
    )
    resampled = len(sources) <= LONGEST
    here = {
        k: v for k, v in describe_machine().items() if k not in ("t2t_jax", *PACKAGES)
    }
    return {
        "compare_with": compare_with(text, len(translator.steps)),
        "name": corpus.name,
        "direction": f"{data.source}-{data.target}",
        "source_sha256": text.source_sha256,
        "reference_sha256": text.reference_sha256,
        "bootstrap": {"samples": SAMPLES, "seed": SEED} if resampled else None,
        "config": dataclasses.asdict(translator.config),
        "code": code_version(),
        "versions": {
            "t2t_jax": __version__,
            **{name: metadata.version(name) for name in PACKAGES},
        },
        "machine": here
        | {"device_kinds": dict(Counter(d.device_kind for d in jax.devices()))},
    }


def text_bytes(lines: Sequence[str]) -> bytes:
    """One side of a set as a file has it: every line ends in a line feed."""
    return "".join(f"{line}\n" for line in lines).encode()


def hashed(lines: Sequence[str]) -> str:
    """What sha256sum says of a plain file of these lines."""
    return hashlib.sha256(text_bytes(lines)).hexdigest()


def code_version(folder: Path = Path(__file__).parent) -> dict[str, str | bool | None]:
    """The git commit that a folder with a file of code belongs to.

    Args:
      folder: without one, this package, wherever the program is started.

    Returns:
      `commit`, and `uncommitted_changes` to files that git knows; both None where the
      code is in no checkout, or git is not there to ask.
    """
    unknown = {"commit": None, "uncommitted_changes": None}
    # A package that lies in site-packages is not of the checkout that has these.
    if _git(folder, "ls-files", "--", ".") in (None, ""):
        return unknown
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changes is None:
        return unknown
    return {"commit": commit, "uncommitted_changes": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where it fails. It only looks: no lock, no program run."""
    # Inside a hook these name the repository of the hook.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
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
