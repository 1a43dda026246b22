"""Systems as a user names them, and the command as it runs and as it is mistyped."""

import json
import re
import shutil
import sys
import types
from unittest import mock

import pytest

from t2t_jax.commands.flags import SEARCH
from t2t_jax.config import Config, DataConfig, TrainConfig
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.metrics import measures
from t2t_jax.tools.compare import command, summary, systems
from t2t_jax.tools.compare.compare import compare_texts
from t2t_jax.tools.compare.scores import Comet
from t2t_jax.tools.compare.systems import parse_systems
from tests.comparison.made_up_systems import made_up
from tests.small_run import contents


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(measures, "SAMPLES", 20)


@pytest.fixture
def run(text, monkeypatch, capsys):
    """Runs the command, but for its flags."""

    def run(*systems, **flags):
        names = ("train", "direction", "comet", "new", "html", "checkpoint", *SEARCH)
        names += ("references",)
        values = dict.fromkeys(names) | {"json": False, "runs": False}
        values |= {"test": f"{text}/test"} | flags
        monkeypatch.setattr(command.flags, "FLAGS", types.SimpleNamespace(**values))
        command.main(["compare", *map(str, systems)])
        printed = capsys.readouterr()
        return json.loads(printed.out)["sets"] if values["json"] else printed.out

    return run


@pytest.fixture
def files(text, tmp_path):
    """The references, and a file that is wrong in its first two lines."""
    lines = (text / "test.de").read_text().splitlines()
    paths = tmp_path / "good.de", tmp_path / "worse.de"
    for path, content in zip(paths, (lines, ["Unsinn", "", *lines[2:]]), strict=True):
        path.write_text("".join(f"{line}\n" for line in content))
    return paths


# ------------------------------------------------------------------------------- names


def test_systems_are_named_by_the_user_or_by_what_tells_them_apart(tmp_path):
    for folder in ("a/run", "b/run", "b/x@best"):
        (tmp_path / folder).mkdir(parents=True)
    file = tmp_path / "out=1.de"
    file.write_text("x\n")
    run, run_b, odd = (tmp_path / f for f in ("a/run", "b/run", "b/x@best"))
    written = [run, f"{run_b}@best:3", f"mine={run},{run_b}@last", odd, file, run]
    places = parse_systems([*map(str, written)])
    assert [place.name for place in places] == [
        *("a/run", "b/run@best:3", "mine", "x@best", "out=1.de", "a/run (2)")
    ]
    assert [place.checkpoint for place in places] == [
        *(None, "best:3", "last", None, None, None)
    ]
    assert places[2].workdirs == (str(run), str(run_b))
    assert places[4].files == (file,)


# ------------------------------------------------------------------------- the command


def test_every_reference_counts_in_scores_and_tests_of_them(run, files, tmp_path):
    good, other = files[0], tmp_path / "other.de"
    other.write_text("Unsinn\n" + good.read_text().partition("\n")[2])
    flags = {"direction": "en-de", "json": True}
    (alone,), (both,) = (
        run(other, good, **flags, **more) for more in ({}, {"references": str(other)})
    )
    one, two = (comparison["totals"][0] for comparison in (alone, both))
    assert [system["score"] for system in two["systems"]] == pytest.approx([100, 100])
    assert one["differences"][0]["difference"] > 1
    assert two["differences"][0]["difference"] == pytest.approx(0)
    assert [two["differences"][0][test] for test in measures.TESTS] == [1, 1]
    assert [x["signature"][:7] for x in (one, two)] == ["nrefs:1", "nrefs:2"]
    assert both["name"].endswith("+2refs")
    flags = {"direction": "en-de", "references": f"{other},{files[1]}"}
    printed = run(other, good, **flags)
    assert "3 references, of which words" in printed


def test_files_are_compared_in_a_direction(run, text, files):
    good, worse = files
    systems = f"good={good}", f"worse={worse}"
    (comparison,) = run(*systems, json=True, direction="en-de", train=f"{text}/train")
    assert comparison["lines"] == 10
    assert [system["name"] for system in comparison["systems"]] == ["good", "worse"]
    assert comparison["totals"][0]["systems"][0]["score"] == pytest.approx(100)
    assert comparison["totals"][0]["differences"][0]["difference"] < 0
    assert comparison["signs"]["empty"]["systems"][1]["found"] == 1
    assert comparison["training"]["pairs"] == 300
    printed = run(*systems, direction="en-de")
    assert "no training text is given; want --train=PREFIX" in printed
    with pytest.raises(UserError, match="has 10 lines, but .* has 20"):
        run(*systems, direction="en-de", test=f"{text}/dev")


def test_without_a_pair_of_training_text_nothing_is_counted():
    imported = types.SimpleNamespace(config=Config(data=DataConfig(train="")))
    training, missing = systems._count([imported], None, "en", "de")
    assert training is None
    assert "--train=PREFIX" in missing


