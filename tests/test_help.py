"""`python -m t2t_jax` and `--help`: what a user reads first."""

import io
import os
import subprocess
import sys

import pytest

from t2t_jax.commands import runner
from t2t_jax.commands.launch import COMMANDS, overview
from tests.small_run import ROOT


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_without_a_command_they_are_listed_by_group(commands):
    assert overview("t2t_jax").startswith("t2t_jax COMMAND [--help]\n")
    assert run("t2t_jax").stdout == overview() + "\n"
    for group, does in COMMANDS.items():
        assert f"\n{group}\n" in overview()
        lines = [f"  {name:10} {text}" for name, text in does.items()]
        assert all(line in overview() for line in lines)
    done = commands("tranlsate")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'translate'" in done.stderr


@pytest.mark.parametrize("command", [[], ["score", "--help"]])
def test_a_reader_that_has_left_is_no_error(command):
    """Such as in `t2t_jax --help | head -1`."""
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "t2t_jax", *command]
    done = subprocess.run(words, cwd=ROOT, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("ascii", "± →".encode()),
        ("latin-1", b"\xb1 \\u2192"),
        ("utf-8", "± →".encode()),
    ],
)
def test_every_locale_prints_every_character(encoding, printed, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(runner, "set_up_process", lambda: 1 / 0)  # the next call
    with pytest.raises(ZeroDivisionError):
        runner.run("score", None)
    print("± →", end="", flush=True)
    assert stream.buffer.getvalue() == printed


def test_help_lists_the_config_and_its_sections(commands):
    text = commands("train", "--help").stdout
    main = commands("main", "--help").stdout
    assert main == run("t2t_jax.main", "--help").stdout
    assert text == main.replace("Flags of main", "Flags of train")
    for part in ("--config", "--config.model.FIELD=VALUE", "width=512", "--workdir"):
        assert part in text
