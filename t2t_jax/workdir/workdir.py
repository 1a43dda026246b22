"""A workdir: everything a run leaves, and all that a translator needs.

config.json        the experiment, as data; hashes of itself and of the next two
training_text.json hashes of the training text as it was prepared and of the dev text,
                   which must not change under a run; what cleaning left out
tokenizer.model    SentencePiece
checkpoints/       training/checkpoint.py
starts.jsonl       on what machine and with what libraries each start of the run was
metrics.jsonl      one object a line; tensorboard/ draws the same
alarms/            the sentences of batches whose gradient was not finite or very large
rollbacks.json     where the run went back to an earlier checkpoint, if it did
scores/            SET.json; earlier scores of a set are SET.1.json, SET.2.json, ...
translations/      SET.LANGUAGE, one line for each line of the set

It is a folder on disk or in a bucket of Google Cloud Storage. All of it is data: it is
read, never run, and nothing in it names a file elsewhere that would be read or written.
"""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator

from etils import epath

from t2t_jax import config as fields
from t2t_jax import files
from t2t_jax.config import Config
from t2t_jax.data.vocab import Vocabulary
from t2t_jax.errors import UserError
from t2t_jax.parallel import hosts

CHECK = (
    "check"  # in config.json: SHA-256 of itself, training_text.json, tokenizer.model
)

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


def read_config(workdir: epath.PathLike) -> Config:
    """The config of a workdir.

    Raises:
      UserError: this is not a workdir, its config is damaged, or it is not one of this
        version.
    """
    return _read_config(workdir)[0]


def _read_config(workdir: epath.PathLike) -> tuple[Config, dict[str, str]]:
    """The config, and the SHA-256 of files that it was written with."""
    file = path(workdir) / "config.json"
    if not file.is_file():
        raise UserError(
            f"{workdir} is not a workdir: it has no config.json. A workdir is what "
            "python -m t2t_jax.main --workdir=DIR makes"
        )
    try:
        content = files.read_checked_json(file)
    except ValueError as e:
        raise UserError(
            f"{file} is not a config as this version of t2t_jax writes it: {e}. Put it "
            "back from a copy; fields are changed with --config of t2t_jax.main"
        ) from None
    try:
        check = dict(content.pop(CHECK))
        return fields.from_config_dict(content), check
    except (ValueError, TypeError, LookupError) as e:
        raise UserError(f"{file} does not fit this version of t2t_jax: {e}") from None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_checked(workdir: epath.PathLike, name: str) -> bytes:
    """A file of a workdir that must be what it was when the config was written."""
    file = path(workdir) / name
    _, check = _read_config(workdir)
    if not file.is_file():
        raise UserError(f"{workdir} is not a whole workdir: it has no {name}")
    content = file.read_bytes()
    if _sha256(content) != check.get(name):
        raise UserError(
            f"{file} was changed after it was written: its SHA-256 is another. Put it "
            "back from a copy"
        )
    return content


def read_vocabulary(workdir: epath.PathLike) -> Vocabulary:
    """The tokenizer of a workdir.

    Raises:
      UserError: it has none, or it is damaged.
    """
    content = _read_checked(workdir, "tokenizer.model")
    return Vocabulary(content, str(path(workdir) / "tokenizer.model"))


def shared(workdir: epath.PathLike) -> tuple[Config, Vocabulary]:
    """The config and the tokenizer of a workdir, of several processes in all.

    Raises:
      UserError: as `read_config` and `read_vocabulary`.
    """
    told = hosts.from_first(
        "the config", lambda: dataclasses.asdict(read_config(workdir))
    )
    model = hosts.bytes_from_first(
        "the tokenizer", lambda: read_vocabulary(workdir).model
    )
    name = str(path(workdir) / "tokenizer.model")
    return fields.from_config_dict(told), Vocabulary(model, name)


