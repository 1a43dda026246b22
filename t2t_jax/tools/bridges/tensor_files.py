"""Files of arrays: reads safetensors, PyTorch's formats and .npz; writes safetensors.

Nothing of a file is run. PyTorch's formats need PyTorch, the others do not.
"""

import json
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy then knows bfloat16)
import numpy as np
from safetensors import SafetensorError, safe_open

from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.checks.peer_process import missing_packages, run
from t2t_jax.tools.bridges.model_files import read_json

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
      UserError: damaged, not such a file, or it holds other classes; or torch is not
        installed, which reads what `torch.save` wrote.
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
    return _torch(path, kind)[0]


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a dict that `torch.save` wrote: the state dict, and the values next to it.

    The state dict has arrays, and one of `STATES` as its key. Other values are as JSON
    has them: objects, such as fairseq's `argparse.Namespace`, are dicts of their
    attributes, and tensors are None.
    """
    path = Path(path)
    kind = _kind(path)
    if kind not in ("zip", "pickle"):
        raise UserError(
            f"{path} has the format {kind}; want a file that torch.save wrote"
        )
    arrays, key, values = _torch(path, kind)
    return {**values, key: arrays} if key else {**arrays}


def _kind(path: Path) -> str:
    """The format of a file, by its first bytes: names often lie."""
    if not path.is_file():
        raise UserError(f"{path} does not exist; want a file of weights")
    with path.open("rb") as file:
        head = file.read(64)
    if head[8:9] == b"{":
        return "safetensors"
    if head.startswith(b"PK\x03\x04"):
        with _open_zip(path) as archive:
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


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as e:
        raise _damaged(path, e) from None
    except (AttributeError, TypeError) as e:
        raise UserError(
            f"{path} has an array of a type that NumPy lacks ({e}); store it as float32"
        ) from None


def _sharded(path: Path) -> dict[str, np.ndarray]:
    """A model in several files; the index says which array is in which."""
    index = read_json(path).get("weight_map")
    if not isinstance(index, dict) or not all(
        isinstance(file, str) and Path(file).name == file for file in index.values()
    ):
        raise _damaged(path, "want `weight_map`, from names to files next to it")
    arrays: dict[str, np.ndarray] = {}
    for file in sorted(set(index.values())):
        tensors = _one_file(path.parent / file)
        named = {name for name, stored_in in index.items() if stored_in == file}
        if named != tensors.keys():
            wrong = sorted(named ^ tensors.keys())
            raise UserError(
                f"{path.parent / file} does not hold what {path.name} says; they "
                f"differ in {', '.join(wrong[:4])}; download both again"
            )
        arrays |= tensors
    return arrays


# What damaged archives raise; RuntimeError for encrypted ones.
_ARCHIVE_ERRORS = (
    ValueError,
    OSError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def _npz(path: Path) -> dict[str, np.ndarray]:
    """NumPy's archive of arrays; never one of Python objects."""
    with _open_zip(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    # Parameters are noise, which hardly compresses.
    if unpacked > 64 * path.stat().st_size:
        raise UserError(
            f"{path} says that it unpacks to {unpacked:,} bytes; a model hardly "
            "compresses, so it is not read"
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except _ARCHIVE_ERRORS as e:
        raise _damaged(path, e) from None


# ------------------------------------------------------------- what torch.save writes


def _torch(path: Path, kind: str) -> tuple[dict[str, np.ndarray], str, dict[str, Any]]:
    """Returns the state dict of a file, its key (or ""), and what is next to it.

    PyTorch reads the file in a process of its own: it may not share one with
    TensorFlow, which may be loaded here.
    """
    if missing_packages("torch_files"):
        raise UserError(
            f"{path} is a file of PyTorch, and torch, which reads it, is not installed "
            "here; want torch, or the model as .safetensors: in the clone, pip install "
            "-e '.[peers]'"
        )
    if kind == "zip":
        _check_archive(path)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arrays.npz"
        read = run(
            "torch_files",
            "tensors",
            model=str(path.absolute()),
            mmap=kind == "zip",
            keys=STATES,
            arrays=str(file),
        )
        if refused := read.get("refused"):
            raise UserError(f"{path} {refused}")
        arrays = _npz(file)
    state = {name: arrays[str(i)] for i, name in enumerate(read["names"])}
    return state, read["key"], read["values"]


def _check_archive(path: Path) -> None:
    """Checks what `torch.load` does not, which maps the file: sizes and checksums."""
    size = path.stat().st_size
    with _open_zip(path) as archive:
        members = archive.infolist()
        if any(member.filename.endswith("/constants.pkl") for member in members):
            raise UserError(
                f"{path} is TorchScript, which is a program; save the module's "
                "state_dict() with torch.save"
            )
        # PyTorch does not compress. What unpacks to more than the file has is a bomb.
        unpacked = sum(member.file_size for member in members)
        if unpacked > size or any(
            member.compress_type != zipfile.ZIP_STORED for member in members
        ):
            raise UserError(
                f"{path} has {size:,} bytes and says that it unpacks to {unpacked:,}; "
                "torch.save does not compress, so it is not read"
            )
        try:
            damaged = archive.testzip()
        except _ARCHIVE_ERRORS as e:
            raise _damaged(path, e) from None
    if damaged:
        raise _damaged(path, f"the checksum of {damaged} is wrong")


def _open_zip(path: Path) -> zipfile.ZipFile:
    """Opens an archive; raises UserError if it is damaged."""
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as e:
        raise _damaged(path, e) from None


def _damaged(path: Path, reason: Any) -> UserError:
    return UserError(f"{path} is damaged or truncated: {reason}; download it again")


# ----------------------------------------------------------------- safetensors, written

# Not by the library, which writes the entries of the metadata in another order each
# time: an export of the same model has the same bytes. The format: the length of the
# header in 8 bytes, the header as JSON, then all arrays without gaps. The header gives
# each array's type, shape and place.

# The format's names of the types that this project stores, all little-endian.
TYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64"}
_ALIGNMENT = 8  # readers may map an array into memory where it starts


def write_safetensors(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes arrays under their names, and texts about the file.

    Transformers wants the metadata `{"format": "pt"}` of a file for PyTorch.
    """
    header: dict = {"__metadata__": dict(metadata)} if metadata else {}
    start = 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": TYPES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [start, start + tensor.nbytes],
        }
        start += tensor.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            # tobytes: C order, whatever the order in memory; scalars too.
            file.write(tensor.astype(tensor.dtype.newbyteorder("<")).tobytes())
