"""A folder of adapters that `learn` has trained, and which of them is current."""

from etils import epath

from t2t_jax.io.atomic import read_checked_json
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import locate

CURRENT = "current.json"  # of a folder of adapters, which `learn` has trained


def record_of(folder: epath.PathLike) -> dict:
    """What a folder of adapters says: those that were taken, the last one is current.

    Raises:
      UserError: it is damaged.
    """
    file = locate(folder) / CURRENT
    if not file.exists():
        return {"current": [], "events": []}
    try:
        return read_checked_json(file)
    except ValueError as e:
        raise UserError(f"{file} is damaged: {e}; restore it from a copy") from None


def current(folder: epath.PathLike) -> epath.Path | None:
    """The current adapter of a folder; None if it has none."""
    names = record_of(folder)["current"]
    return locate(folder) / names[-1] if names else None


def adapter_at(place: epath.PathLike) -> epath.PathLike:
    """The workdir of an adapter: the place itself, or what is current in its folder.

    Raises:
      UserError: a folder of `learn` that has taken no adapter yet.
    """
    if not (locate(place) / CURRENT).exists():
        return place
    if (workdir := current(place)) is None:
        raise UserError(
            f"{place} has no current adapter: none was better than its base; leave "
            "--adapter out to serve the base"
        )
    return workdir
