"""Reads an exported .safetensors file with the library of that name."""

import hashlib
from pathlib import Path

from safetensors import safe_open


def values(job: dict) -> dict:
    """Compares types, shapes and SHA-256 of all tensors with those of the job."""
    found = {}
    file = Path(job["model"]) / "model.safetensors"
    with safe_open(file, framework="numpy") as opened:
        described = opened.metadata()["format"]
        for name in opened.keys():  # noqa: SIM118  (it is not a dict)
            x = opened.get_tensor(name)
            found[name] = {
                "dtype": x.dtype.name,
                "shape": list(x.shape),
                "sha256": hashlib.sha256(x.tobytes()).hexdigest(),
            }
    wanted = job["tensors"]
    differ = sorted(
        name
        for name in found.keys() | wanted.keys()
        if found.get(name) != wanted.get(name)
    )
    return {
        "equal": not differ and bool(found),
        "format": described,
        "tensors": len(found),
        "differ": differ,
    }


TASKS = {"values": values}
