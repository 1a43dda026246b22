"""The user's cache folder: prepared text, tokenizers and compiled programs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Returns `$T2T_JAX_CACHE`, or `t2t_jax` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("T2T_JAX_CACHE") or Path(home) / "t2t_jax")
