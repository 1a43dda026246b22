"""A teacher's text: the right lines in step, in one go, in parts, or after stops."""

import dataclasses
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import sacrebleu

from t2t_jax import Translator, UserError, load_config
from t2t_jax import config as fields
from t2t_jax.commands import distill as command
from t2t_jax.config import from_config_dict
from t2t_jax.data.corpus import file_corpus
from t2t_jax.data.text_files import encode_line
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.io.atomic import checked_json, read_checked_json
from t2t_jax.metrics.text_measures import UTILITIES
from t2t_jax.model.model import build
from t2t_jax.run import distillation
from t2t_jax.run.distillation import distill, student_config
from t2t_jax.run.teacher_text import Recipe
from t2t_jax.training import losses
from t2t_jax.workdir import Workdir
from tests.decoding.small_translator import vocabulary
from tests.small_run import ROOT, config_for, contents

ODD = ["one\u2028two", "\ufeffmark\r", "\ufeff\ufeff", "", "  spaces  ", "Ärger\r\r"]
LINES = [*ODD, *(f"The cat sees {n} dogs." for n in range(14))]


class Teacher:
    """Answers a line by itself backwards, and by three worse or better ones."""

    def __init__(self, config, fails_after=None):
        self.config, self.calls, self.fails_after = config, 0, fails_after

    def provenance(self):
        return {"parameters_sha256": ["a teacher of tests"], "steps": (1, 2)}

    def translate(self, lines, *, first_line, nbest, **_):
        if self.calls == self.fails_after:
            raise KeyboardInterrupt
        self.calls += 1
        assert first_line >= 1
        return [Translation(line, answers(line)[:nbest]) for line in lines]


def answers(line):
    texts = (line[::-1], f"sah {line}", f"Katze {line}", f"sah {line}")
    texts = [" ".join(text.split()) for text in texts]
    return tuple(Hypothesis(t, -n, -n, True) for n, t in enumerate(texts))


@pytest.fixture
def place(tmp_path, trained, monkeypatch):
    """A folder with an input; its `made` makes the text in another folder."""
    for ending, lines in (("en", LINES), ("de", [f"Katze {x}" for x in LINES])):
        (tmp_path / f"in.{ending}").write_bytes(
            b"".join(map(encode_line, lines, itertools.count(1)))
        )
    teacher = Workdir(trained[0]).config()
    trained_with = []
    monkeypatch.setattr(
        distillation, "train", lambda *a: trained_with.append(a) or {"test": {}}
    )

    def made(name="student", fails_after=None, places=tmp_path / "in", **options):
        fake = Teacher(teacher, fails_after)
        monkeypatch.setattr(Translator, "load", lambda *_, **__: fake)
        config = from_config_dict(load_config(f"student:{trained[0]}"))
        options = {"batch_size": 3, **options}
        return distill(
            [str(trained[0])], str(places), config, tmp_path / name, **options
        )

    return SimpleNamespace(folder=tmp_path, made=made, trained_with=trained_with)


# ----------------------------------------------------------------------------- the text


def test_the_student_reads_what_the_teacher_writes(
    trained, text, tmp_path, monkeypatch
):
    called = []
    monkeypatch.setattr(distillation, "train", lambda *a: called.append(a))
    translate = Translator.translate

    def ended(*arguments, **options):  # a model of 12 steps ends no sentence by itself
        return [
            dataclasses.replace(
                t, hypotheses=(dataclasses.replace(t.best, ended=True),)
            )
            for t in translate(*arguments, **options)
        ]

    monkeypatch.setattr(Translator, "translate", ended)
    workdir = tmp_path / "student"
    config = from_config_dict(config_for(text))
    arguments = [str(trained[0])], str(text / "test"), config, workdir
    distill(*arguments)
    corpus = file_corpus(workdir / "distilled", "en", "de")
    sources = [source for source, _ in file_corpus(text / "test", "en", "de").pairs()]
    found = Translator.load(trained[0]).translate(sources)
    assert [*corpus.pairs()] == [(t.source, t.text) for t in found]
    assert any(t.text for t in found)
    ((given, folder),) = called
    assert folder == workdir
    assert given.data.train == str(workdir / "distilled")
    assert given.data.tokenizer == str(trained[0] / "tokenizer.model")
    assert given.data.dev == config.data.dev
    # Again: nothing is made or read but the record, and the teacher is not loaded.
    before = contents(workdir)
    monkeypatch.setattr(Translator, "load", None)
    distill(*arguments)
    assert contents(workdir) == before
    assert called[1] == called[0]