def test_workdirs_reuse_what_is_scored_and_store_what_is_not(
    run, trained, files, tmp_path
):
    workdir = shutil.copytree(trained[0], tmp_path / "work")
    files_before = contents(workdir)
    page = tmp_path / "page.html"
    with mock.patch.object(Translator, "translate", side_effect=AssertionError):
        (comparison,) = run(workdir, files[0], json=True, html=str(page))
    assert contents(workdir) == files_before
    scores = trained[1]["test"]
    assert comparison["totals"][0]["systems"][0]["score"] == pytest.approx(
        scores["bleu"]
    )
    assert comparison["systems"][0]["origin"].startswith(f"{workdir}; average of ")
    assert comparison["training"]["pairs"] == 300
    assert "work and good.de, compared" in page.read_text()
    with pytest.raises(UserError, match="a workdir knows its languages"):
        run(workdir, files[0], direction="en-de")
    # A file is looked at before anything is translated.
    short = tmp_path / "short.de"
    short.write_text("one line\n")
    with pytest.raises(UserError, match=r"short.de has 1 lines, but .* has 10"):
        run(workdir, short, checkpoint="last")
    assert contents(workdir) == files_before
    # Another checkpoint is translated, and stored as evaluate stores it.
    (comparison,) = run(workdir, f"{workdir}@last", json=True)
    assert [s["name"] for s in comparison["systems"]] == ["work", "work@last"]
    assert "scores/test.1.json" in contents(workdir)


def test_what_a_fine_tuned_run_forgets_is_a_line(run, text, files, tmp_path):
    """Sets of the same name in two folders are told apart, and so are their domains."""
    for name, lines in (("old", 10), ("new", 8)):
        (tmp_path / name).mkdir()
        for file in (text / "test.en", text / "test.de", *files):
            kept = file.read_text().splitlines(True)[:lines]
            (tmp_path / name / file.name).write_text("".join(kept))
    new, old = (str(tmp_path / name / "test") for name in ("new", "old"))
    good, worse = (
        f"{s}=" + ",".join(str(tmp_path / d / f"{s}.de") for d in ("new", "old"))
        for s in ("good", "worse")
    )
    flags = {"test": f"{new},{old}", "direction": "en-de"}
    *_, forgetting = run(good, worse, new=new, **flags).splitlines()
    assert re.match(r"forgetting: -\d+\.\d\d BLEU \(-.* to .*, p = ", forgetting)
    assert forgetting.endswith(" on old-test, by worse")
    sets = run(good, worse, new=new, json=True, **flags)
    assert [s["domain"] for s in sets] == ["new", "old"]
    assert "domain" not in run(good, worse, **flags)  # nothing says which is new
    with pytest.raises(UserError, match=r"--new=.* is none of the sets of --test"):
        run(good, worse, new=f"{text}/dev", **flags)

    # By default, the new one is the test set of a run that started from another.
    data = DataConfig(dir=str(tmp_path), test="new/test")
    tuned = Config(data=data, train=TrainConfig(init_from="start"))
    rivals = [types.SimpleNamespace(config=c) for c in (tuned, Config(data=data))]
    corpora = systems._tuned_to(rivals[0])
    assert [corpus.spec for corpus in corpora] == [new]
    assert systems._tuned_to(rivals[1]) == []


# ------------------------------------------------------------------------------- COMET


def test_comet_scores_with_a_local_model_where_it_is_installed(tmp_path, monkeypatch):
    (tmp_path / "model.ckpt").touch()
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(UserError, match="not installed: pip install unbabel-comet"):
        Comet(str(tmp_path))

    def predict(rows, batch_size):
        return types.SimpleNamespace(scores=[len(r["mt"] + r["src"]) for r in rows])

    comet = types.SimpleNamespace(predict=predict)
    module = types.SimpleNamespace(load_from_checkpoint=lambda file: comet)
    monkeypatch.setitem(sys.modules, "comet", module)
    texts, systems = made_up(lines=6)
    (total,) = (
        total
        for total in compare_texts(texts, systems, Comet(str(tmp_path)))["totals"]
        if total["title"] == "COMET"
    )
    lengths = map(len, systems[1].lines + texts.sources)
    assert total["systems"][1]["score"] == pytest.approx(sum(lengths) / 6)


# -------------------------------------------------------------------------------- page


def test_a_page_leaves_out_only_lines_of_small_differences(monkeypatch):
    monkeypatch.setattr(summary, "PAGE_LINES", 2)
    lines = [{"chrf": [50.0, 50.0 + change]} for change in (0, 3, -9, 1, 4)]
    shortened = summary._shortened({"sentences": lines})
    assert [line["number"] for line in shortened["sentences"]] == [2, 4]
    assert shortened["left_out"] == 3
