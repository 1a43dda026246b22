"""What the command tells: JSON on one side, people on the other."""

import hashlib
import json
import shutil
import types
from unittest import mock

import pytest
import sacrebleu

from t2t_jax import UserError
from t2t_jax.commands import evaluate
from t2t_jax.commands.flags import SEARCH
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import results_folder
from t2t_jax.tasks.translation import Translation
from t2t_jax.workdir import Workdir
from tests.decoding.small_translator import translator
from tests.small_run import contents


@pytest.fixture
def run(trained, text, tmp_path, monkeypatch, capsys):
    """Runs the command, but for its flags, on a finished workdir."""
    workdir = shutil.copytree(trained[0], tmp_path / "work")

    def run(**flags):
        names = ("checkpoint", "baseline", "dtype", "damage", *SEARCH)
        names += ("references",)
        flags = {"weights": "float32"} | flags
        values = dict.fromkeys((*names, "choose")) | {"workdir": str(workdir)}
        values |= {"test": f"{text}/test", "json": None} | flags
        monkeypatch.setattr(evaluate.flags, "FLAGS", types.SimpleNamespace(**values))
        evaluate.main([])
        lines = capsys.readouterr()
        printed = json.loads("[{}]".format(lines.out.replace("\n}\n{", "\n},{")))
        return printed[0] if len(printed) == 1 else printed, lines.err.splitlines()

    return run


def test_numbers_stand_side_by_side_with_what_they_are(run, trained, monkeypatch):
    scores, lines = run()
    assert scores == json.loads(json.dumps(trained[1]["test"])) | {
        "set": scores["set"]  # a place is written as seen from where one is
    }
    assert lines[0].startswith("test, 10 lines, perplexity")
    for line, name in zip(lines[1:6], Translation.printed, strict=True):
        assert line.split()[:2] == [name, f"{scores[name]:.2f}"]
        key = "signature" if name == "bleu" else f"{name}_signature"
        assert line.endswith(scores[key])
    assert lines[-1] == f"test: {scores['compare_with']}"
    # At a terminal, the table alone.
    monkeypatch.setattr(evaluate.sys.stdout, "isatty", lambda: True)
    printed, lines = run()
    assert printed == []
    assert lines[-1].endswith("work/scores/*.json; --json prints them")
    assert run(json=True)[0]["lines"] == 10
    # Scores that cannot be stored are not those that were stored before.
    full = mock.Mock(side_effect=UserError("full"))
    monkeypatch.setattr(Workdir, "check_writable", full)
    assert run(beam=1)[1][-1] == f"test: {scores['compare_with']}"


def test_a_baseline_is_compared_with_and_changes_no_score(run, text, tmp_path):
    alone, _ = run()
    before = contents(tmp_path / "work")
    scores, lines = run(baseline=str(text / "test.de"))
    comparison = scores.pop("against_baseline")
    assert scores == alone
    assert comparison["bleu"]["score"] == pytest.approx(alone["bleu"])
    assert comparison["bleu"]["baseline_score"] == pytest.approx(100)
    assert comparison["bleu"]["p_value"] < 0.05
    assert [line for line in lines if f"{alone['bleu']:.2f} against 100.00" in line]
    assert contents(tmp_path / "work") == before


def test_scores_of_several_references_are_apart_and_sacrebleus(run, text, tmp_path):
    own = (text / "test.de").read_text().splitlines()
    other = tmp_path / "test.de.1"
    other.write_text("".join(f"Auch: {line}\n" for line in own[:-1]) + "\n")
    before = contents(tmp_path / "work")
    scores, lines = run(references=str(other))
    after = contents(tmp_path / "work")
    assert before.items() <= after.items()
    answers = after["translations/test+2refs.de"].decode().splitlines()
    streams = [own, [*other.read_text().splitlines()[:-1], None]]
    bleu = sacrebleu.BLEU()
    assert scores["bleu"] == bleu.corpus_score(answers, streams).score
    assert scores["signature"] == str(bleu.get_signature())
    assert "nrefs:var" in lines[1]
    assert (scores["name"], scores["references"]) == ("test+2refs", 2)
    sha256 = hashlib.sha256(other.read_bytes()).hexdigest()
    assert scores["further_sha256"] == [sha256]
    assert "scored with 2 references" in lines[-1]
    # Of the same name and other lines: computed again, as the hashes show.
    other.write_text("".join(f"{line}!\n" for line in own))
    again, _ = run(references=str(other), baseline=str(other))
    assert again["inputs_sha256"] != scores["inputs_sha256"]
    assert again["against_baseline"]["bleu"]["baseline_score"] == pytest.approx(100)
    assert again["against_baseline"]["bleu"]["score"] == pytest.approx(again["bleu"])


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"references": "nowhere/test.de"}, "nowhere/test.de is not a file"),
        ({"references": "{text}/test.de"}, "same lines as .*, its own"),
        ({"references": "{text}/dev.de"}, "dev.de has .* lines, but .*test has 10"),
        ({"references": ","}, "no further one"),
        ({"references": "all"}, "is not a published set"),
        ({"references": "x", "test": "{text}/test,{text}/dev"}, "one test set, .* 2"),
        ({"references": "x", "damage": "all"}, "--damage does not go with"),
    ],
)
def test_references_that_do_not_fit_are_refused(run, text, given, complaint):
    with pytest.raises(UserError, match=complaint):
        run(**{name: value.format(text=text) for name, value in given.items()})


def test_a_choice_is_part_of_what_scores_depend_on(run, trained):
    """So they are computed again, which `test_reuse.py` has."""
    scores, lines = run(choose="mbr:candidates=beam,nbest=1")  # the search of the run
    assert lines[0].startswith("test, 10 lines")
    described = {"name": "mbr", "candidates": "beam", "utility": "chrf", "nbest": 1}
    assert scores["decode"]["choose"] == described
    plain, _ = run()
    assert plain == trained[1]["test"] | {"set": plain["set"]}


def test_damaged_copies_are_scored_and_nothing_is_overwritten(run, tmp_path):
    before = contents(tmp_path / "work")
    printed, lines = run(damage="capitals")
    after = contents(tmp_path / "work")
    # The stored scores differ in the place of the set, which a config writes otherwise.
    assert all(after[n] == before[n] for n in before if "scores/test" not in n)
    assert {"scores/test+capitals.json", "translations/test+capitals.de"} <= {*after}
    assert [scores["name"] for scores in printed] == ["test", "test+capitals"]
    (start,) = (i for i, line in enumerate(lines) if line.startswith("test, damaged"))
    rows = {line.split()[0]: line.split()[1:] for line in lines[start + 2 : start + 4]}
    undamaged, capitals = (scores["bleu"] for scores in printed)
    assert rows["undamaged"][0] == f"{undamaged:.2f}"
    assert rows["capitals"] == [f"{capitals:.2f}", f"{capitals - undamaged:+.2f}", "10"]


def test_an_ensemble_has_a_folder_of_its_own(tmp_path):
    models = [translator(seed) for seed in (1, 2)]
    folders = [
        results_folder(Translator.ensemble(members), [tmp_path / "a", tmp_path / "b"])
        for members in (models, models, models[::-1], models[:1] * 2)
    ]
    assert folders[0] == folders[1]
    assert len({*map(str, folders)}) == 3
    assert {str(folder.parent) for folder in folders} == {str(tmp_path / "a/ensembles")}
    assert str(results_folder(models[0], tmp_path / "a")) == str(tmp_path / "a")