@pytest.mark.parametrize("stops", [0, 1, 4, 6])
def test_a_stopped_text_is_continued(place, stops):
    place.made("whole")
    with pytest.raises(KeyboardInterrupt):
        place.made(fails_after=stops)
    assert not (place.folder / "student/distilled.de").exists()
    place.made()
    assert contents(place.folder / "student") == contents(place.folder / "whole")
    assert len(place.trained_with) == 2  # not by the one that was stopped


@pytest.mark.parametrize("count", [2, 5])
def test_parts_are_the_whole(place, count):
    place.made("whole")
    for number in range(count, 0, -1):
        if number == 1 and count > 2:
            with pytest.raises(UserError, match=rf"come from --shard=1/{count}\b"):
                place.made()
        assert place.made(shard=(number, count)) == {}
        place.made(shard=(number, count))  # is there
    assert place.made() == {"test": {}}
    assert contents(place.folder / "student") == contents(place.folder / "whole")


def test_lines_stay_in_step_whatever_they_are(place):
    place.made()
    pairs = [*file_corpus(place.folder / "student/distilled", "en", "de").pairs()]
    assert len(pairs) == len(LINES)
    for line, (source, target) in zip(LINES, pairs, strict=True):
        assert source == line
        assert target == answers(source)[0].text
    assert place.folder.joinpath("student/distilled.hashes").exists()  # and checked


@pytest.mark.parametrize("by", ["chrf", "bleu"])
def test_the_nearest_to_the_reference_is_kept(place, by):
    place.made(recipe=Recipe(4, by))
    metric = {"chrf": sacrebleu.CHRF(), "bleu": sacrebleu.BLEU(effective_order=True)}
    pairs = [*file_corpus(place.folder / "student/distilled", "en", "de").pairs()]
    for source, target in pairs[len(ODD) :]:
        texts = [hypothesis.text for hypothesis in answers(source)]
        scores = [
            metric[by].sentence_score(t, [f"Katze {source}"]).score for t in texts
        ]
        assert target == texts[scores.index(max(scores))] == f"Katze {source}"


def test_half_a_translation_is_not_kept():
    one, two, *_ = answers("x y")
    open_ended = dataclasses.replace(one, ended=False)
    kept = Recipe().chooser("de")
    assert kept(Translation("x", (one, two)), "") == one.text
    assert kept(Translation("x", (one, two), cut=1), "") == ""
    assert kept(Translation("x", (open_ended,)), "") == ""
    nearest = Recipe(2, "bleu").chooser("de")
    assert nearest(Translation("x", (open_ended, two)), one.text) == two.text


def test_of_equally_near_ones_the_most_probable_is_kept():
    choose = Recipe(4, "chrf").chooser("de")
    assert choose(Translation("x", answers("x y")), "qqq") == answers("x y")[0].text


@pytest.mark.parametrize("name", ["chrf", "bleu"])
def test_sentences_without_words_have_scores(name):
    def score(line, reference):
        return UTILITIES[name]([line], [reference], "de").item()

    assert score("", "Katze") == score("", "") == score("Katze", "") == 0
    assert score("Ja .", "Ja .") == pytest.approx(100)


def test_a_text_without_references_is_enough(place):
    (place.folder / "in.de").unlink()
    place.made()
    assert place.trained_with
    for options in ({"recipe": Recipe(4)}, {"mix": "original@0.5"}):
        with pytest.raises(UserError, match=r"in\.de does not exist"):
            place.made("other", **options)


# ---------------------------------------------------------------------- what is mixed