def read_text(workdir: epath.PathLike) -> dict:
    """What `store` was given as `text`.

    Raises:
      UserError: it is not there, or damaged.
    """
    return json.loads(_read_checked(workdir, "training_text.json"))


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
        if (workdir / "checkpoints").exists():
            raise UserError(
                f"{workdir} has checkpoints but no config.json: it was lost. Put it "
                "back from a copy, or give another --workdir"
            )
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
      text: of `prepare.summary`; its `prepared` and `dev` are hashes.

    Raises:
      UserError: the run was begun with another training or dev text.
    """
    workdir = path(workdir)
    begun = (workdir / "config.json").exists()
    if begun:
        before = read_text(workdir)
        for name, what in (("prepared", "training"), ("dev", "dev")):
            if before.get(name) != text.get(name):
                raise UserError(
                    f"the {what} text of {workdir} is not what it was when the run "
                    "began, or another version of t2t_jax prepared it then, so the run "
                    "cannot go on as one; put the text back, or give another --workdir"
                )
    written = {
        "training_text.json": json.dumps(text, indent=2).encode() + b"\n",
        "tokenizer.model": vocabulary.model,
    }
    if begun:
        check = _read_config(workdir)[1]
    else:
        check = {name: _sha256(content) for name, content in written.items()}
    content = dataclasses.asdict(config) | {CHECK: check}
    written["config.json"] = files.checked_json(content)
    # What the config vouches for was written before it, and stays.
    for name in ["config.json"] if begun else written:
        file = workdir / name
        if not file.exists() or file.read_bytes() != written[name]:
            files.write_atomically(file, written[name])


@contextlib.contextmanager
def hold(workdir: epath.PathLike) -> Iterator[Callable[[], None]]:
    """Keeps a workdir for one run; other runs are refused until it ends, however.

    On disk the operating system keeps the lock and lets go of it when the process
    dies. Where there are no locks (a bucket, some network folders) the run that came
    last has the workdir, and the one before finds out before it would write.

    A folder that was made for it and stays empty is taken away again.

    Yields:
      A function that raises a UserError when the workdir is no longer this run's.

    Raises:
      UserError: another run has it, or it cannot be written.
    """
    workdir = path(workdir)
    file, made = workdir / ".lock", not workdir.exists()
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    told = f"process {os.getpid()} on {socket.gethostname()}, since {since}"
    mine = f"{told}\n{uuid.uuid4()}\n"
    with contextlib.ExitStack() as stack:
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            if files.on_disk(file):
                _lock(file, stack)
            file.write_text(mine)
        except OSError as e:
            raise UserError(
                f"{workdir} cannot be written: {e}. A run needs a folder to write in; "
                "to translate, reading is enough"
            ) from None

        def check() -> None:
            found = file.read_text() if file.exists() else ""
            if found != mine:
                by = found.partition("\n")[0] or "nobody: its .lock was removed"
                raise UserError(
                    f"{workdir} is no longer this run's: it was taken over by {by}. "
                    "This run ends here, and writes nothing more"
                )

        try:
            yield check
        finally:
            with contextlib.suppress(OSError):
                if file.exists() and file.read_text() == mine:
                    file.unlink()
                    if made and files.on_disk(workdir):
                        os.rmdir(workdir)  # which only takes an empty one


def check_writable(workdir: epath.PathLike) -> None:
    """Raises a UserError where nothing can be written, before there is something to."""
    trial = path(workdir) / f".trial-{uuid.uuid4().hex}"
    try:
        files.write_atomically(trial, b"")
        trial.unlink()
    except OSError as e:
        raise UserError(f"{workdir} cannot be written: {e}") from None


def _lock(file: epath.Path, stack: contextlib.ExitStack) -> None:
    """Takes the lock of a file, until the stack is left or the process dies."""
    while True:
        opened = stack.enter_context(open(file, "a+"))  # noqa: SIM115
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            opened.seek(0)
            holder = opened.readline().strip() or "another run"
            raise UserError(
                f"{file.parent} is in use by {holder}. Wait for it or stop it, or give "
                "another --workdir"
            ) from None
        except OSError:
            return  # no locks here
        # The holder before may have removed the file that was just opened.
        if file.exists() and os.path.samestat(os.fstat(opened.fileno()), os.stat(file)):
            return
