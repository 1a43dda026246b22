"""Checkpoints of other systems: what is in them, and that nothing of them is run."""

import collections
import json
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges import tensor_files
from tests.bridges.exported import needs


def write_safetensors(path, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


A, HALF = np.arange(12, dtype=np.float32), np.arange(6, dtype=np.float16)
BRAIN = np.array([0x3F80, 0xC000], np.uint16)  # 1 and -2 in bfloat16
ENTRY = {"dtype": "F32", "shape": [12], "data_offsets": [0, 48]}


def zipped(path, pickled, method=zipfile.ZIP_STORED, **storages):
    """Writes an archive as `torch.save` does since 1.6."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)
    return path


def unzipped(path, pickled):
    """Writes pickles without a storage, as `torch.save` did before."""
    parts = 0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}
    parts = [pickle.dumps(part, 2) for part in parts]
    path.write_bytes(b"".join([*parts, pickled, pickle.dumps([], 2)]))
    return path


def refused(path, message):
    with pytest.raises(UserError, match=message):
        tensor_files.read_tensors(path)


# ------------------------------------------------------------------------ what is read


def test_safetensors(tmp_path):
    header = {
        "__metadata__": {"format": "pt"},
        "b": {"dtype": "BF16", "shape": [2], "data_offsets": [12, 16]},
        "a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]},
    }
    data = HALF.tobytes() + BRAIN.tobytes()
    found = tensor_files.read_tensors(write_safetensors(tmp_path / "x", header, data))
    assert found.keys() == {"a", "b"}
    np.testing.assert_array_equal(found["a"], HALF.reshape(2, 3))
    np.testing.assert_array_equal(found["b"].astype(np.float32), [1, -2])


def test_a_folder_of_several_files(tmp_path):
    one = {"a": ENTRY}
    two = {"b": {"dtype": "F16", "shape": [6], "data_offsets": [0, 12]}}
    write_safetensors(tmp_path / "1.safetensors", one, A.tobytes())
    write_safetensors(tmp_path / "2.safetensors", two, HALF.tobytes())
    index = tmp_path / "model.safetensors.index.json"
    files = {"a": "1.safetensors", "b": "2.safetensors"}
    index.write_text(json.dumps({"weight_map": files}))
    found = tensor_files.read_tensors(tmp_path)
    np.testing.assert_array_equal(found["a"], A)
    np.testing.assert_array_equal(found["b"], HALF)
    index.write_text(json.dumps({"weight_map": files | {"c": "2.safetensors"}}))
    refused(tmp_path, "2.safetensors does not hold.*differ in c")
    index.write_text(json.dumps({"weight_map": {"a": "../1.safetensors"}}))
    refused(tmp_path, "files next to it")


# --------------------------------------------------------------------- what is refused


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


class Evaluated(Bomb):
    """The same by a function of Python's own."""

    def __reduce__(self):
        return eval, (f"__import__('os').mkdir({self.folder!r})",)


class BombInState(Bomb):
    """Its state, not its making, calls something."""

    def __reduce__(self):
        return collections.OrderedDict, (), {"x": Bomb(self.folder)}


@pytest.mark.parametrize("write", [zipped, unzipped])
def test_files_of_torch_need_torch(write, tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "missing_packages", lambda script: ["torch"])
    path = write(tmp_path / "x.bin", pickle.dumps(Bomb(tmp_path / "exploded"), 2))
    refused(path, r"x\.bin is a file of PyTorch.*not installed.*pip install -e .*peers")
    assert not (tmp_path / "exploded").exists()


def test_a_torch_in_which_files_can_run_code(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "missing_packages", lambda script: [])
    (tmp_path / "torch.py").write_text("__version__, Tensor = '2.9.1+cpu', int")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path = zipped(tmp_path / "x.pt", pickle.dumps({}, 2))
    refused(path, r"not read with torch 2\.9\.1\+cpu.*torch>=2\.10")


@pytest.fixture
def unread(monkeypatch):
    """A torch that is installed; no file may come so far that it reads it."""
    monkeypatch.setattr(tensor_files, "missing_packages", lambda script: [])
    monkeypatch.delattr(tensor_files, "run")


def test_zip_bombs(tmp_path, unread):
    zeros = np.zeros(10**6, np.float32)
    zipped(tmp_path / "x.pt", b"", zipfile.ZIP_DEFLATED, a=zeros.tobytes())
    refused(tmp_path / "x.pt", "torch.save does not compress")
    np.savez_compressed(tmp_path / "x.npz", a=zeros)
    refused(tmp_path / "x.npz", "hardly compresses")


def whole_files(folder):
    np.savez(folder / "x.npz", a=A)
    return [
        write_safetensors(folder / "x.safetensors", {"a": ENTRY}, A.tobytes()),
        folder / "x.npz",
    ]


def test_truncated_files(tmp_path, unread):
    of_torch = zipped(tmp_path / "x.pt", pickle.dumps({}, 2), a=A.tobytes())
    for path in (*whole_files(tmp_path), of_torch):
        content = path.read_bytes()
        for length in {*range(0, len(content), len(content) // 16), len(content) - 1}:
            path.write_bytes(content[:length])
            refused(path, f"{path.name} ")


def test_damaged_files_are_read_or_refused(tmp_path):
    """Any byte may be any other: no other error than one for the user."""
    rng = np.random.default_rng(0)
    refused = 0
    for path in whole_files(tmp_path):
        content = path.read_bytes()
        for _ in range(40):
            damaged = bytearray(content)
            for at in rng.integers(len(content), size=3):
                damaged[at] = rng.integers(256)
            path.write_bytes(damaged)
            try:
                tensor_files.read_tensors(path)
            except UserError:
                refused += 1
    assert refused > 40


DAMAGED = "x.safetensors is damaged or truncated"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": {**ENTRY, "shape": [13]}}, DAMAGED),
        ({"a": {**ENTRY, "dtype": "F8_E4M3", "shape": [48]}}, "a type that NumPy lack"),
        ({"a": ENTRY, "b": {**ENTRY, "data_offsets": [44, 92]}}, DAMAGED),
        (b'{"a": 1, "a": 2}', DAMAGED),
        (b'{"a":' * 100_000, DAMAGED),
        (2**40, DAMAGED),  # a header longer than the file
    ],
)
def test_damaged_headers_of_safetensors(header, message, tmp_path):
    content, length = (header, None) if header != 2**40 else ({"a": ENTRY}, header)
    file = tmp_path / "x.safetensors"
    refused(write_safetensors(file, content, A.tobytes(), length), message)


def test_what_is_not_a_checkpoint(tmp_path, unread):
    path = tmp_path / "model.bin"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    refused(path, "git lfs pull")
    refused(tmp_path, "has no weights; want one of model.safetens")
    np.savez(tmp_path / "x.npz", a=np.array([Bomb(tmp_path)]))
    refused(tmp_path / "x.npz", "allow_pickle=False")
    # One bit of the numbers is another one.
    zipped(path, pickle.dumps({}, 2), a=A.tobytes())
    content = bytearray(path.read_bytes())
    content[content.index(A.tobytes()) + 5] ^= 1
    path.write_bytes(content)
    refused(path, "the checksum of archive/data/a is wrong")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/constants.pkl", bytes(1000))
    refused(path, "is TorchScript, which is a program")


# -------------------------------------------------------------------------- by PyTorch

WRITE = """
import argparse, collections, torch
stored, half = torch.arange(12.), torch.arange(6).half()
model = torch.nn.Linear(3, 2).state_dict()  # with PyTorch's metadata of it
model |= {"view": stored.reshape(3, 4).t()[1:], "tied": stored, "part": half[2:5]}
model |= {"empty": half[:0].reshape(0, 4), "number": half[5]}
model["brain"] = torch.tensor([1., -2.]).bfloat16()
model["learned"] = torch.nn.Parameter(torch.ones(2).half())
optimizer = torch.optim.Adam(torch.nn.Linear(2, 2).parameters()).state_dict()
args = argparse.Namespace(arch="transformer", lr=[0.1], device=torch.device("cpu"))
some = collections.defaultdict(list, a=[2])
other = {"set": {1}, "none": None, "float": 0.5, "pair": (1, "x"), "some": some}
content = {"args": args, "model": model, "optimizer": optimizer, "extra": other}
torch.save(content, "new.pt")
torch.save(content, "old.pt", _use_new_zipfile_serialization=False)
torch.save({"epoch": 3, "net": model}, "other.pt")
torch.save({"a": torch.zeros(1).half().expand(2**40)}, "repeated.pt")
torch.save({"a": stored}, "protocol.pt", pickle_protocol=4)
import numpy, pickle
pickle.dump(1, open("pickle.pt", "wb"), 2)
numpy.savez("wanted.npz", **{name: x.float().detach() for name, x in model.items()})
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of files that PyTorch wrote."""
    folder = tmp_path_factory.mktemp("torch")
    command = [sys.executable, "-P", "-c", WRITE]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@needs("torch")
@pytest.mark.parametrize("name", ["new.pt", "old.pt"])
def test_files_of_torch_itself(name, written):
    wanted = tensor_files.read_tensors(written / "wanted.npz")
    content = tensor_files.read_checkpoint(written / name)
    for found in (content["model"], tensor_files.read_tensors(written / name)):
        assert found.keys() == wanted.keys()
        for key, array in found.items():
            np.testing.assert_array_equal(array.astype(np.float32), wanted[key], key)
        assert found["part"].dtype == np.float16
    args = {"arch": "transformer", "lr": [0.1], "device": "cpu"}
    assert content["args"] == args
    extra = {"set": [1], "none": None, "float": 0.5, "pair": [1, "x"]}
    assert content["extra"] == {**extra, "some": {"a": [2]}}


@needs("torch")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other.pt", "its keys are epoch, net; save"),
        ("repeated.pt", "more elements than are stored"),
        ("protocol.pt", "is damaged or truncated, or holds more than .*operand"),
        ("pickle.pt", "is damaged or truncated, or holds more than"),
    ],
)
def test_files_of_torch_that_are_refused(name, message, written):
    refused(written / name, message)


@needs("torch")
@pytest.mark.parametrize("write", [zipped, unzipped])
@pytest.mark.parametrize("kind", [Bomb, Evaluated, BombInState])
def test_a_bomb_is_refused_by_name_and_not_run(write, kind, tmp_path):
    folder = tmp_path / "exploded"
    pickled = pickle.dumps({"w": [kind(folder)]}, 2)
    pickle.loads(pickled)  # it is one
    folder.rmdir()
    path = write(tmp_path / "x.pt", pickled)
    refused(path, r"holds an object of (posix.mkdir|eval)\b.*nothing was run")
    assert not folder.exists()


@needs("torch")
@pytest.mark.parametrize(
    "opcodes",
    [
        b"r\xff\xff\xff\xff",  # a memo entry of nothing
        b"}" + b")" + b"\x85" * 100_000 + b"K\x01s",  # a key whose hash is too deep
        b"}cargparse\nNamespace\n)\x81}X\x01\0\0\0aK\x01sb.",  # no tensors, a record
    ],
)
def test_pickles_written_by_an_enemy(opcodes, tmp_path):
    path = zipped(tmp_path / "x.pt", b"\x80\x02" + opcodes + b".")
    refused(path, "is damaged or truncated|is not a dict of tensors|could not compute")