def test_the_original_is_mixed_in_by_its_weight(place, monkeypatch):
    monkeypatch.chdir(place.folder)
    place.made(places="in,grammar:dev", mix="original@0.5, tatoeba@2")
    ((config, _),) = place.trained_with
    folder = place.folder
    assert config.data.train.split(",") == [
        f"{folder}/student/distilled",
        f"{folder}/in@0.5",
        "grammar:dev@0.5",
        "tatoeba@2",
    ]


# ---------------------------------------------------------------------- what is wrong


def edit(file):
    file.write_bytes(file.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": Recipe(3)}, r"nbest.*\n.*by: 'probability' then, 'chrf' now"),
        ({"recipe": Recipe(search={"beam": 7})}, r"search: .*'beam': 7"),
        ({"places": "grammar:dev"}, "input: "),
    ],
)
def test_a_text_of_another_recipe_is_not_reused(place, options, message):
    place.made()
    with pytest.raises(UserError, match=message) as error:
        place.made(**options)
    assert "--text" in str(error.value)


def test_word_level_needs_the_pieces_of_the_teacher(place, text, trained, monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Named:
        teacher: str = ""

    loss = losses.LOSSES["cross_entropy"]._replace(Options=Named)
    monkeypatch.setitem(
        losses.LOSSES, "distillation", losses.LOSSES.get("distillation", loss)
    )
    place.made(word_level=True)
    ((config, _),) = place.trained_with
    assert config.train.loss == "distillation"
    assert config.train.options["teacher"] == str(trained[0])
    small = from_config_dict(config_for(text))
    other = place.folder / "other.model"
    other.write_bytes(vocabulary().model)
    config = fields.changed(small, "data", tokenizer=str(other))
    with pytest.raises(UserError, match="needs the tokenizer of its teacher"):
        student_config(config, [trained[0]], place.folder / "x", word_level=True)
    assert student_config(config, [trained[0]], place.folder / "x") != config


def test_changed_files_are_noticed(place):
    place.made()
    edit(place.folder / "student/distilled.de")
    with pytest.raises(UserError, match="was changed after the teacher wrote it"):
        place.made()
    edit(place.folder / "student/distilled.json")
    with pytest.raises(UserError, match=r"distilled.json is damaged"):
        place.made()
    place.made("parts", shard=(1, 2))
    place.made("parts", shard=(2, 2))
    part = place.folder / "parts/distilled.pairs.1-of-2"
    lines = part.read_bytes().splitlines(keepends=True)
    for lacking, message in (
        (1, "ends with a source that has no translation"),
        (2, "has 9 pairs, and says 10 from pair 1"),
    ):
        part.write_bytes(b"".join(lines[:-lacking]))
        with pytest.raises(UserError, match=message):
            place.made("parts")
    edit(place.folder / "in.de")
    with pytest.raises(UserError, match=r"of another text of a teacher:\n +input"):
        place.made("parts")


def test_mistakes_are_reported_before_anything_is_translated(place, trained, text):
    def made(message, **options):
        with pytest.raises(UserError, match=message):
            place.made(fails_after=0, **options)

    made(r"has no cats\.en .*en -> de; there is no such file", places="cats")
    made("--workdir=.* is the teacher", name=trained[0])
    made("--only=train, but", only="train")
    made("of 20 pairs is empty", shard=(1, 21))
    shutil.copytree(trained[0], place.folder / "other")
    made("was made with another config", name="other")
    config = from_config_dict(config_for(text, data={"source": "de", "target": "en"}))
    with pytest.raises(UserError, match="languages of its teacher"):
        distill([str(trained[0])], str(text / "test"), config, place.folder / "s")
    with pytest.raises(UserError, match="--by=chrf chooses among several"):
        Recipe(1, "chrf")
    with pytest.raises(UserError, match="did you mean 'bleu'"):
        Recipe(2, "belu")


# ---------------------------------------------------------------------- the student


def changed(workdir, folder, **sections):
    """A copy of a workdir's config with other fields; nothing else is in it."""
    folder.mkdir()
    config = read_checked_json(workdir / "config.json")
    for section, values in sections.items():
        config[section].update(values)
    (folder / "config.json").write_bytes(checked_json(config))
    return folder


def test_a_student_is_its_teacher_with_other_sizes(trained, tmp_path):
    teacher = Workdir(trained[0]).config()
    same = from_config_dict(load_config(f"configs/student.py:{trained[0]}"))
    tokenizer = str(trained[0] / "tokenizer.model")
    assert same.model == teacher.model
    assert same.train == teacher.train
    assert (same.data.tokenizer, same.data.train) == (tokenizer, teacher.data.train)
    small = from_config_dict(load_config(f"student:{trained[0]},3+1,narrow,tied"))
    assert small.model.side("encoder").layers == 3
    assert small.model.side("decoder").layers == 1
    assert (small.model.width, small.model.heads, small.model.hidden) == (16, 1, 16)
    pieces = len(Translator.load(trained[0]).vocabulary)
    assert build(small.model, pieces).count() < build(teacher.model, pieces).count()


def test_a_student_learns_anew(trained, tmp_path):
    """It has no part of its teacher's loss, of what it froze, or of fine-tuning."""
    options = {"r_drop_alpha": 3.0}
    train = {"loss": "r_drop", "options": options, "freeze": "embedding"}
    regular = changed(trained[0], tmp_path / "regular", train=train)
    student = from_config_dict(load_config(f"student:{regular}")).train
    assert (student.loss, student.freeze, dict(student.options)) == (
        *("cross_entropy", ""),
        {},
    )
    assert student.steps == 12
    tuned = changed(trained[0], tmp_path / "tuned", train={"init_from": "elsewhere"})
    student = from_config_dict(load_config(f"student:{tuned}")).train
    assert (student.init_from, student.steps) == ("", 100_000)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "name the teacher's workdir first"),
        ("6+2", "name the teacher's workdir first"),
        ("{},6-2", "want ENCODER.DECODER layers such as 6.2"),
        ("{},narrow,narrow,narrow,narrow,narrow", "cannot be halved"),
        ("elsewhere,6+2", "is not a workdir"),
    ],
)
def test_a_student_that_cannot_be(trained, words, message):
    with pytest.raises(UserError, match=message):
        load_config(f"student:{words.format(trained[0])}")


