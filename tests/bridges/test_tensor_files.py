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

SINGLE, HALF = np.arange(12, dtype=np.float32), np.arange(6, dtype=np.float16)
ENTRY = {"dtype": "F32", "shape": [12], "data_offsets": [0, 48]}


def write_safetensors(path, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


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


def test_safetensors_in_several_files(tmp_path):
    half = {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}
    brain = {"dtype": "BF16", "shape": [2], "data_offsets": [12, 16]}
    header = {"__metadata__": {"format": "pt"}, "c": brain, "b": half}
    data = HALF.tobytes() + np.array([0x3F80, 0xC000], np.uint16).tobytes()
    write_safetensors(tmp_path / "1.safetensors", {"a": ENTRY}, SINGLE.tobytes())
    write_safetensors(tmp_path / "2.safetensors", header, data)
    index = tmp_path / "model.safetensors.index.json"
    files = {"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"}
    index.write_text(json.dumps({"weight_map": files}))
    arrays = tensor_files.read_tensors(tmp_path)
    assert arrays.keys() == {"a", "b", "c"}
    np.testing.assert_array_equal(arrays["a"], SINGLE)
    np.testing.assert_array_equal(arrays["b"], HALF.reshape(2, 3))
    np.testing.assert_array_equal(arrays["c"].astype(np.float32), [1, -2])
    index.write_text(json.dumps({"weight_map": files | {"d": "2.safetensors"}}))
    refused(tmp_path, "2.safetensors does not hold.*differ in d")
    index.write_text(json.dumps({"weight_map": {"a": "../1.safetensors"}}))
    refused(tmp_path, "files next to it")


# --------------------------------------------------------------------- what is refused


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


class BombInState(Bomb):
    """Its state, not its making, calls something, by a function of Python's own."""

    def __reduce__(self):
        return collections.OrderedDict, (), {"x": Evaluated(self.folder)}


class Evaluated(Bomb):
    def __reduce__(self):
        return eval, (f"__import__('os').mkdir({self.folder!r})",)


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


def whole_files(folder):
    np.savez(folder / "x.npz", a=SINGLE)
    file = folder / "x.safetensors"
    write_safetensors(file, {"a": ENTRY}, SINGLE.tobytes())
    return [file, folder / "x.npz"]


def test_truncated_files(tmp_path, unread):
    by_torch = zipped(tmp_path / "x.pt", pickle.dumps({}, 2), a=SINGLE.tobytes())
    for path in (*whole_files(tmp_path), by_torch):
        content = path.read_bytes()
        for length in {*range(0, len(content), len(content) // 16), len(content) - 1}:
            path.write_bytes(content[:length])
            refused(path, f"{path.name} ")


def test_damaged_files_are_read_or_refused(tmp_path):
    """Any byte may be any other: no other error than one for the user."""
    rng = np.random.default_rng(0)
    refusals = 0
    for path in whole_files(tmp_path):
        content = path.read_bytes()
        for _ in range(40):
            damaged = bytearray(content)
            for place in rng.integers(len(content), size=3):
                damaged[place] = rng.integers(256)
            path.write_bytes(damaged)
            try:
                tensor_files.read_tensors(path)
            except UserError:
                refusals += 1
    assert refusals > 40


def zip_bomb(file):
    zipped(file, b"", zipfile.ZIP_DEFLATED, a=bytes(4 * 10**6))


def flipped_bit(file):
    zipped(file, pickle.dumps({}, 2), a=SINGLE.tobytes())
    content = bytearray(file.read_bytes())
    content[content.index(SINGLE.tobytes()) + 5] ^= 1
    file.write_bytes(content)


def torch_script(file):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/constants.pkl", bytes(1000))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (zip_bomb, "torch.save does not compress"),
        (
            lambda file: np.savez_compressed(file, a=np.zeros(10**6)),
            "hardly compresses",
        ),
        (lambda file: np.savez(file, a=np.array([Bomb("x")])), "allow_pickle=False"),
        (flipped_bit, "the checksum of archive/data/a is wrong"),
        (torch_script, "is TorchScript, which is a program"),
        (
            lambda file: file.write_text("version https://git-lfs.github"),
            "git lfs pull",
        ),
        (lambda file: file.mkdir(), "has no weights; want one of model.safetens"),
        (
            lambda file: write_safetensors(file, b'{"a":' * 100_000, b""),
            "x.npz is damaged or truncated",
        ),
        (
            lambda file: write_safetensors(
                file, {"a": ENTRY | {"dtype": "F8_E4M3", "shape": [48]}}, bytes(48)
            ),
            "a type that NumPy lacks",
        ),
    ],
)
def test_what_is_not_a_checkpoint(write, message, tmp_path, unread):
    write(tmp_path / "x.npz")
    refused(tmp_path / "x.npz", message)


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
import numpy, pickle
pickle.dump(1, open("pickle.pt", "wb"), 2)
numpy.savez("expected.npz", **{name: x.float().detach() for name, x in model.items()})
"""


@pytest.fixture(scope="module")
def by_torch(tmp_path_factory):
    """A folder of files that PyTorch wrote."""
    folder = tmp_path_factory.mktemp("torch")
    command = [sys.executable, "-P", "-c", WRITE]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@needs("torch")
@pytest.mark.parametrize("name", ["new.pt", "old.pt"])
def test_files_of_torch_itself(name, by_torch):
    expected = tensor_files.read_tensors(by_torch / "expected.npz")
    content = tensor_files.read_checkpoint(by_torch / name)
    for arrays in (content["model"], tensor_files.read_tensors(by_torch / name)):
        assert arrays.keys() == expected.keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(array.astype(np.float32), expected[key], key)
        assert arrays["part"].dtype == np.float16
    assert content["args"] == {"arch": "transformer", "lr": [0.1], "device": "cpu"}
    extra = {"set": [1], "none": None, "float": 0.5, "pair": [1, "x"]}
    assert content["extra"] == {**extra, "some": {"a": [2]}}


@needs("torch")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other.pt", "its keys are epoch, net; save"),
        ("repeated.pt", "more elements than are stored"),
        ("pickle.pt", "is damaged or truncated, or holds more than"),
    ],
)
def test_files_of_torch_that_are_refused(name, message, by_torch):
    refused(by_torch / name, message)


@needs("torch")
@pytest.mark.parametrize("write", [zipped, unzipped])
@pytest.mark.parametrize("kind", [Bomb, BombInState])
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
