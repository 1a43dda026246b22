"""A file is there whole or not at all, and a job continues where it was stopped."""

import errno
import gzip
import os
from unittest import mock

import pytest

from t2t_jax.decoding.jobs import InputFile, chunks
from t2t_jax.io.errors import UserError
from t2t_jax.io.output_files import OutputFile

LINES = ["one", "", "three", "vier ü", "\u2028", "six", "seven"]
MADE_FROM = {"beam": None, "must": (), "fields": [False, True], "alpha": 0.6}
WHOLE = "".join(f"<{line}>\n" for line in LINES).encode()


class StopError(Exception):
    """What a test stops a job by."""


def job(path, resume=False, lines=LINES, stop=None, made_from=MADE_FROM, error=None):
    """The loop of `t2t_jax translate`, two lines at a time, stopped before a line."""
    with OutputFile(path, made_from, resume) as output:
        remaining = output.rest_of(iter(lines))
        for chunk in chunks(remaining, 2):
            assert not path.exists()
            if stop is not None and output.lines >= stop:
                raise error or StopError
            output.add(chunk, "".join(f"<{line}>\n" for line in chunk))


def stopped(path, stop=4, error=StopError, **options):
    with pytest.raises(error):
        job(path, stop=stop, error=error, **options)
    names = path.name + ".partial", path.name + ".partial.json"
    return [path.with_name(name) for name in names]


@pytest.mark.parametrize("links", [True, False])
def test_a_whole_job_leaves_the_file_alone(tmp_path, monkeypatch, links):
    if not links:  # as on some file systems
        error = OSError(errno.EPERM, "Operation not permitted")
        monkeypatch.setattr(os, "link", mock.Mock(side_effect=error))
    for lines, content in ((LINES, WHOLE), ([], b"")):
        job(tmp_path / "out", lines=lines)
        assert [p.name for p in tmp_path.iterdir()] == ["out"]
        assert (tmp_path / "out").read_bytes() == content
        (tmp_path / "out").unlink()
    stopped(tmp_path / "out", 0)  # before its first lines
    assert not [*tmp_path.iterdir()]


def test_a_job_killed_at_any_byte_is_continued(tmp_path):
    """A kill leaves what was noted, and any part of what came next."""
    for stop in (2, 4, 6):
        for written in range(12):
            out = tmp_path / f"{stop}-{written}"
            partial, _ = stopped(out, stop)
            noted = partial.read_bytes()
            assert WHOLE.startswith(noted)
            partial.write_bytes(noted + WHOLE[len(noted) :][:written])
            job(out, resume=True)
            assert out.read_bytes() == WHOLE
    for written in range(len(WHOLE)):  # before the first note
        out = tmp_path / f"0-{written}"
        out.with_name(out.name + ".partial").write_bytes(WHOLE[:written])
        job(out, resume=True)
        assert out.read_bytes() == WHOLE


def test_a_job_stopped_again_and_again_is_one_job(tmp_path, capsys):
    out = tmp_path / "out"
    stopped(out, 2, KeyboardInterrupt)
    stopped(out, 2, resume=True)
    partial, note = stopped(out, 6, KeyboardInterrupt, resume=True)
    message = capsys.readouterr().err
    assert f"2 lines are in {partial}; the same command with --resume" in message
    remaining = partial.read_bytes(), note.read_bytes()
    with pytest.raises(UserError, match="--resume continues it"):
        job(out)
    assert (partial.read_bytes(), note.read_bytes()) == remaining
    job(out, resume=True)
    assert out.read_bytes() == WHOLE


def test_a_job_killed_at_its_end_is_whole(tmp_path):
    """All is noted; the file is not there yet, or is and nothing was cleaned up."""
    out = tmp_path / "out"
    partial, note = stopped(out, 4)
    output = OutputFile(out, MADE_FROM, resume=True)
    rest = list(output.rest_of(iter(LINES)))
    output.add(rest, "".join(f"<{line}>\n" for line in rest))
    output.__exit__(StopError, StopError(), None)
    remaining = note.read_bytes()
    job(out, resume=True)
    assert out.read_bytes() == WHOLE
    partial.write_bytes(WHOLE)
    note.write_bytes(remaining)
    with pytest.raises(UserError, match="already exists"):
        job(out, resume=True)
    assert out.read_bytes() == WHOLE