def test_the_teacher_on_the_command_line_makes_the_config(monkeypatch):
    for argv in (["--teacher=a,b"], ["--beam=2", "--teacher", "a,b"]):
        monkeypatch.setattr(sys, "argv", ["distill", *argv])
        assert command.default_config() == "student:a"


# ---------------------------------------------------------------------- the benchmark


# ---------------------------------------------------------------------- the command


@pytest.mark.slow  # python -m pytest -m slow tests/test_distillation.py; four runs
def test_a_command_killed_anywhere_is_continued(trained, text, tmp_path):
    def start(name):
        fields = ["--config.train.steps=12", "--config.train.save_every=4"]
        words = [f"--config=student:{trained[0]},1+1", "--mix=original", "--nbest=2"]
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "t2t_jax", "distill", *words, *fields),
                *(f"--teacher={trained[0]}", f"--input={text}/train"),
                *(f"--workdir={tmp_path / name}", "--batch_size=20"),
            ],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )

    def kill_when(exists):
        process = start("killed")
        end = time.monotonic() + 300
        while not exists():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    killed = tmp_path / "killed"
    kill_when((killed / "distilled.pairs.partial.json").exists)
    kill_when((killed / "distilled.json").exists)
    kill_when((killed / "checkpoints/state/4").exists)
    assert start("killed").wait() == start("whole").wait() == 0
    for name in ("distilled.en", "distilled.de", "distilled.hashes", "distilled.json"):
        assert (killed / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    scores = [
        json.loads((tmp_path / name / "scores/test.json").read_bytes())
        for name in ("killed", "whole")
    ]
    assert scores[0]["parameters_sha256"] == scores[1]["parameters_sha256"]
