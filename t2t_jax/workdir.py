"""A workdir: everything a run leaves, and all that a translator needs.

config.json        the experiment, as data
training_text.json a hash of the training text as it was prepared, which must not change
                   under a run; what cleaning left out of it
tokenizer.model    SentencePiece
checkpoints/       training/checkpoint.py
metrics.jsonl      one object a line; tensorboard/ draws the same
scores/            SET.json; earlier scores of a set are SET.1.json, SET.2.json, ...
translations/      SET.LANGUAGE, one line for each line of the set

It is a folder on disk or in a bucket of Google Cloud Storage. A bucket has objects in
place of files: they appear whole, and can neither grow nor be renamed.
"""

import functools
import importlib.util
import json
import os

from etils import epath

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.data.vocab import Vocabulary
from t2t_jax.errors import UserError

# epath reads buckets through gcsfs or TensorFlow, and would rather load TensorFlow.
if importlib.util.find_spec("gcsfs"):
    os.environ.setdefault("EPATH_USE_TF", "false")


def path(place: epath.PathLike) -> epath.Path:
    """What a person calls a workdir: a folder, `~` being home, or gs://BUCKET/FOLDER.

    Raises:
      UserError: another kind of place, or a bucket that cannot be used from here.
    """
    place = os.fspath(place)
    scheme, found, rest = place.partition("://")
    if found:
        bucket = rest.partition("/")[0]
        if scheme != "gs" or not bucket:
            raise UserError(
                f"{place} is no workdir; want a folder or gs://BUCKET/FOLDER"
            )
        _reach(bucket)
    elif place.startswith("gs:/"):
        raise UserError(
            f"{place}: pathlib.Path makes one slash of two; give a bucket as text, "
            f"{place.replace(':/', '://', 1)!r}"
        )
    return epath.Path(place).expanduser()


def on_disk(place: epath.PathLike) -> bool:
    """False in a bucket."""
    return "://" not in os.fspath(place)


@functools.cache
def _reach(bucket: str) -> None:
    """Asks once for a bucket, where each library would ask for a minute.

    Raises:
      UserError: there is no such bucket, no way to it, or nothing to reach it with.
    """
    try:
        import fsspec
        import gcsfs  # noqa: F401
        from google.cloud import storage
    except ImportError as e:
        raise UserError(f"gs://{bucket} needs gcsfs ({e}): pip install gcsfs") from None
    # What was once listed would be remembered for good, whatever others write there.
    fsspec.config.conf.setdefault("gcs", {}).setdefault("use_listings_cache", False)
    try:
        storage.Client().get_bucket(bucket, timeout=10, retry=None)
    except Exception as e:  # of four libraries, with no other base
        raise UserError(
            f"gs://{bucket} cannot be used from here: {e}\nIt has to be there, and you "
            "to be allowed storage.buckets.get and to read and write its objects: "
            "gcloud auth application-default login, or a service account"
        ) from None


def write_atomically(file: epath.PathLike, content: bytes) -> None:
    """Writes a file that is there whole or not at all."""
    file = epath.Path(file)
    if not on_disk(file):
        file.write_bytes(content)  # an object appears when it is complete
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.writing")
    with open(temporary, "wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    temporary.replace(file)


def read_config(workdir: epath.PathLike) -> Config:
    """The config of a workdir.

    Raises:
      UserError: this is not a workdir, or its config is not one of this version.
    """
    file = path(workdir) / "config.json"
    if not file.is_file():
        raise UserError(
            f"{workdir} is not a workdir: it has no config.json. A workdir is what "
            "python -m t2t_jax.main --workdir=DIR makes"
        )
    try:
        return fields.from_json(file.read_text(encoding="utf-8"))
    except ValueError as e:
        raise UserError(f"{file} does not fit this version of t2t_jax: {e}") from None


def read_vocabulary(workdir: epath.PathLike) -> Vocabulary:
    """The tokenizer of a workdir.

    Raises:
      UserError: it has none.
    """
    file = path(workdir) / "tokenizer.model"
    if not file.is_file():
        raise UserError(f"{workdir} is not a whole workdir: it has no tokenizer.model")
    return Vocabulary(file.read_bytes(), str(file))


def changes(workdir: epath.PathLike, config: Config) -> dict:
    """What differs from the config of a workdir, as `config.differences` says it.

    Raises:
      UserError: the workdir was made with another config, in fields that would make
        it another experiment.
    """
    workdir = path(workdir)
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


def store(
    workdir: epath.PathLike, config: Config, vocabulary: Vocabulary, text: dict
) -> None:
    """Writes what makes a folder a workdir, the config last.

    Args:
      text: of `prepare.summary`; its `prepared` is a hash.

    Raises:
      UserError: the run was begun with another training text.
    """
    workdir = path(workdir)
    begun = workdir / "training_text.json"
    if (workdir / "config.json").exists() and begun.exists():
        if json.loads(begun.read_text())["prepared"] != text["prepared"]:
            raise UserError(
                f"the training text of {workdir} is not what it was when the run "
                "began, or another version of t2t_jax prepared it then, so the run "
                "cannot go on as one; put the text back, or give another --workdir"
            )
    for name, content in (
        ("training_text.json", json.dumps(text, indent=2).encode() + b"\n"),
        ("tokenizer.model", vocabulary.model),
        ("config.json", fields.to_json(config).encode()),
    ):
        file = workdir / name
        if not file.exists() or file.read_bytes() != content:
            write_atomically(file, content)


def keep_earlier(*files: epath.PathLike) -> None:
    """Moves files to the next number that is free for all: a.json to a.1.json.

    In a bucket they are copied, all of them, before the first is taken away.
    """

    def numbered(file: epath.Path, number: int) -> epath.Path:
        return file.with_name(f"{file.stem}.{number}{file.suffix}")

    files = [epath.Path(file) for file in files]
    number = 1
    while any(numbered(file, number).exists() for file in files):
        number += 1
    there = [file for file in files if file.exists()]
    if all(map(on_disk, there)):
        for file in there:
            file.rename(numbered(file, number))
        return
    for file in there:
        write_atomically(numbered(file, number), file.read_bytes())
    for file in there:
        file.unlink()
