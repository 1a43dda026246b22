"""Where files are: on disk, or in a bucket of Google Cloud Storage."""

import functools
import importlib.util
import os

from etils import epath

from t2t_jax.terminal.errors import UserError

# epath reads buckets through gcsfs or TensorFlow, and would rather load TensorFlow.
if importlib.util.find_spec("gcsfs"):
    os.environ.setdefault("EPATH_USE_TF", "false")


def is_local(place: epath.PathLike) -> bool:
    """True on disk, False in a bucket."""
    return "://" not in os.fspath(place)


def locate(place: epath.PathLike) -> epath.Path:
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
