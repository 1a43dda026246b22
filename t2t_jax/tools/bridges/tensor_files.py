"""Reads checkpoints of other systems: safetensors, PyTorch's two formats, NumPy's.

Nothing of a file is run, and no library of the other system is needed. Arrays are
views of the file where it allows, read-only; bounds are checked before any is made.
"""

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges import torch_files
from t2t_jax.tools.bridges.torch_files import mapped, opened_zip, size_of

# Names of a model's file in a folder, as Hugging Face writes them; the first counts.
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
# Keys under which training programs store the parameters in a checkpoint.
STATES = ("model", "state_dict", "model_state_dict")


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a checkpoint, by name.

    Args:
      path: a .safetensors file; what `torch.save` wrote of a dict of tensors, or of a
        dict that holds it as one of `STATES`; an .npz file; the .index.json of a model
        in several files; or a folder with one of `WEIGHTS`.

    Raises:
      UserError: damaged, not such a file, or it holds other classes.
    """
    path = Path(path)
    if path.is_dir():
        path = _in_folder(path)
    if path.name.endswith(".index.json"):
        return _sharded(path)
    return _one_file(path)


def _one_file(path: Path) -> dict[str, np.ndarray]:
    kind = _kind(path)
    if kind == "safetensors":
        return _safetensors(path)
    if kind == "npz":
        return _npz(path)
    return _state(read_checkpoint(path), str(path))


def read_checkpoint(path: Path) -> Any:
    """Reads everything that `torch.save` wrote: containers, values and arrays.

    Objects of `unpickling.RECORDS`, such as fairseq's `argparse.Namespace`, become
    dicts of their attributes.

    Raises:
      UserError: damaged, not such a file, or it holds other classes.
    """
    path = Path(path)
    kind = _kind(path)
    if kind == "zip":
        return torch_files.zipped(path)
    if kind == "pickle":
        return torch_files.unzipped(path)
    raise UserError(f"{path} has the format {kind}; want a file that torch.save wrote")


def _kind(path: Path) -> str:
    """The format of a file, by its first bytes: names often lie."""
    if not path.is_file():
        raise UserError(f"{path} does not exist; want a file of weights")
    with path.open("rb") as file:
        head = file.read(64)
    if head[8:9] == b"{":
        return "safetensors"
    if head.startswith(b"PK\x03\x04"):
        with opened_zip(path) as archive:
            names = archive.namelist()
        return "npz" if all(name.endswith(".npy") for name in names) else "zip"
    if head.startswith(b"\x80"):
        return "pickle"
    if head.startswith(b"version https://git-lfs"):
        raise UserError(
            f"{path} is a pointer of Git LFS, not the file itself; run `git lfs pull`"
        )
    if not head:
        raise UserError(f"{path} is empty; download it again")
    raise UserError(
        f"{path} is not a checkpoint that is read here: want .safetensors, .npz, or "
        "what torch.save wrote (the format before PyTorch 0.1.10 is not read)"
    )


def _in_folder(folder: Path) -> Path:
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"{folder} has no weights; want one of {', '.join(WEIGHTS)}")


# ------------------------------------------------------------------------- safetensors

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    """A file of a length (8 bytes), a JSON header of that length, and the arrays."""
    content = mapped(path)
    length = int.from_bytes(content[:8].tobytes(), "little")
    if length > min(len(content) - 8, 100_000_000):
        raise UserError(
            f"{path} is damaged or truncated: it says that its header has {length:,} "
            f"bytes, and the file has {len(content):,}; download it again"
        )
    data = content[8 + length :]
    header = _object(content[8 : 8 + length].tobytes(), str(path))
    header.pop("__metadata__", None)
    try:
        entries = [
            (*map(int, each["data_offsets"]), name, each["dtype"], each["shape"])
            for name, each in header.items()
        ]
    except (TypeError, KeyError, ValueError) as e:
        raise UserError(f"{path} is damaged: its header cannot be read ({e})") from None
    found, end = {}, 0
    for begin, stop, name, dtype, shape in sorted(entries, key=lambda entry: entry[:2]):
        if dtype not in _DTYPES:
            raise UserError(
                f"{path}: {name} has the type {dtype!r}; want one of "
                f"{', '.join(_DTYPES)}"
            )
        size = size_of(shape, f"{path}: {name}") * _DTYPES[dtype].itemsize
        # Arrays follow one another without overlaps and gaps.
        if (begin, stop) != (end, end + size):
            raise UserError(
                f"{path} is damaged: {name} of shape {shape} takes the bytes {begin:,} "
                f"to {stop:,} of its data; want {end:,} to {end + size:,}"
            )
        end = stop
        if end <= len(data):
            found[name] = data[begin:end].view(_DTYPES[dtype]).reshape(shape)
    if end != len(data):
        raise UserError(
            f"{path} is damaged or truncated: its header promises {end:,} bytes of "
            f"data, and it has {len(data):,}; download it again"
        )
    return {name: found[name] for name in header}


def _object(text: bytes, name: str) -> dict[str, Any]:
    """A JSON object without a name twice."""

    def once(pairs):
        if len(made := dict(pairs)) != len(pairs):
            raise ValueError("a name occurs twice")
        return made

    try:
        found = json.loads(text, object_pairs_hook=once)
        if not isinstance(found, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as e:
        raise UserError(f"{name} is damaged: its JSON cannot be read ({e})") from None
    return found


def _sharded(path: Path) -> dict[str, np.ndarray]:
    """A model in several files; the index says which array is in which."""
    index = _object(path.read_bytes(), str(path)).get("weight_map")
    if not isinstance(index, dict) or not all(
        isinstance(file, str) and Path(file).name == file for file in index.values()
    ):
        raise UserError(
            f"{path} is damaged: want `weight_map`, from names to files beside it"
        )
    found: dict[str, np.ndarray] = {}
    for file in sorted(set(index.values())):
        tensors = _one_file(path.parent / file)
        named = {name for name, each in index.items() if each == file}
        if named != tensors.keys():
            wrong = sorted(named ^ tensors.keys())
            raise UserError(
                f"{path.parent / file} does not hold what {path.name} says; they "
                f"differ in {', '.join(wrong[:4])}; download both again"
            )
        found |= tensors
    return found


# ------------------------------------------------------------------------ .npz, states


_NPZ_ERRORS = (
    *(ValueError, OSError, EOFError, LookupError, MemoryError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
    RuntimeError,  # encrypted
)


def _npz(path: Path) -> dict[str, np.ndarray]:
    """NumPy's archive of arrays; never one of Python objects."""
    with opened_zip(path) as archive:
        unpacked = sum(each.file_size for each in archive.infolist())
    # Parameters are noise, which hardly compresses.
    if unpacked > 64 * path.stat().st_size:
        raise UserError(
            f"{path} says that it unpacks to {unpacked:,} bytes; a model hardly "
            "compresses, so it is not read"
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except _NPZ_ERRORS as e:
        raise UserError(f"{path} is damaged: {e}; download it again") from None


def _state(found: Any, name: str) -> dict[str, np.ndarray]:
    """The dict of arrays in what torch.save wrote."""
    for key in ("", *STATES):
        state = found.get(key) if key and isinstance(found, dict) else found
        if isinstance(state, dict) and state:
            other = [k for k, x in state.items() if not isinstance(x, np.ndarray)]
            if not other and all(isinstance(k, str) for k in state):
                return state
    keys = [str(key) for key in found] if isinstance(found, dict) else []
    raise UserError(
        f"{name} is not a dict of tensors"
        + (f"; its keys are {', '.join(keys[:8])}" if keys else "")
        + "; save the model's state_dict() alone"
    )
