"""Reads an exported .safetensors file with the library of that name."""

import hashlib
from pathlib import Path

from safetensors import safe_open


def values(job: dict) -> dict:
    """Compares types, shapes and SHA-256 of all tensors with those of the job."""
    actual = {}
    file = Path(job["model"]) / "model.safetensors"
    with safe_open(file, framework="numpy") as opened:
        described = opened.metadata()["format"]
        for name in opened.keys():  # noqa: SIM118  (it is not a dict)
            x = opened.get_tensor(name)
            actual[name] = {
                "dtype": x.dtype.name,
                "shape": list(x.shape),
                "sha256": hashlib.sha256(x.tobytes()).hexdigest(),
            }
    expected = job["tensors"]
    differ = sorted(
        name
        for name in actual.keys() | expected.keys()
        if actual.get(name) != expected.get(name)
    )
    return {
        "equal": not differ and bool(actual),
        "format": described,
        "tensors": len(actual),
        "differ": differ,
    }


TASKS = {"values": values}
