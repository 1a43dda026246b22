"""A few random commands over hostile files; `python -m tests.fuzz` runs many."""

from pathlib import Path

import pytest

from tests import fuzz


def test_each_line_is_answered_or_an_error_says_what_to_do():
    assert fuzz.search(60, seed=1, rounds=4, size=3) == []


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "kind"),
    [
        (1, "", "error: want it", "the status is neither 0 nor 2"),
        (2, "", "error: no", "no cure in 'no'"),
        (2, "half", "error: want it", "half a line is printed"),
        (0, "a\nb\nc\n", "", "not one line for each line"),
        (0, "a\x0bb\nc\n", "", "a line has a line separator"),
        (2, "", "error: want it; LOSES", "a file is lost or changed"),
        (2, "", "error: want it; LEAVES", "a file of a failed command"),
    ],
)
def test_what_no_command_may_do_is_noticed(
    status, stdout, stderr, kind, tmp_path, monkeypatch
):
    def run(example):
        if "LOSES" in stderr:
            Path("in").write_bytes(b"")
        if "LEAVES" in stderr:
            Path("out").touch()
        return status, stdout, stderr

    monkeypatch.setattr(fuzz, "run", run)
    example = fuzz.Example("translate", ["--input=in"], {"in": b"a\nb"})
    with pytest.raises(fuzz.UnexpectedError, match=kind):
        fuzz.check(example, tmp_path)
