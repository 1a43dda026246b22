"""`learn`: an adapter is taken if it is better, and only then."""

import json
import shutil
from types import SimpleNamespace

import pytest

from t2t_jax import Translator, UserError
from t2t_jax.extensions.training.current_adapter import (
    CURRENT,
    adapter_at,
    current,
    record_of,
)
from t2t_jax.io.atomic import checked_json
from t2t_jax.tools.learn import command
from t2t_jax.tools.serve import command as serve_command

pytestmark = pytest.mark.usefixtures("compiled_once")
SAME = "ja ja ja"


def learned(base, folder, lines, tolerance=100.0, **changes):
    """Learns from corrections that all have one target."""
    file = folder.parent / "corrections.jsonl"
    rows = [{"source": line, "target": SAME, "direction": "x"} for line in lines]
    file.write_text("\n".join(map(json.dumps, rows)))
    args = {"workdir": str(base), "checkpoint": None, "corrections": str(file)}
    args |= {"replay": None, "test": None, "tolerance": tolerance} | changes
    command._learn(SimpleNamespace(**args), folder)


def test_it_is_taken_if_better_and_refused_if_not(
    trained, text, tmp_path, monkeypatch, capsys
):
    base, folder = trained[0], tmp_path / "learned"
    lines = (text / "train.en").read_text("utf-8").splitlines()[:150]
    learned(base, folder, lines, replay="")
    assert current(folder).name == "1"
    plain = Translator.load(base)
    # A folder stands for its current adapter.
    [answer] = plain.with_adapter(folder).translate(lines[:1], warn=False)
    assert answer.text.startswith("ja")
    args = SimpleNamespace(adapter=[f"a={folder}"], engine="auto", weights="float32")
    served = serve_command._adapters(args, {"en-de": [base]})
    assert served == {"a": ("en-de", str(folder))}
    (event,) = record_of(folder)["events"]
    held, old = event["tests"]
    assert (held["verdict"], event["event"]) == ("better", "1 is taken")
    assert held["lines"] == sum(map(command.is_held_back, lines))
    assert old["test"] == str(text / "test")
    both = "".join(
        (folder / "text-1" / f"{name}.en").read_text("utf-8")
        for name in ("corrections", "held")
    )
    assert sorted(both.splitlines()) == sorted({*lines})
    capsys.readouterr()

    # The same once more is no better.
    copied = lambda args, text, workdir, replayed: shutil.copytree(  # noqa: E731
        folder / "1", workdir
    )
    monkeypatch.setattr(command, "_train", copied)
    learned(base, folder, lines)
    message = capsys.readouterr().err
    assert "300 of 300 old pairs are replayed" in message
    assert "is not significantly better" in message
    assert current(folder).name == "1"
    with pytest.raises(UserError, match="no adapter before the current one"):
        command._go_back(folder)
    (folder / CURRENT).write_bytes(checked_json({"current": ["1", "2"], "events": []}))
    command._go_back(folder)
    assert current(folder).name == "1"
    (folder / CURRENT).write_bytes(b"{}")
    with pytest.raises(UserError, match="is damaged"):
        current(folder)


@pytest.mark.parametrize(("difference", "name"), [(-2.0, None), (-0.4, "1")])
def test_what_forgets_too_much_is_refused(
    trained, text, tmp_path, monkeypatch, difference, name
):
    verdicts = [{"verdict": "better", "difference": 9.0}]
    verdicts += [{"verdict": "worse", "difference": difference}]
    monkeypatch.setattr(command, "_train", lambda *_: None)
    monkeypatch.setattr(command, "_compare", lambda *_: verdicts)
    lines = [f"line {n}" for n in range(120)]
    learned(trained[0], tmp_path / "learned", lines, tolerance=0.5)
    adapter = current(tmp_path / "learned")
    assert (adapter and adapter.name) == name
    if name is None:
        with pytest.raises(UserError, match="has no current adapter"):
            adapter_at(tmp_path / "learned")


def test_back_wants_a_folder_only(tmp_path, monkeypatch, capsys):
    args = SimpleNamespace(workdir=None, corrections=None, back=True)
    monkeypatch.setattr(command.flags, "FLAGS", args)
    args.folder = str(tmp_path / "typo")
    with pytest.raises(UserError, match="is not a folder of learn"):
        command.main([])
    assert not (tmp_path / "typo").exists()
    (tmp_path / CURRENT).write_bytes(
        checked_json({"current": ["1", "2"], "events": []})
    )
    args.folder = str(tmp_path)
    command.main([])
    assert current(tmp_path).name == "1"
    args.back = False
    with pytest.raises(UserError, match="--corrections=FILE, or --back"):
        command.main([])


def test_mistakes_are_told(trained, tmp_path):
    folder = tmp_path / "learned"
    lines = [f"line {n}" for n in range(120)]
    for mistake in ({"test": "nope"}, {"replay": "nope"}):
        with pytest.raises(UserError, match=r"nope\.en does not exist"):
            learned(trained[0], folder, lines, **mistake)
    with pytest.raises(UserError, match="has 9 corrections .* want 100 or more"):
        learned(trained[0], folder, [f"line {n}" for n in range(9)])
    with pytest.raises(UserError, match="no old test set is named"):
        learned(trained[0], folder, ["a"], test="")
    (tmp_path / "bad.jsonl").write_text('{"source": "a", "target": "b"}\n{"x": 1}\n')
    with pytest.raises(UserError, match="line 2, is not a correction"):
        command.corrections(tmp_path / "bad.jsonl", "en", "de")
    assert not folder.exists()  # all is checked before anything is written
