"""A translator in a terminal: what is answered, and that nothing typed ends it."""

import builtins
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from t2t_jax.commands.prompt import HELP, Prompt
from t2t_jax.io.errors import UserError
from tests.small_run import ROOT

pytestmark = pytest.mark.usefixtures("quick_compiler")


@pytest.fixture
def typed(one):
    return Prompt(one, {"beam": None, "nbest": 1, "warn": False}).answer


LINE = "the cat"


def test_a_sentence_is_answered_by_its_translation(one, typed):
    best = one.translate([LINE])[0]
    text, told = typed(LINE).split("\n")
    assert text == best.text
    assert told.startswith(f"    score {best.score:.3f}, ")
    assert typed(":beam") == "Beam 3."
    assert typed(":beam 1") == typed(":beam") == "Beam 1."
    assert typed(LINE).split("\n")[0] == one.translate([LINE], beam=1)[0].text
    assert len(typed(":nbest 2").split("\n")) == 2
    assert typed(":beam") == "Beam 1."  # what one answer needed is not kept


def test_commands_are_of_the_last_sentence(one, typed):
    typed("a dog")
    typed(LINE)
    found = one.translate([LINE], nbest=3)[0].hypotheses
    listed = "\n".join(f"    {h.score:8.3f}  {h.text}" for h in found)
    assert typed(":nbest 3") == typed(": nbest  3 ") == listed
    (begun,) = typed(":prefix die Katze").split("\n")
    assert begun.split("  ")[-1].startswith("die Katze")
    score = one.score([(LINE, "die")])[0]
    told = typed(":score die")
    assert f"score {score.score:.3f}, log_prob {score.log_prob:.3f}\n" in told
    assert told.count("</s>") == 1
    assert len(typed(":sample 2").split("\n")) == 2
    links = one.align([(LINE, found[0])])[0].links
    assert len(typed(":align").split("\n")) == len(links)


def test_help_and_silence(typed):
    assert typed("") == typed(":help") == HELP
    assert typed(":beam 2") == "Beam 2."  # no sentence is needed for it
    for name in ("nbest", "sample", "align", "score", "prefix", "beam", "help", "quit"):
        assert f":{name}" in HELP
    for name in ("nbest", "sample", "align", "score x", "prefix x"):
        with pytest.raises(UserError, match="needs a sentence; type one first"):
            typed(f":{name}")
    typed(LINE)
    assert typed("  ") == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (":nbset 2", "^:nbset is not a command; did you mean 'nbest'\\?"),
        (":", "^: is not a command; there are: nbest, sample"),
        (":-)", "is not a command"),
        (":nbest 0", "'0' is not a valid number; want 1 to 1,000"),
        (":nbest two", "'two' is not a valid number"),
        (":sample 1000000000", "want 1 to 1,000"),
        (":score", "write the text after :score"),
        (":prefix", "write how the translation begins after :prefix"),
        (":prefix " + "x " * 99, "shorten the prefix"),
    ],
)
def test_mistakes_are_told(typed, line, told):
    typed(LINE)
    with pytest.raises(UserError, match=told):
        typed(line)


def test_what_the_command_line_wished_counts(one):
    options = {"nbest": 2, "prefix": "die", "must_not": ["cat"], "alpha": 0.0}
    answer = Prompt(one, {**options, "penalty": "none", "warn": False}).answer
    for command in (LINE, ":sample 2"):
        answers = answer(command).split("\n")
        assert len(answers) == 2
        assert all("  die" in text and " cat " not in text for text in answers)
    log_prob = one.score([(LINE, "ein")])[0].log_prob
    assert f"score {log_prob:.3f}, log_prob {log_prob:.3f}" in answer(":score ein")


def session(one, monkeypatch, capsys, *lines):
    """What is printed while `lines` are typed; an exception is raised in its place."""
    lines = iter(lines)

    def typed(_):
        line = next(lines)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr(builtins, "input", typed)
    Prompt(one, {"warn": False}).run()
    assert not [*lines]
    return capsys.readouterr().out


def test_nothing_that_is_typed_ends_it_but_quit(one, monkeypatch, capsys):
    told = session(
        *(one, monkeypatch, capsys, ":nbest", KeyboardInterrupt(), "the \ud800"),
        *(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ":nix", LINE, " :quit "),
    )
    assert told.startswith("en -> de. Beam 3. :help lists the commands.\n")
    assert "error: :nbest needs a sentence" in told
    assert "lone surrogate" in told
    assert "error: the input is not utf-8; type it again" in told
    assert "    score " in told
    assert session(one, monkeypatch, capsys, EOFError()).endswith("\n\n")
    assert session(one, monkeypatch, capsys, ":q")


def test_ctrl_c_ends_an_answer_and_sigterm_all(one, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise stop

    monkeypatch.setattr(one, "translate", interrupted)
    stop = KeyboardInterrupt()
    assert "stopped\n" in session(one, monkeypatch, capsys, LINE, ":quit")
    stop.signum = signal.SIGTERM  # as command.py says it
    for line in (stop, LINE):
        with pytest.raises(KeyboardInterrupt):
            session(one, monkeypatch, capsys, line, ":quit")


@pytest.mark.usefixtures("signals_as_ever")
def test_a_session_in_a_terminal(trained):
    """Real keys: Ctrl-C at the prompt, Ctrl-D at the end of it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "t2t_jax", "translate", f"--workdir={trained[0]}"],
        **{"stdin": theirs, "stdout": theirs, "stderr": theirs, "cwd": ROOT},
        env=os.environ | {"JAX_PLATFORMS": "cpu", "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(theirs)
    told = b""

    def until(wanted, again=lambda: None):
        nonlocal told
        before, end = len(told), time.monotonic() + 300
        while wanted not in told[before:]:
            assert time.monotonic() < end, told
            if select.select([ours], [], [], 0.5)[0]:
                told += os.read(ours, 1024)
            else:
                again()
        return told[before:].decode(errors="replace")

    def typing(keys):
        os.write(ours, keys)

    try:
        until(b"en> ")
        typing(b"The cat\xff\n")
        until(b"en> ")
        typing("The cat süß".encode())
        until("süß".encode())
        # This terminal sends no signals; one between two keys waits for the next.
        until(b"en> ", again=lambda: os.kill(process.pid, signal.SIGINT))
        typing(b"The cat sleeps.\n")
        assert "    score " in until(b"en> ")
        typing(b":nbest 2\n")
        listed = until(b"en> ").replace("\r", "").split("\n")[1:-1]
        assert len([line for line in listed if line.startswith("    ")]) == 2
        typing(b":nbset\n")
        assert "did you mean 'nbest'?" in until(b"en> ")
        typing(b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"Traceback" not in told
    assert b"Translator(en -> de" in told
