"""Checkpoints of other systems: what is in them, and that nothing of them is run.

Most files are written by hand, as `torch.save` writes them.
"""

import argparse
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
from tests.bridges.torch_writer import Called, Storage, tensor, unzipped, zipped


def write_safetensors(path, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


A, HALF = np.arange(12, dtype=np.float32), np.arange(6, dtype=np.float16)
BRAIN = np.array([0x3F80, 0xC000], np.uint16)  # 1 and -2 in bfloat16
STORED = [Storage(A), Storage(HALF, "1"), Storage(BRAIN, "2")]
ENTRY = {"dtype": "F32", "shape": [12], "data_offsets": [0, 48]}
VIEW = tensor(STORED[0], (4, 3), (1, 4))
PARAMETER = "torch._utils._rebuild_parameter"
# Names -> what is stored, and what is read.
TENSORS = {
    "a": (VIEW, A.reshape(3, 4).T),
    "part": (tensor(STORED[1], (3,), (1,), offset=2), HALF[2:5]),
    "brain": (Called(PARAMETER, tensor(STORED[2], (2,), (1,)), True, {}), [1, -2]),
    "tied": (VIEW, A.reshape(3, 4).T),
    "empty": (tensor(STORED[1], (0, 4), (4, 1)), np.zeros((0, 4))),
    "number": (tensor(STORED[1], (), (), offset=5), 5),
}


def state():
    return collections.OrderedDict({name: x for name, (x, _) in TENSORS.items()})


def check(found):
    assert found.keys() == TENSORS.keys()
    for name, (_, values) in TENSORS.items():
        np.testing.assert_array_equal(found[name].astype(np.float32), values, name)
    assert found["part"].dtype == np.float16


def refused(path, message):
    with pytest.raises(UserError, match=message):
        tensor_files.read_tensors(path)


# ------------------------------------------------------------------------ what is read


@pytest.mark.parametrize("write", [zipped, unzipped])
def test_both_formats_of_torch(write, tmp_path):
    options = argparse.Namespace(arch="transformer", lr=[0.1], flag=None)
    values = {"set": {1, 2}, "bytes": b"a\xff", "float": 0.5, "pair": (1, "x")}
    content = {"args": options, "model": state(), "extra": values}
    path = write(tmp_path / "model.pt", content, STORED)
    check(tensor_files.read_tensors(path))
    found = tensor_files.read_checkpoint(path)
    assert found["args"] == {"arch": "transformer", "lr": [0.1], "flag": None}
    assert found["extra"] == values
    check(found["model"])


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
    def __reduce__(self):
        return os.mkdir, ("exploded",)


class BombInState(dict):
    """Its state, not its making, calls something."""

    def __reduce__(self):
        return collections.OrderedDict, (), {"x": Bomb()}


@pytest.mark.parametrize("write", [zipped, unzipped])
@pytest.mark.parametrize("bomb", [Bomb(), BombInState(), [Called("a.b", Bomb())]])
def test_a_bomb_is_refused_by_name_and_not_run(write, bomb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(
        tmp_path / "x.pt", {"w": tensor(STORED[0], (12,), (1,)), "b": bomb}, STORED
    )
    refused(path, r"holds an object of (posix.mkdir|a.b)\b")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        b"r\xff\xff\xff\xff",  # a memo entry of nothing
        b"]\x8d\xff\xff\xff\xff\xff\xff\xff\x0fabc",  # text longer than the file
        b"}" + b")" + b"\x85" * 100_000 + b"K\x01s",  # a key whose hash is too deep
        b"K\x01Q",  # an object that is stored elsewhere
        b"\x82\x01",  # a name by number, of a table of this process
    ],
)
def test_pickles_written_by_an_enemy(opcodes, tmp_path):
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + opcodes + b".")
    refused(path, "is damaged or truncated|the pickle opcode")


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((13,), (1,), 0),
        ((4, 3), (4, 1), 0),
        ((2,), (-1,), 1),
        ((2**40,), (0,), 0),  # one element, repeated until the memory is full
    ],
)
def test_a_tensor_outside_of_its_storage(shape, strides, offset, tmp_path):
    content = {"a": tensor(STORED[0], shape, strides, offset)}
    refused(zipped(tmp_path / "x.pt", content, STORED[:1]), "x.pt is damaged")


