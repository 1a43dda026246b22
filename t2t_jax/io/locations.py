"""Locations of files: on disk, or in a bucket of Google Cloud Storage."""

import functools
import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path

from etils import epath

from t2t_jax.io.errors import UserError

# epath reads buckets through gcsfs or TensorFlow, and prefers to load TensorFlow.
if importlib.util.find_spec("gcsfs"):
    os.environ.setdefault("EPATH_USE_TF", "false")


def is_local(place: epath.PathLike) -> bool:
    """True on disk, False in a bucket."""
    return "://" not in os.fspath(place)


def split_names(names: str) -> list[str]:
    r"""Splits a list of files, folders or corpora at its commas.

    A comma in a name is written `\,`; a file or folder `a,b` that exists is one name.
    """
    if "," in names and is_local(names) and os.path.exists(os.path.expanduser(names)):
        return [names]
    parts = (part.replace(r"\,", ",").strip() for part in re.split(r"(?<!\\),", names))
    return [part for part in parts if part]


def join_names(names: Iterable[str]) -> str:
    """Returns the list that `split_names` splits into these names."""
    return ",".join(name.replace(",", r"\,") for name in names)


def locate(place: epath.PathLike) -> epath.Path:
    """Converts what a user gives as a workdir to a path.

    Args:
      place: a folder, in which `~` is home, or gs://BUCKET/FOLDER.

    Raises:
      UserError: any other URL, or a bucket that this machine cannot use.
    """
    place = os.fspath(place)
    scheme, separator, location = place.partition("://")
    if separator:
        bucket = location.partition("/")[0]
        if scheme != "gs" or not bucket:
            raise UserError(
                f"cannot use {place} as a workdir; want a folder or gs://BUCKET/FOLDER"
            )
        _reach(bucket)
    elif place.startswith("gs:/"):
        raise UserError(
            f"{place} has one slash after gs:, because pathlib.Path merges two; give "
            f"a bucket as a string, {place.replace(':/', '://', 1)!r}"
        )
    return epath.Path(expand_home(place))


def expand_home(place: str) -> str:
    """Replaces `~` in a path on disk; raises RuntimeError if the user has no home.

    `os.path` and epath would make a folder called `~`.
    """
    return str(Path(place).expanduser()) if is_local(place) else place


def read_flag_file(flag: str, name: str) -> str:
    """Reads a small UTF-8 file that a flag names; UserError if it cannot be read."""
    try:
        return Path(name).expanduser().read_text(encoding="utf-8-sig")
    except OSError as e:
        raise UserError(f"--{flag}: {name}: {os.strerror(e.errno)}") from None
    except UnicodeDecodeError:
        raise UserError(f"--{flag}: {name} is not UTF-8") from None


@functools.cache
def _reach(bucket: str) -> None:
    """Checks once that a bucket is usable, and fails quickly if it is not.

    Without the check each library would retry for a minute.
    """
    try:
        import fsspec
        import gcsfs  # noqa: F401
        from google.cloud import storage
    except ImportError as e:
        raise UserError(f"gs://{bucket} needs gcsfs ({e}): pip install gcsfs") from None
    # Without this gcsfs caches listings for good, and misses what others write.
    fsspec.config.conf.setdefault("gcs", {}).setdefault("use_listings_cache", False)
    try:
        storage.Client().get_bucket(bucket, timeout=10, retry=None)
    except Exception as e:  # of four libraries, without a common base class
        raise UserError(
            f"gs://{bucket} cannot be used from here: {e}\nThe bucket has to exist, "
            "and you need permission for storage.buckets.get and to read and write its "
            "objects: gcloud auth application-default login, or a service account"
        ) from None
