"""`python -m t2t_jax` and `--help`: what a user reads first."""

import io
import os
import subprocess
import sys

import pytest

from t2t_jax.commands import runner
from t2t_jax.commands.launch import COMMANDS
from tests.small_run import ROOT


def test_without_a_command_they_are_listed_by_group_as_a_user_starts_it():
    words = [sys.executable, "-m", "t2t_jax"]
    text = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout
    for group, commands in COMMANDS.items():
        assert f"\n{group}\n" in text
        assert all(
            f"  {name:10} {description}\n" in text
            for name, description in commands.items()
        )


def test_a_reader_that_has_left_is_no_error():
    """Such as in `t2t_jax | head -1`."""
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "t2t_jax"]
    ended = subprocess.run(words, cwd=ROOT, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("encoding", "printed"), [("ascii", "± →".encode()), ("latin-1", b"\xb1 \\u2192")]
)
def test_every_locale_prints_every_character(encoding, printed, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(runner.signal, "getsignal", lambda _: 1 / 0)  # the next call
    with pytest.raises(ZeroDivisionError):
        runner.run("score", None)
    print("± →", end="", flush=True)
    assert stream.buffer.getvalue() == printed


def test_help_lists_the_config_and_its_sections(commands):
    text = commands("train", "--help").stdout
    assert text == commands("main", "--help").stdout.replace("of main", "of train")
    for part in ("--config", "--config.model.FIELD=VALUE", "width=512", "--ideas\n"):
        assert part in text