@pytest.mark.parametrize("write", [zipped, unzipped])
def test_a_storage_of_another_size(write, tmp_path):
    storage = Storage(A, claimed=10**15)
    content = {"a": tensor(storage, (12,), (1,))}
    refused(write(tmp_path / "x.pt", content, [storage]), "a storage has 4. bytes")


def test_zip_bombs(tmp_path):
    zeros = Storage(np.zeros(10**6, np.float32))
    content = {"a": tensor(zeros, (10**6,), (1,))}
    path = zipped(tmp_path / "x.pt", content, [zeros], zipfile.ZIP_DEFLATED)
    refused(path, "torch.save does not compress")
    np.savez_compressed(tmp_path / "x.npz", a=zeros.array)
    refused(tmp_path / "x.npz", "hardly compresses")


def whole_files(folder):
    np.savez(folder / "x.npz", a=A)
    return [
        zipped(folder / "zipped.pt", state(), STORED),
        unzipped(folder / "unzipped.pt", state(), STORED),
        write_safetensors(folder / "x.safetensors", {"a": ENTRY}, A.tobytes()),
        folder / "x.npz",
    ]


def test_truncated_files(tmp_path):
    for path in whole_files(tmp_path):
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
    assert refused > 80


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


def test_what_is_not_a_checkpoint(tmp_path):
    path = tmp_path / "model.bin"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    refused(path, "git lfs pull")
    refused(tmp_path, "has no weights; want one of model.safetens")
    path.write_bytes(pickle.dumps(1, 2) * 3)
    refused(path, "not one that torch.save wrote")
    zipped(path, {"epoch": 3, "net": state()}, STORED)
    refused(path, "its keys are epoch, net; save")
    np.savez(tmp_path / "x.npz", a=np.array([Bomb()]))
    refused(tmp_path / "x.npz", "allow_pickle=False")
    # One bit of the numbers is another one.
    zipped(path, state(), STORED)
    content = bytearray(path.read_bytes())
    content[content.index(A.tobytes()) + 5] ^= 1
    path.write_bytes(content)
    refused(path, "the checksum of archive/data/0 is wrong")


# -------------------------------------------------------------------------- by PyTorch

WRITE = """
import argparse, collections, torch
model = torch.nn.Transformer(8, 2, 1, 1, 4).state_dict()
model["view"] = torch.arange(12.).reshape(3, 4).t()[1:]
model["brain"] = torch.tensor([1., -2.]).bfloat16()
model["learned"] = torch.nn.Parameter(torch.ones(2).half())
optimizer = torch.optim.Adam(torch.nn.Linear(2, 2).parameters()).state_dict()
content = {"args": argparse.Namespace(a=1), "model": model, "optimizer": optimizer}
torch.save(content, "new.pt")
torch.save(content, "old.pt", _use_new_zipfile_serialization=False)
import numpy
numpy.savez("wanted.npz", **{name: x.float().detach() for name, x in model.items()})
"""


@needs("torch")
def test_files_of_torch_itself(tmp_path):
    command = [sys.executable, "-P", "-c", WRITE]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    wanted = tensor_files.read_tensors(tmp_path / "wanted.npz")
    for name in ("new.pt", "old.pt"):
        found = tensor_files.read_tensors(tmp_path / name)
        assert found.keys() == wanted.keys()
        for key, array in found.items():
            np.testing.assert_array_equal(array.astype(np.float32), wanted[key])
        assert tensor_files.read_checkpoint(tmp_path / name)["args"] == {"a": 1}
