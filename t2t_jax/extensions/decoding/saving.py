"""Stores a model that no run has trained here as a workdir of one checkpoint."""

import json
from typing import Any

import jax
import numpy as np
from etils import epath

from t2t_jax import __version__
from t2t_jax import config as fields
from t2t_jax.decoding.searcher import Searcher
from t2t_jax.io.atomic import write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.training.checkpoint import Checkpoints
from t2t_jax.workdir import IMPORTED, Workdir


def save(searcher: Searcher, place: Workdir | epath.PathLike) -> Workdir:
    """`Searcher.save`."""
    workdir = Workdir.open(place)
    check_free(workdir)
    if len(searcher.members) > 1 or searcher.members[0].weights != "float32":
        raise UserError(
            "an ensemble or a model with int8 weights is not saved; save each model, "
            "loaded without weights="
        )
    # Its one checkpoint is what was chosen.
    config = fields.changed(searcher.config, "decode", checkpoint="average")
    store(workdir, searcher, config, {"format": "t2t_jax", "t2t_jax": __version__})
    return workdir


def check_free(workdir: Workdir) -> None:
    """Refuses a folder that already has something else in it."""
    if not workdir.path.exists():
        return
    if not workdir.path.is_dir():
        raise UserError(f"--workdir={workdir} is a file; want a new folder")
    names = {entry.name for entry in workdir.path.iterdir()} - {".lock"}
    # What was interrupted has written this file first, and no config.
    if names and (workdir.has_run() or IMPORTED not in names):
        raise UserError(f"--workdir={workdir} is not empty; want a new folder")


def store(
    workdir: Workdir, searcher: Searcher, config: fields.Config, facts: dict[str, Any]
) -> None:
    """Writes the workdir, the config last: until then it is not a workdir.

    Args:
      facts: the content of imported.json.
    """
    parameters = jax.tree.map(lambda x: np.asarray(x, np.float32), searcher.parameters)
    with workdir.hold():
        content = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        write_atomically(workdir / IMPORTED, content.encode())
        checkpoints = Checkpoints(workdir, keep_parameters=1, keep_best=1)
        try:
            checkpoints.save_parameters(parameters, max(searcher.steps, default=0))
        finally:
            checkpoints.close()
        workdir.store(config, searcher.vocabulary, {"imported": True})
