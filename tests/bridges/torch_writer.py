"""Writes files as `torch.save` does, without PyTorch."""

import collections
import io
import pickle
import zipfile

import numpy as np


def named(path):
    """A stand-in for a class of a library that is not installed."""
    module, _, name = path.rpartition(".")
    return type(name, (), {"__module__": module, "__qualname__": name})


STORAGES = {
    np.dtype(np.float32): named("torch.FloatStorage"),
    np.dtype(np.float16): named("torch.HalfStorage"),
    np.dtype(np.int64): named("torch.LongStorage"),
    np.dtype(np.uint16): named("torch.BFloat16Storage"),
}


class Called:
    """Pickled as a call of a function."""

    def __init__(self, path, *arguments):
        self.path, self.arguments = path, arguments


class Storage:
    """The elements of one tensor or several; they have its number as their key."""

    def __init__(self, array, key="0", claimed=None):
        self.array, self.key = array, key
        self.claimed = array.size if claimed is None else claimed


def tensor(storage, shape, strides, offset=0):
    return Called(
        *("torch._utils._rebuild_tensor_v2", storage, offset, shape, strides),
        *(False, collections.OrderedDict()),
    )


class Pickler(pickle._Pickler):
    def __init__(self, file, views=False):
        super().__init__(file, protocol=2)
        self.views = views

    def persistent_id(self, found):
        if isinstance(found, Storage):
            kind = STORAGES[found.array.dtype]
            key = ("storage", kind, found.key, "cpu", found.claimed)
            return (*key, None) if self.views else key
        return None

    def save_global(self, found, name=None):
        path = f"{found.__module__}\n{found.__qualname__}\n"
        self.write(pickle.GLOBAL + path.encode())

    def reducer_override(self, found):
        if isinstance(found, Called):
            return named(found.path), found.arguments
        return NotImplemented

    # The table of the base class calls its own method.
    dispatch = {**pickle._Pickler.dispatch, type: save_global}  # noqa: RUF012


def pickled(content, views=False):
    file = io.BytesIO()
    Pickler(file, views).dump(content)
    return file.getvalue()


def zipped(path, content, storages, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickled(content))
        archive.writestr("archive/version", "3\n")
        for storage in storages:
            archive.writestr(f"archive/data/{storage.key}", storage.array.tobytes())
    return path


def unzipped(path, content, storages):
    parts = [pickle.dumps(0x1950A86A20F9469CFC6C, 2), pickle.dumps(1001, 2)]
    parts.append(pickle.dumps({"protocol_version": 1001, "little_endian": True}, 2))
    parts += [pickled(content, views=True), pickled([s.key for s in storages])]
    for storage in storages:
        parts += [np.int64(storage.array.size).tobytes(), storage.array.tobytes()]
    path.write_bytes(b"".join(parts))
    return path


def saved(path, arrays, write=zipped, **content):
    """Stores a dict of float32 arrays, or a checkpoint with it as `model`."""
    storages = [Storage(np.float32(x), str(i)) for i, x in enumerate(arrays.values())]
    state = collections.OrderedDict()
    for name, storage in zip(arrays, storages, strict=True):
        strides = [step // 4 for step in np.ascontiguousarray(storage.array).strides]
        state[name] = tensor(storage, storage.array.shape, tuple(strides))
    return write(path, {**content, "model": state} if content else state, storages)
