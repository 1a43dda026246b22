"""Files of arrays: reads safetensors, PyTorch's formats and .npz; writes safetensors.

Nothing of a file is run, and PyTorch is not needed. Arrays of PyTorch's files are views
of the file, read-only; bounds are checked before any is made.
"""

import io
import json
import math
import mmap
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.model_files import read_json
from t2t_jax.tools.bridges.unpickling import unpickle

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
    """
    path = Path(path)
    kind = _kind(path)
    if kind == "zip":
        return _zipped(path)
    if kind == "pickle":
        return _unzipped(path)
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
        named = {name for name, each in index.items() if each == file}
        if named != tensors.keys():
            wrong = sorted(named ^ tensors.keys())
            raise UserError(
                f"{path.parent / file} does not hold what {path.name} says; they "
                f"differ in {', '.join(wrong[:4])}; download both again"
            )
        arrays |= tensors
    return arrays


# What np.load raises for damaged archives; RuntimeError for encrypted ones.
_NPZ_ERRORS = (
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
        raise _damaged(path, e) from None


def _state(content: Any, name: str) -> dict[str, np.ndarray]:
    """The dict of arrays in what torch.save wrote."""
    for key in ("", *STATES):
        state = content.get(key) if key and isinstance(content, dict) else content
        if isinstance(state, dict) and state:
            other = [k for k, x in state.items() if not isinstance(x, np.ndarray)]
            if not other and all(isinstance(k, str) for k in state):
                return state
    keys = [str(key) for key in content] if isinstance(content, dict) else []
    raise UserError(
        f"{name} is not a dict of tensors"
        + (f"; its keys are {', '.join(keys[:8])}" if keys else "")
        + "; save the model's state_dict() alone"
    )


# ------------------------------------------------------------- what torch.save writes

_STORAGES = {
    f"torch.{place}{name}Storage": np.dtype(dtype)
    for place in ("", "cuda.")
    for name, dtype in {
        "Double": "<f8",
        "Float": "<f4",
        "Half": "<f2",
        "BFloat16": ml_dtypes.bfloat16,
        "Long": "<i8",
        "Int": "<i4",
        "Short": "<i2",
        "Char": "i1",
        "Byte": "u1",
        "Bool": "?",
    }.items()
}
# Names that a pickle may hold as values.
_NAMES = {*_STORAGES, *(f"torch.{dtype.name}" for dtype in _STORAGES.values())}
# The two numbers that the older format begins with.
_MAGIC = 0x1950A86A20F9469CFC6C, 1001


def _mapped(path: Path) -> np.ndarray:
    """The bytes of a file, read from the disk where they are used."""
    return np.asarray(np.memmap(path, np.uint8, mode="r"))


def _size_of(shape: Any, path: Path) -> int:
    """The number of elements of a shape, which in a damaged file may be anything."""
    if not isinstance(shape, list | tuple) or not all(
        type(n) is int and n >= 0 for n in shape
    ):
        raise _damaged(path, "a size is not a non-negative integer")
    return math.prod(shape)


def _open_zip(path: Path) -> zipfile.ZipFile:
    """Opens an archive; raises UserError if it is damaged."""
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as e:
        raise _damaged(path, e) from None


def _damaged(path: Path, reason: Any) -> UserError:
    return UserError(f"{path} is damaged or truncated: {reason}; download it again")


def _zipped(path: Path) -> Any:
    """Reads the format since PyTorch 1.6: an archive with a file for each storage."""
    content = _mapped(path)
    with _open_zip(path) as archive:
        files = {each.filename: each for each in archive.infolist()}
    pickles = [name for name in files if name.split("/")[1:] == ["data.pkl"]]
    if len(pickles) != 1:
        raise UserError(f"{path} is an archive, but not one that torch.save wrote")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}constants.pkl" in files:
        raise UserError(
            f"{path} is TorchScript, which is a program; save the module's "
            "state_dict() with torch.save"
        )
    # PyTorch does not compress. What unpacks to more than the file has is a bomb.
    unpacked = sum(each.file_size for each in files.values())
    packed = any(each.compress_type != zipfile.ZIP_STORED for each in files.values())
    if packed or unpacked > len(content):
        raise UserError(
            f"{path} has {len(content):,} bytes and says that it unpacks to "
            f"{unpacked:,}; torch.save does not compress, so it is not read"
        )
    storages: dict[str, np.ndarray] = {}

    def storage(dtype: np.dtype, key: str, elements: int) -> np.ndarray:
        if key not in storages:
            storages[key] = _member(content, files[f"{folder}data/{key}"], path)
        return _elements(storages[key], dtype, elements, path)

    order = files.get(f"{folder}byteorder")
    if order and _member(content, order, path).tobytes() != b"little":
        raise _big_endian(path)
    stream = io.BytesIO(_member(content, files[pickles[0]], path).tobytes())
    return _unpickle(stream, path, storage)


def _member(content: np.ndarray, file: zipfile.ZipInfo, path: Path) -> np.ndarray:
    """A file of an archive, as a view of the archive."""
    # Its local header has 30 bytes, its name and an extra field of any length.
    at = file.header_offset
    head = content[at : at + 30].tobytes().ljust(30, b"\0")
    begin = at + 30 + sum(struct.unpack("<2H", head[26:30]))
    data = content[begin : begin + file.file_size]
    if len(data) != file.file_size or zlib.crc32(data) != file.CRC:
        raise _damaged(path, f"the checksum of {file.filename} is wrong")
    return data


def _unzipped(path: Path) -> Any:
    """Reads the format before PyTorch 1.6: pickles, then storages one after another."""
    with path.open("rb") as file:
        stream = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with stream:
        magic, version, system = (unpickle(stream, str(path)) for _ in range(3))
        if (magic, version) != _MAGIC or not isinstance(system, dict):
            raise UserError(f"{path} is a pickle, but not one that torch.save wrote")
        if system.get("little_endian") is not True:
            raise _big_endian(path)
        begin = stream.tell()
        # The storages come last, so a first pass only finds their types and sizes.
        sizes: dict[str, tuple[np.dtype, int]] = {}
        _unpickle(
            stream, path, lambda dtype, key, n, *_: sizes.update({key: (dtype, n)})
        )
        keys = unpickle(stream, str(path))
        if not isinstance(keys, list) or {str(key) for key in keys} != sizes.keys():
            raise _damaged(path, "it lists other storages than it has")
        content, at = _mapped(path), stream.tell()
        storages: dict[str, np.ndarray] = {}
        for key in map(str, keys):
            dtype, elements = sizes[key]
            at += 8  # the number of elements once more
            data = content[at : at + elements * dtype.itemsize]
            storages[key] = _elements(data, dtype, elements, path)
            at += data.nbytes

        def storage(dtype, key, elements, view=None):
            array = storages[key].view(dtype)
            if view is None:
                return array
            _, first, count = view
            _size_of([first, count], path)
            return array[first : first + count]

        stream.seek(begin)
        return _unpickle(stream, path, storage)


def _elements(data: np.ndarray, dtype: np.dtype, count: int, path: Path) -> np.ndarray:
    if data.nbytes != count * dtype.itemsize:
        expected = count * dtype.itemsize
        raise _damaged(path, f"a storage has {data.nbytes:,} bytes; want {expected:,}")
    return data.view(dtype)


def _big_endian(path: Path) -> UserError:
    return UserError(
        f"{path} was written on a big-endian machine; convert it to safetensors there"
    )


def _unpickle(stream: Any, path: Path, storage: Callable[..., Any]) -> Any:
    """Reads a pickle of tensors.

    `storage` returns the array of (dtype, key, elements, view or nothing), or None.
    """

    def persistent(persistent_id: tuple) -> Any:
        kind, its_type, key, _, elements, *view = persistent_id
        dtype = _STORAGES.get(getattr(its_type, "path", ""))
        if kind != "storage" or dtype is None:
            raise ValueError("an object that is stored elsewhere is not a storage")
        _size_of([elements], path)
        return storage(dtype, str(key), elements, *view)

    def tensor(storage, offset, shape, strides, *_):
        return _view(path, storage, offset, shape, strides)

    calls = {
        "torch._utils._rebuild_tensor": tensor,
        "torch._utils._rebuild_tensor_v2": tensor,
        "torch._utils._rebuild_parameter": lambda array, *_: array,
        "torch._utils._rebuild_parameter_with_state": lambda array, *_: array,
        "torch.Size": tuple,
    }
    return unpickle(stream, str(path), persistent, calls, _NAMES)


def _view(path, storage: np.ndarray | None, offset, shape, strides):
    """A tensor: a view of its storage, checked against the bounds; None without one."""
    if storage is None:
        return None
    size = _size_of(shape, path)
    _size_of([offset, *strides], path)
    if size == 0:
        return np.zeros(shape, storage.dtype)
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    # A view may repeat elements; one with more than its storage has is a bomb.
    if offset + last >= len(storage) or size > len(storage):
        reason = f"a tensor of shape {list(shape)} does not fit into its storage of "
        raise _damaged(path, f"{reason}{len(storage):,} elements")
    return np.lib.stride_tricks.as_strided(
        storage[offset:],
        shape,
        [step * storage.itemsize for step in strides],
        writeable=False,
    )


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
