"""A translator in a terminal: what is answered, and that nothing typed ends it."""

import builtins
import signal
from unittest import mock

import pytest

from t2t_jax.commands.prompt import HELP, Prompt
from t2t_jax.io.errors import UserError
from t2t_jax.io.interruption import Interrupted


@pytest.fixture
def typed(tiny):
    return Prompt(tiny, {"beam": None, "nbest": 1, "warn": False}).answer


LINE = "the cat"


def test_a_sentence_is_answered_by_its_translation(tiny, typed):
    best = tiny.translate([LINE])[0]
    assert typed(LINE).split("\n")[0] == best.text
    assert typed(":beam") == "Beam 3."
    assert typed(":beam 1") == typed(":beam") == "Beam 1."
    assert typed(LINE).split("\n")[0] == tiny.translate([LINE], beam=1)[0].text
    assert len(typed(":nbest 2").split("\n")) == 2
    assert typed(":beam") == "Beam 1."  # what one answer needed is not kept


def test_commands_are_of_the_last_sentence(tiny, typed):
    assert typed("") == typed(":help") == HELP
    typed("a dog")
    typed(LINE)
    results = tiny.translate([LINE], nbest=3)[0].hypotheses
    listed = "\n".join(f"    {h.score:8.3f}  {h.text}" for h in results)
    assert typed(":nbest 3") == typed(": nbest  3 ") == listed
    (begun,) = typed(":prefix die Katze").split("\n")
    assert begun.split("  ")[-1].startswith("die Katze")
    score = tiny.score([(LINE, "die")])[0]
    message = typed(":score die")
    assert f"score {score.score:.3f}, log_prob {score.log_prob:.3f}\n" in message
    assert len(typed(":sample 2").split("\n")) == 2
    links = tiny.align([(LINE, results[0])])[0].links
    assert len(typed(":align").split("\n")) == len(links)


def test_mistakes_are_told(typed):
    typed(LINE)
    for line, message in (
        (":nbset 2", "^:nbset is not a command; did you mean 'nbest'\\?"),
        (":sample 1000000000", "want 1 to 1,000"),
        (":prefix " + "x " * 99, "shorten the prefix"),
    ):
        with pytest.raises(UserError, match=message):
            typed(line)


def session(tiny, monkeypatch, capsys, *lines):
    """What is printed while `lines` are typed; an exception is raised in its place."""
    lines = iter(lines)
    monkeypatch.setattr(builtins, "input", mock.Mock(side_effect=lines))
    Prompt(tiny, {"warn": False}).run()
    assert not [*lines]
    return capsys.readouterr().out


def test_nothing_that_is_typed_ends_it_but_quit(tiny, monkeypatch, capsys):
    message = session(
        *(tiny, monkeypatch, capsys, ":nbest", KeyboardInterrupt(), "the \ud800"),
        *(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ":nix", LINE, " :quit "),
    )
    assert message.startswith("en -> de. Beam 3. :help lists the commands.\n")
    assert "error: :nbest needs a sentence" in message
    assert "lone surrogate" in message
    assert "error: the input is not utf-8; type it again" in message
    assert session(tiny, monkeypatch, capsys, EOFError()).endswith("\n\n")
    assert session(tiny, monkeypatch, capsys, ":q")


def test_ctrl_c_ends_an_answer_and_sigterm_all(tiny, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise stop

    monkeypatch.setattr(tiny, "translate", interrupted)
    stop = KeyboardInterrupt()
    assert "stopped\n" in session(tiny, monkeypatch, capsys, LINE, ":quit")
    stop = Interrupted(signal.SIGTERM)
    for line in (stop, LINE):
        with pytest.raises(KeyboardInterrupt):
            session(tiny, monkeypatch, capsys, line, ":quit")
