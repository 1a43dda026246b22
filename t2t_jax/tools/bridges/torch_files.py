"""Reads what `torch.save` writes, in its two formats, without PyTorch."""

import io
import math
import mmap
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.unpickling import unpickle

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
_NAMES = {
    *_STORAGES,
    *(f"torch.float{bits}" for bits in (16, 32, 64)),
    *(f"torch.int{bits}" for bits in (8, 16, 32, 64)),
    *("torch.bfloat16", "torch.bool", "torch.uint8"),
}
# The two numbers that the older format begins with.
_MAGIC = 0x1950A86A20F9469CFC6C, 1001


def mapped(path: Path) -> np.ndarray:
    """The bytes of a file, read from the disk where they are used."""
    return np.asarray(np.memmap(path, np.uint8, mode="r"))


def size_of(shape: Any, name: str) -> int:
    """The number of elements of a shape, which in a damaged file may be anything."""
    if not isinstance(shape, list | tuple) or not all(
        type(n) is int and n >= 0 for n in shape
    ):
        raise UserError(
            f"{name} is damaged: a size is not a non-negative integer; "
            "download it again"
        )
    return math.prod(shape)


def opened_zip(path: Path) -> zipfile.ZipFile:
    """Opens an archive; raises UserError if it is damaged."""
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as e:
        raise UserError(
            f"{path} is damaged or truncated: {e}; download it again"
        ) from None


def zipped(path: Path) -> Any:
    """Reads the format since PyTorch 1.6: an archive with a file for each storage."""
    content = mapped(path)
    with opened_zip(path) as archive:
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
    found = content[begin : begin + file.file_size]
    if len(found) != file.file_size or zlib.crc32(found) != file.CRC:
        raise UserError(
            f"{path} is damaged: the checksum of {file.filename} is wrong; download it "
            "again"
        )
    return found


def unzipped(path: Path) -> Any:
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
            raise UserError(f"{path} is damaged: it lists other storages than it has")
        content, at = mapped(path), stream.tell()
        storages: dict[str, np.ndarray] = {}
        for key in map(str, keys):
            dtype, elements = sizes[key]
            at += 8  # the number of elements once more
            data = content[at : at + elements * dtype.itemsize]
            storages[key] = _elements(data, dtype, elements, path)
            at += data.nbytes

        def storage(dtype, key, elements, view=None):
            found = storages[key].view(dtype)
            if view is None:
                return found
            _, first, count = view
            size_of([first, count], str(path))
            return found[first : first + count]

        stream.seek(begin)
        return _unpickle(stream, path, storage)


def _elements(data: np.ndarray, dtype: np.dtype, count: int, path: Path) -> np.ndarray:
    if data.nbytes != count * dtype.itemsize:
        raise UserError(
            f"{path} is damaged or truncated: a storage has {data.nbytes:,} bytes; "
            f"want {count * dtype.itemsize:,}; download it again"
        )
    return data.view(dtype)


def _big_endian(path: Path) -> UserError:
    return UserError(
        f"{path} was written on a big-endian machine; convert it to safetensors there"
    )


def _unpickle(stream: Any, path: Path, storage: Callable[..., Any]) -> Any:
    """Reads a pickle of tensors.

    Args:
      storage: returns the array of (dtype, key, elements, view or nothing), or None.
    """

    def persistent(found: tuple) -> Any:
        kind, its_type, key, _, elements, *view = found
        dtype = _STORAGES.get(getattr(its_type, "path", ""))
        if kind != "storage" or dtype is None:
            raise ValueError("an object that is stored elsewhere is not a storage")
        size_of([elements], str(path))
        return storage(dtype, str(key), elements, *view)

    def tensor(storage, offset, shape, strides, *_):
        return (
            storage if storage is None else _view(path, storage, offset, shape, strides)
        )

    calls = {
        "torch._utils._rebuild_tensor": tensor,
        "torch._utils._rebuild_tensor_v2": tensor,
        "torch._utils._rebuild_parameter": lambda array, *_: array,
        "torch._utils._rebuild_parameter_with_state": lambda array, *_: array,
        "torch.Size": tuple,
    }
    return unpickle(stream, str(path), persistent, calls, _NAMES)


def _view(path, storage: np.ndarray, offset, shape, strides) -> np.ndarray:
    """A tensor: a view of its storage, checked against the bounds."""
    size = size_of(shape, str(path))
    size_of([offset, *strides], str(path))
    if size == 0:
        return np.zeros(shape, storage.dtype)
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    # A view may repeat elements; one with more than its storage has is a bomb.
    if offset + last >= len(storage) or size > len(storage):
        raise UserError(
            f"{path} is damaged: a tensor of shape {list(shape)} does not fit into its "
            f"storage of {len(storage):,} elements"
        )
    return np.lib.stride_tricks.as_strided(
        storage[offset:],
        shape,
        [step * storage.itemsize for step in strides],
        writeable=False,
    )
