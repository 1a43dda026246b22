"""A workdir of somebody else is data: nothing of it is run, nothing elsewhere touched.

Python tells an audit hook of every file that is opened and every name that is unpickled
(PEP 578). The hook is put in place in a process of its own, since it stays for good.
"""

import os
import shutil
import subprocess
import sys

import pytest

from t2t_jax import Translator, UserError
from t2t_jax.config import from_config_dict
from t2t_jax.data.prepare import find_prepared
from t2t_jax.io import atomic
from tests.small_run import ROOT

LOAD = """
import os, sys
from t2t_jax import Translator
import jax, orbax.checkpoint, sentencepiece  # their own files are not what is watched

workdir, opened = os.path.realpath(sys.argv[1]), []

def hook(event, arguments):
    if event == "pickle.find_class" or event.startswith("subprocess"):
        opened.append(event)
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        name = os.path.realpath(os.fsdecode(arguments[0]))
        flags = arguments[2] or 0
        if name.startswith(workdir):
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                opened.append(f"written: {name}")
            if name.endswith((".py", ".pyc", ".so", ".pkl", ".pickle")):
                opened.append(f"read: {name}")
    if event == "import" and "evil" in str(arguments[0]):
        opened.append(f"import {arguments[0]}")

sys.addaudithook(hook)
os.chdir(workdir)  # a module there would be found first by a careless import
print(Translator.load(workdir).translate(["The cat sleeps."]))
assert not opened, opened
"""


@pytest.fixture
def foreign_workdir(trained, tmp_path):
    """A copy of a workdir with things in it that no workdir has."""
    folder = tmp_path / "theirs"
    shutil.copytree(trained[0], folder)
    bomb = "import pathlib; pathlib.Path('ran').touch()\n"
    for name in ("evil.py", "sitecustomize.py", "conftest.py", "jax.py", "config.py"):
        (folder / name).write_text(bomb)
    (folder / "config.pkl").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    return folder


def test_loading_runs_no_code_and_writes_nothing(foreign_workdir):
    before = {p: p.stat().st_mtime_ns for p in foreign_workdir.rglob("*")}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", LOAD, str(foreign_workdir)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert loaded.returncode == 0, loaded.stderr
    assert {p: p.stat().st_mtime_ns for p in foreign_workdir.rglob("*")} == before
    assert not list(foreign_workdir.rglob("ran"))


def rewritten(folder, **sections):
    """Changes a config as somebody does who also corrects its hash."""
    file = folder / "config.json"
    content = atomic.read_checked_json(file)
    for name, values in sections.items():
        content[name] |= values
    file.write_bytes(atomic.checked_json(content))


def test_a_language_cannot_lead_out_of_the_workdir(foreign_workdir):
    for side in ("source", "target"):
        for name in ("../../x", "/etc/passwd", "..", "", "a/b", "de\n", "\x00"):
            rewritten(
                foreign_workdir, data={"source": "en", "target": "de", side: name}
            )
            with pytest.raises(UserError, match=f"config.data.{side}="):
                Translator.load(foreign_workdir)
    for name in ("zh-Hans", "lc.norm.tok.de", "中文"):
        assert from_config_dict({"data": {"target": name}}).data.target == name


def test_places_that_a_config_names_are_not_looked_at_to_translate(foreign_workdir):
    places = dict.fromkeys(("train", "dev", "test", "dir", "tokenizer"), "/nowhere/x")
    rewritten(foreign_workdir, data=places, train={"init_from": "/nowhere/run"})
    assert Translator.load(foreign_workdir).translate([""])[0].text == ""


NO_CONFIGS = [
    *(b"", b"null", b"[[1, 2]]", b"{}", b'{"check": {}}', b"\xff\xfe\x00"),
    b"!!python/object/apply:os.system ['touch ran']",
]


def test_what_is_no_config_is_told(foreign_workdir):
    file = foreign_workdir / "config.json"
    changed = file.read_bytes().replace(b'"alpha": 0.6', b'"alpha": 0.7')
    for content in (*NO_CONFIGS, changed):
        file.write_bytes(content)
        with pytest.raises(UserError, match="config.json is not a config"):
            Translator.load(foreign_workdir)


def test_prepared_text_of_another_folder_cannot_be_asked_for():
    for key in ("../../x", "/etc", "", "A" * 24):
        with pytest.raises(UserError, match="is not in"):
            find_prepared({"arrays": key, "weights": [1.0]})
