"""A workdir: everything a run leaves, and all that a translator needs.

config.json        the experiment, as data
training_text.json a hash of the training text, which must not change under a run
tokenizer.model    SentencePiece
checkpoints/       training/checkpoint.py
metrics.jsonl      one object a line; tensorboard/ draws the same
scores/            SET.json; earlier scores of a set are SET.1.json, SET.2.json, ...
translations/      SET.LANGUAGE, one line for each line of the set
"""

import json
import os
from pathlib import Path

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.data.vocab import Vocabulary
from t2t_jax.errors import UserError


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.writing")
    with open(temporary, "wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    temporary.replace(path)


def read_config(workdir: Path) -> Config:
    """The config of a workdir.

    Raises:
      UserError: this is not a workdir, or its config is not one of this version.
    """
    path = Path(workdir) / "config.json"
    if not path.is_file():
        raise UserError(
            f"{workdir} is not a workdir: it has no config.json. A workdir is what "
            "python -m t2t_jax.main --workdir=DIR makes"
        )
    try:
        return fields.from_json(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise UserError(f"{path} does not fit this version of t2t_jax: {e}") from None


def read_vocabulary(workdir: Path) -> Vocabulary:
    """The tokenizer of a workdir."""
    return Vocabulary.load(Path(workdir) / "tokenizer.model")


def changes(workdir: Path, config: Config) -> dict:
    """What differs from the config of a workdir, as `config.differences` says it.

    Raises:
      UserError: the workdir was made with another config, in fields that would make
        it another experiment.
    """
    workdir = Path(workdir)
    if workdir.exists() and not workdir.is_dir():
        raise UserError(
            f"--workdir={workdir} is a file; want a folder, new or of a run"
        )
    if not (workdir / "config.json").exists():
        return {}
    changed = fields.differences(read_config(workdir), config)
    unsafe = {name: pair for name, (*pair, safe) in changed.items() if not safe}
    if unsafe:
        told = "".join(
            f"\n  --config.{name}: {old!r} there, {new!r} now"
            for name, (old, new) in unsafe.items()
        )
        raise UserError(
            f"{workdir} was made with another config:{told}\n"
            "Change these back, or give another --workdir"
        )
    return changed


def store(workdir: Path, config: Config, vocabulary: Vocabulary, text: str) -> None:
    """Writes what makes a folder a workdir, the config last.

    Args:
      text: a hash of the training text as it is prepared.

    Raises:
      UserError: the run was begun with another training text.
    """
    path = Path(workdir) / "training_text.json"
    if (Path(workdir) / "config.json").exists() and path.exists():
        if json.loads(path.read_text())["prepared"] != text:
            raise UserError(
                f"the training text of {workdir} is not what it was when the run "
                "began, so the run cannot go on as one; put the text back, or give "
                "another --workdir"
            )
    for name, content in (
        ("training_text.json", json.dumps({"prepared": text}).encode() + b"\n"),
        ("tokenizer.model", vocabulary.model),
        ("config.json", fields.to_json(config).encode()),
    ):
        path = Path(workdir) / name
        if not path.exists() or path.read_bytes() != content:
            write_atomically(path, content)


def keep_earlier(*paths: Path) -> None:
    """Moves files to the next number that is free for all: a.json to a.1.json."""

    def numbered(path: Path, number: int) -> Path:
        return path.with_name(f"{path.stem}.{number}{path.suffix}")

    number = 1
    while any(numbered(path, number).exists() for path in paths):
        number += 1
    for path in paths:
        if path.exists():
            path.rename(numbered(path, number))