def test_damage_is_found_and_not_made_worse(tmp_path):
    out = tmp_path / "out"
    partial, note = stopped(out)
    remaining, noted = partial.read_bytes(), note.read_bytes()
    flipped = [
        remaining[:n] + bytes([remaining[n] ^ 1]) + remaining[n + 1 :]
        for n in range(len(remaining))
    ]
    for damaged in (*flipped, *(remaining[:n] for n in range(len(remaining)))):
        partial.write_bytes(damaged)
        with pytest.raises(UserError, match=r"has changed since .* begin anew"):
            job(out, resume=True)
        assert partial.read_bytes() == damaged
    partial.write_bytes(remaining)
    for damaged in (noted[:-9], b"", b"null", noted.replace(b"4", b"2")):
        note.write_bytes(damaged)
        with pytest.raises(UserError, match=r"partial.json is damaged .* begin anew"):
            job(out, resume=True)
    assert not out.exists()


def test_another_input_and_other_options_are_refused(tmp_path):
    out = tmp_path / "out"
    stopped(out)
    for lines in ([*LINES[:3], "vier"], LINES[:3]):
        with pytest.raises(UserError, match="first 4 lines of the input differ"):
            job(out, resume=True, lines=lines)
    for name, value in {"beam": 3, "must": ["Hund"], "other": 1}.items():
        made_from = {**MADE_FROM, name: value}
        with pytest.raises(UserError, match=rf"with other settings:\n  {name}: "):
            job(out, resume=True, made_from=made_from)
    longer = [*LINES[:4], "neu", "neu"]
    job(out, resume=True, lines=longer, made_from={**MADE_FROM, "must": []})
    assert out.read_bytes() == WHOLE[: WHOLE.index(b"<\xe2")] + b"<neu>\n<neu>\n"


def test_two_processes_do_not_write_one_file(tmp_path):
    out = tmp_path / "out"
    with OutputFile(out, MADE_FROM, resume=False) as output:
        output.add(LINES, WHOLE.decode())
        for resume in (False, True):  # nobody is told to remove what is being written
            with pytest.raises(UserError, match="another process is writing"):
                OutputFile(out, MADE_FROM, resume)
    assert out.read_bytes() == WHOLE


def test_what_is_removed_while_it_is_written_is_told(tmp_path):
    out = tmp_path / "out"
    output = OutputFile(out, MADE_FROM, resume=False)
    output.add(LINES, WHOLE.decode())
    (tmp_path / "out.partial").unlink()
    with pytest.raises(UserError, match="was removed while it was being written"):
        output.__exit__(None)
    assert not out.exists()


def test_what_is_there_is_not_written_over(tmp_path):
    out = tmp_path / "out"
    output = OutputFile(out, MADE_FROM, resume=False)
    output.add(LINES, WHOLE.decode())
    out.write_text("mine")
    with pytest.raises(UserError, match="was created by another process meanwhile"):
        output.__exit__(None, None, None)
    assert out.read_text() == "mine"
    assert (tmp_path / "out.partial").read_bytes() == WHOLE
    with pytest.raises(UserError, match="already exists and is not overwritten"):
        OutputFile(out, MADE_FROM, resume=False)
    with pytest.raises(UserError, match="is not an existing folder"):
        OutputFile(out / "out", MADE_FROM, resume=False)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    out = tmp_path / "out"

    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    output = OutputFile(out, MADE_FROM, resume=False)
    output.add(LINES[:2], "<one>\n<>\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"), output:
            output.add(LINES[2:4], "<three>\n<vier ü>\n")
    assert not out.exists()
    job(out, resume=True)
    assert out.read_bytes() == WHOLE


def test_a_wrong_input_is_told_before_any_work(tmp_path):
    (tmp_path / "latin").write_bytes(b"a\n" * 5_000 + b"\xfc\n")
    with pytest.raises(UserError, match=r"line 5,001: byte 1 \(0xfc\)"):
        InputFile(tmp_path / "latin", (1, 9))  # though the mistake is in another part
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"a\n" * 99)[:-5])
    with pytest.raises(UserError, match="is not a complete gzip file"):
        InputFile(tmp_path / "in.gz")
