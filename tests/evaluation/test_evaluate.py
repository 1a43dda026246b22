"""What the command tells: JSON on one side, people on the other."""

import json
import shutil
import types
from unittest import mock

import pytest

from t2t_jax import UserError
from t2t_jax.commands import evaluate
from t2t_jax.commands.flags import SEARCH
from t2t_jax.data.corpus import open_corpora
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import read_baselines, results_folder
from t2t_jax.tasks.translation import Translation
from tests.decoding.small_translator import translator
from tests.small_run import contents


@pytest.fixture
def run(trained, text, tmp_path, monkeypatch, capsys):
    """Runs the command, but for its flags, on a finished workdir."""
    workdir = shutil.copytree(trained[0], tmp_path / "work")

    def run(**flags):
        names = ("checkpoint", "baseline", "dtype", "damage", *SEARCH)
        given = dict.fromkeys((*names, "choose")) | {"workdir": str(workdir)}
        given |= {"test": f"{text}/test", "json": None} | flags
        monkeypatch.setattr(evaluate.flags, "FLAGS", types.SimpleNamespace(**given))
        evaluate.main([])
        told = capsys.readouterr()
        printed = json.loads("[{}]".format(told.out.replace("\n}\n{", "\n},{")))
        return printed[0] if len(printed) == 1 else printed, told.err.splitlines()

    return run


def test_numbers_stand_side_by_side_with_what_they_are(run, trained):
    scores, told = run()
    assert scores == json.loads(json.dumps(trained[1]["test"])) | {
        "set": scores["set"]  # a place is written as seen from where one is
    }
    assert told[0].startswith("test, 10 lines, perplexity")
    for line, name in zip(told[1:6], Translation.printed, strict=True):
        assert line.split()[:2] == [name, f"{scores[name]:.2f}"]
        key = "signature" if name == "bleu" else f"{name}_signature"
        assert line.endswith(scores[key])
    half = scores["bleu_paper_interval"]["half_width"]
    assert f" ± {half:.2f} " in told[2]
    assert told[-1] == f"test: {scores['compare_with']}"


def test_at_a_terminal_the_table_alone_is_printed(run, monkeypatch):
    monkeypatch.setattr(evaluate.sys.stdout, "isatty", lambda: True)
    nothing, told = run()
    assert nothing == []
    assert told[-1].endswith("work/scores/*.json; --json prints them")
    assert run(json=True)[0]["lines"] == 10
    monkeypatch.setattr(evaluate.sys.stdout, "isatty", lambda: False)
    assert run(json=False)[0] == []


def test_a_baseline_is_compared_with_and_changes_no_score(run, text, tmp_path):
    alone, _ = run()
    before = contents(tmp_path / "work")
    references = (text / "test.de").read_text()
    (tmp_path / "other.de").write_text(references)
    scores, told = run(baseline=str(tmp_path / "other.de"))
    found = scores.pop("against_baseline")
    assert scores == alone
    assert contents(tmp_path / "work") == before
    assert found["bleu"]["score"] == pytest.approx(alone["bleu"])
    assert found["bleu"]["baseline_score"] == pytest.approx(100)
    assert found["bleu"]["p_value"] < 0.05
    bounds = f"[{found['bleu']['low']:+.2f}, {found['bleu']['high']:+.2f}], p = 0.0"
    wanted = f"{alone['bleu']:.2f} against 100.00: {alone['bleu'] - 100:+.2f} {bounds}"
    assert [line for line in told if wanted in line]


