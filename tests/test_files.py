"""What is there whole or not at all, and what finds out that it is not."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.io import atomic, sealed
from tests.small_run import contents

NAMES = st.text("abc.", min_size=1, max_size=3).filter(lambda n: n.strip("."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(PATHS, st.binary(max_size=40), min_size=1, max_size=4).filter(
    lambda tree: not any(a.startswith(f"{b}/") for a in tree for b in tree)
)


@pytest.fixture
def sealed_folder(tmp_path):
    """A sealed folder of one file, of which a test writes the manifest."""
    folder = tmp_path / "sealed"
    folder.mkdir()
    (folder / "a").write_bytes(b"content")
    sealed.seal(folder)
    return folder


def entry(content):
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def claim(folder, names, content):
    """Lets a manifest name files, wherever they are, of this content."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed, "_below", lambda folder: names)
        patch.setattr(sealed, "_hash", lambda file: entry(content))
        patch.setattr(sealed, "fsync", lambda place: None)
        sealed.seal(folder)


@settings(max_examples=40, deadline=None)
@given(TREES, st.data())
def test_every_change_of_a_sealed_folder_is_found_and_named(tree, data):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "sealed"
        for name, content in tree.items():
            atomic.write_atomically(folder / name, content)
        sealed.seal(folder, bleu=1.5)
        assert sealed.damage(folder) == ""
        assert sealed.notes(folder) == {"bleu": 1.5}
        name = data.draw(st.sampled_from(sorted(tree)), "name")
        content = tree[name]
        offset = data.draw(st.integers(0, len(content)), "at")
        bits = data.draw(st.integers(1, 255), "bits")
        changed = (
            bytes([content[offset] ^ bits]) if offset < len(content) else bytes([bits])
        )
        (folder / name).write_bytes(content[:offset] + changed + content[offset + 1 :])
        assert name in sealed.damage(folder)
        (folder / name).write_bytes(content)
        assert sealed.damage(folder) == ""
        if offset < len(content):
            os.truncate(folder / name, offset)
            assert f"{name} has {offset} bytes, not" in sealed.damage(folder)
        (folder / name).unlink()
        assert sealed.damage(folder) == f"{name} is missing"
        (folder / name).mkdir()
        assert f"{name} is not a regular file" in sealed.damage(folder)


def test_every_bit_of_what_was_noted_counts(sealed_folder):
    sealed.seal(sealed_folder, bleu=27.25)
    manifest = sealed_folder / sealed.MANIFEST
    written = manifest.read_bytes()
    for offset in range(8 * len(written)):
        changed = bytearray(written)
        changed[offset // 8] ^= 1 << offset % 8
        manifest.write_bytes(changed)
        if not sealed.damage(sealed_folder):
            assert sealed.notes(sealed_folder) == {"bleu": 27.25}
            assert json.loads(changed)["files"] == json.loads(written)["files"]


def test_a_folder_without_a_manifest_was_not_finished(sealed_folder):
    (sealed_folder / sealed.MANIFEST).unlink()
    assert not sealed.is_sealed(sealed_folder)
    assert sealed.notes(sealed_folder) == {}
    for place in (sealed_folder, sealed_folder / "a", sealed_folder / "nowhere"):
        assert "it has no manifest.json" in sealed.damage(place)


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", '{"files": {"a": {}}}', "\xff", "[" * 100_000),
        '{"files": {"a": {"bytes": NaN, "sha256": ""}}}',
    ],
)
def test_a_manifest_that_makes_no_sense_is_told(sealed_folder, content):
    (sealed_folder / sealed.MANIFEST).write_bytes(content.encode("latin-1"))
    assert "its manifest.json cannot be read" in sealed.damage(sealed_folder)
    assert sealed.notes(sealed_folder) == {}


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x"])
def test_a_manifest_leads_nowhere_outside_of_its_folder(
    sealed_folder, name, monkeypatch
):
    (sealed_folder.parent / "x").write_bytes(b"secret")
    claim(sealed_folder, [name], b"secret")
    monkeypatch.setattr(sealed, "_hash", lambda file: pytest.fail("read"))
    assert "it names files outside of its folder" in sealed.damage(sealed_folder)


@pytest.mark.parametrize("name", ["a", "b/a"])
def test_a_link_leads_nowhere_outside_of_its_folder(sealed_folder, name):
    """Neither as a file nor as a folder on the way to it."""
    outside = sealed_folder.parent / "outside"
    shutil.copytree(sealed_folder, outside)
    if name == "a":
        (sealed_folder / "a").unlink()
        (sealed_folder / "a").symlink_to(outside / "a")
    else:
        (sealed_folder / "b").symlink_to(outside)
        claim(sealed_folder, [name], b"content")
    assert sealed.damage(sealed_folder)


def test_a_file_that_cannot_be_written_stays_what_it_was(tmp_path, monkeypatch):
    file = tmp_path / "file"
    atomic.write_atomically(file, b"before")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(OSError, match="No space left"):
                atomic.write_atomically(file, b"after")
        assert contents(tmp_path) == {"file": b"before"}
    atomic.write_atomically(file, b"after")
    assert contents(tmp_path) == {"file": b"after"}


def test_what_is_half_removed_is_no_checkpoint(sealed_folder, monkeypatch):
    folder = epath.Path(sealed_folder)
    with monkeypatch.context() as patch:  # killed between the two
        patch.setattr(type(folder), "rmtree", lambda self: None)
        sealed.remove(folder)
    assert {*contents(sealed_folder.parent)} == {
        "sealed.deleted/a",
        f"sealed.deleted/{sealed.MANIFEST}",
    }
    assert not sealed.is_sealed(folder)


def test_earlier_files_keep_their_order(tmp_path):
    json_file, lines = tmp_path / "a.json", tmp_path / "a.de"
    for number in range(3):
        json_file.write_text(f"scores {number}")
        if number != 1:  # they move together, even where one is not there
            lines.write_text(f"lines {number}")
        atomic.keep_earlier(json_file, lines)
    atomic.keep_earlier(json_file, lines)  # of nothing nothing is kept
    assert contents(tmp_path) == {
        **{f"a.{n + 1}.json": f"scores {n}".encode() for n in range(3)},
        **{"a.1.de": b"lines 0", "a.3.de": b"lines 2"},
    }


@pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "bucket"])
def test_a_folder_set_aside_is_still_sealed(tmp_path, monkeypatch, on_disk):
    monkeypatch.setattr(sealed, "is_local", lambda _: on_disk)
    names = ["state-8", "state-8.1", "state-8.2"]  # none takes the place of another
    for name in names:
        folder = epath.Path(tmp_path / "checkpoint")
        (folder / "a").mkdir(parents=True)
        (folder / "a/b").write_text(f"content of {name}")
        sealed.seal(folder)
        moved = sealed.set_aside(folder, epath.Path(tmp_path / "old/state-8"))
        assert moved == tmp_path / "old" / name
        assert not folder.exists()
    for name in names:
        assert sealed.damage(tmp_path / "old" / name) == ""
        assert (tmp_path / "old" / name / "a/b").read_text() == f"content of {name}"