def test_a_choice_is_part_of_what_scores_depend_on(run, trained, tmp_path):
    """Those of another choice are computed again, and put away under another name."""
    folder = tmp_path / "work"
    asked = []
    search = Translator.search

    def ask(self, lines, request):
        asked.append(request.nbest)
        return search(self, lines, request)

    with mock.patch.object(Translator, "search", ask):
        beam = "mbr:candidates=beam,nbest=1"  # the search of the run
        first, told = run(choose=beam)
        assert asked == [1]
        assert told[0].startswith("test, 10 lines")
        assert run(choose=beam)[0] == first
        assert asked == [1]  # the stored scores are read
        by_words, _ = run(choose=f"{beam},utility=bleu")
        assert asked == [1, 1]
        longer, _ = run(choose="rerank:nbest=1,length=9")
        assert asked == [1, 1, 1]
        plain, _ = run()
        assert asked == [1, 1, 1, 1]
    described = {"name": "mbr", "candidates": "beam", "utility": "chrf", "nbest": 1}
    assert first["decode"]["choose"] == described
    assert by_words["decode"]["choose"] == described | {"utility": "bleu"}
    assert longer["decode"]["choose"]["length"] == 9
    assert plain == trained[1]["test"] | {"set": plain["set"]}
    kept = [json.loads(p.read_text()) for p in (folder / "scores").glob("*.json")]
    choices = [scores["decode"].get("choose", {}).get("name") for scores in kept]
    # The run's own, three others, and the last; none is overwritten.
    assert sorted(map(str, choices)) == ["None", "None", "mbr", "mbr", "rerank"]


def test_wrong_flags_are_named_before_anything_is_translated(run, tmp_path):
    before = contents(tmp_path / "work")
    for flags, message in (
        ({"baseline": str(tmp_path / "none.de")}, "is not a file"),
        ({"diversity": 0.5}, "--diversity=0.5 acts between groups"),
        ({"groups": 3}, "groups=3 with beam=2"),
    ):
        with pytest.raises(UserError, match=message):
            run(checkpoint="last", **flags)
    assert contents(tmp_path / "work") == before
    with (
        mock.patch.object(Translator, "load", side_effect=AssertionError),
        pytest.raises(UserError, match="no option 'sampels'"),
    ):
        run(choose="mbr:sampels=3")


@pytest.mark.usefixtures("quick_compiler")
def test_damaged_copies_are_scored_and_nothing_is_overwritten(run, tmp_path):
    before = contents(tmp_path / "work")
    printed, told = run(damage="capitals,no_diacritics")
    after = contents(tmp_path / "work")
    # The stored scores differ in the place of the set, which a config writes otherwise.
    assert all(after[n] == before[n] for n in before if "scores/test" not in n)
    assert {"scores/test+capitals.json", "translations/test+capitals.de"} <= {*after}
    assert [scores["name"] for scores in printed] == ["test", "test+capitals"]
    (start,) = (i for i, line in enumerate(told) if line.startswith("test, damaged"))
    rows = {line.split()[0]: line.split()[1:] for line in told[start + 2 : start + 5]}
    whole, capitals = (scores["bleu"] for scores in printed)
    assert rows["undamaged"][0] == f"{whole:.2f}"
    assert rows["capitals"] == [f"{capitals:.2f}", f"{capitals - whole:+.2f}", "10"]
    assert rows["no_diacritics"][1:] == ["+0.00", "0"]  # English has none


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


# ------------------------------------------------------- another system's answers


@pytest.fixture
def corpora(tmp_path):
    for name, lines in (("one", 3), ("two", 2)):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("a b\n" * lines)
    return open_corpora(f"{tmp_path}/one,{tmp_path}/two", "en", "de")


@pytest.mark.parametrize(
    ("sets", "files", "told"),
    [
        (1, {"a": b"x\ny\n"}, r"a has 2 lines, but .*one has 3; want an answer"),
        (1, {"a": b"x\n\xff\nz\n"}, "a, line 2: byte 1"),
        (1, {"nothing": None}, "nothing is not a file; want another system's answers"),
        (2, {"a": b"x\n"}, r"1 files for 2 test sets \(one, two\)"),
        (2, {}, "0 files for 2"),
    ],
)
def test_baselines_that_do_not_fit_are_told(corpora, tmp_path, sets, files, told):
    for name, content in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=told):
        read_baselines(",".join(f"{tmp_path}/{name}" for name in files), corpora[:sets])


def test_baselines_are_read_in_the_order_of_the_sets(corpora, tmp_path):
    (tmp_path / "a.txt").write_text("x\n\u2028\nz\n")
    (tmp_path / "b.txt").write_text("v\nw\n")
    found = read_baselines(f"{tmp_path}/a.txt, {tmp_path}/b.txt", corpora)
    assert found == [["x", "\u2028", "z"], ["v", "w"]]
