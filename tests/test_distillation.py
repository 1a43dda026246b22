"""A teacher's text: the right lines in step, in one go, in parts, or after stops."""

import dataclasses
import itertools
from types import SimpleNamespace

import pytest
import sacrebleu

from t2t_jax import Translator, UserError, load_config
from t2t_jax.config import from_config_dict
from t2t_jax.data.corpus import file_corpus
from t2t_jax.data.text_files import encode_line
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.extensions.run import distillation
from t2t_jax.extensions.run.distillation import distill, student_config
from t2t_jax.extensions.run.synthetic_text import Recipe
from t2t_jax.io.atomic import checked_json, read_checked_json
from t2t_jax.workdir import Workdir
from tests.decoding.small_translator import vocabulary
from tests.small_run import config_for, contents

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
def workplace(tmp_path, trained, monkeypatch):
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

    def distilled(name="student", fails_after=None, places=tmp_path / "in", **options):
        fake = Teacher(teacher, fails_after)
        monkeypatch.setattr(Translator, "load", lambda *_, **__: fake)
        config = from_config_dict(load_config(f"student:{trained[0]}"))
        options = {"batch_size": 3, **options}
        return distill(
            [str(trained[0])], str(places), config, tmp_path / name, **options
        )

    return SimpleNamespace(folder=tmp_path, made=distilled, trained_with=trained_with)


def test_the_student_reads_what_the_teacher_writes(
    trained, text, tmp_path, monkeypatch
):
    called = []
    monkeypatch.setattr(distillation, "train", lambda *a: called.append(a))
    translate = Translator.translate

    def ended(*arguments, **options):  # a model of 12 steps ends no sentence by itself
        for t in translate(*arguments, **options):
            best = dataclasses.replace(t.best, ended=True)
            yield dataclasses.replace(t, hypotheses=(best,))

    monkeypatch.setattr(Translator, "translate", lambda *a, **o: [*ended(*a, **o)])
    workdir = tmp_path / "student"
    config = from_config_dict(config_for(text))
    arguments = [str(trained[0])], str(text / "test"), config, workdir
    distill(*arguments)
    sources = [source for source, _ in file_corpus(text / "test", "en", "de").pairs()]
    translations = Translator.load(trained[0]).translate(sources)
    pairs = [*file_corpus(workdir / "distilled", "en", "de").pairs()]
    assert pairs == [(t.source, t.text) for t in translations]
    assert any(t.text for t in translations)
    ((student, folder),) = called
    assert folder == workdir
    assert student.data.train == str(workdir / "distilled")
    assert student.data.tokenizer == str(trained[0] / "tokenizer.model")
    assert student.data.dev == config.data.dev
    # Again: nothing is made or read but the record, and the teacher is not loaded.
    before = contents(workdir)
    monkeypatch.setattr(Translator, "load", None)
    distill(*arguments)
    assert contents(workdir) == before
    assert called[1] == called[0]


@pytest.mark.parametrize("stops", [1, 6])
def test_a_stopped_text_is_continued(workplace, stops):
    workplace.made("whole")
    with pytest.raises(KeyboardInterrupt):
        workplace.made(fails_after=stops)
    assert not (workplace.folder / "student/distilled.de").exists()
    workplace.made()
    assert contents(workplace.folder / "student") == contents(
        workplace.folder / "whole"
    )
    assert len(workplace.trained_with) == 2  # not by the one that was stopped


def test_parts_are_the_whole(workplace):
    workplace.made("whole")
    for number in (3, 2, 1):
        if number == 1:
            with pytest.raises(UserError, match=r"2 of 3 .*pairs.1-of-3 is missing"):
                workplace.made()
        assert workplace.made(part=(number, 3)) == {}
        workplace.made(part=(number, 3))  # is there
    assert workplace.made() == {"test": {}}
    assert contents(workplace.folder / "student") == contents(
        workplace.folder / "whole"
    )


def test_lines_stay_in_step_whatever_they_are(workplace):
    (workplace.folder / "in.de").unlink()  # a text without references is enough
    workplace.made()
    pairs = [*file_corpus(workplace.folder / "student/distilled", "en", "de").pairs()]
    assert pairs == [(line, answers(line)[0].text) for line in LINES]
    for options in ({"recipe": Recipe(4)}, {"mix": "original@0.5"}):
        with pytest.raises(UserError, match=r"in\.de does not exist"):
            workplace.made("other", **options)


def test_a_table_of_the_input_is_named_wherever_the_text_of_the_config_is(
    workplace, monkeypatch
):
    (workplace.folder / "in.tsv").write_text("a dog\tein Hund\n")
    monkeypatch.chdir(workplace.folder)
    workplace.made(places="in.tsv", mix="original")
    ((config, _),) = workplace.trained_with
    assert config.data.train.split(",")[1] == f"{workplace.folder}/in.tsv"


def test_the_nearest_to_the_reference_is_kept(workplace):
    workplace.made(recipe=Recipe(4, "bleu"), mix="original@0.5")
    ((config, _),) = workplace.trained_with
    original = f"{workplace.folder}/in@0.5"
    assert config.data.train == f"{workplace.folder}/student/distilled,{original}"
    score = sacrebleu.BLEU(effective_order=True).sentence_score
    pairs = [*file_corpus(workplace.folder / "student/distilled", "en", "de").pairs()]
    for source, target in pairs[len(ODD) :]:
        texts = [hypothesis.text for hypothesis in answers(source)]
        scores = [score(t, [f"Katze {source}"]).score for t in texts]
        assert target == texts[scores.index(max(scores))] == f"Katze {source}"
    # Of equally near ones, the most probable is kept.
    choose = Recipe(4, "bleu").chooser("de")
    assert choose(Translation("x", answers("x y")), "qqq") == answers("x y")[0].text


def test_half_a_translation_is_not_kept():
    best, second, *_ = answers("x y")
    open_ended = dataclasses.replace(best, ended=False)
    choose = Recipe().chooser("de")
    assert choose(Translation("x", (best, second)), "") == best.text
    assert choose(Translation("x", (best, second), cut=1), "") == ""
    assert choose(Translation("x", (open_ended,)), "") == ""


def test_word_level_needs_the_pieces_of_the_teacher(workplace, text, trained):
    workplace.made(word_level=True)
    ((config, _),) = workplace.trained_with
    assert config.train.loss == "distillation"
    assert config.train.options["teacher"] == str(trained[0])
    tokenizer = workplace.folder / "other.model"
    tokenizer.write_bytes(vocabulary().model)
    small = from_config_dict(config_for(text, data={"tokenizer": str(tokenizer)}))
    with pytest.raises(UserError, match="needs the tokenizer of its teacher"):
        student_config(small, [trained[0]], workplace.folder / "x", word_level=True)


def test_changed_files_are_noticed(workplace):
    def edit_and_make(file, message, name="student"):
        file = workplace.folder / file
        file.write_bytes(file.read_bytes()[:-3])
        with pytest.raises(UserError, match=message):
            workplace.made(name)

    workplace.made()
    with pytest.raises(UserError, match=r"by: 'probability' then, 'chrf' now"):
        workplace.made(recipe=Recipe(3))
    edit_and_make("student/distilled.de", "was changed after the teacher wrote it")
    edit_and_make("student/distilled.json", r"distilled.json is damaged")
    for number in (1, 2):
        workplace.made("parts", part=(number, 2))
    part = workplace.folder / "parts/distilled.pairs.1-of-2"
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:-2]))
    with pytest.raises(UserError, match="1-of-2 was changed after it was written"):
        workplace.made("parts")
    edit_and_make("in.de", r"of another text of a teacher:\n +input", "parts")


def test_mistakes_are_reported_before_anything_is_translated(workplace, trained, text):
    for options, message in (
        ({"name": trained[0]}, "--workdir=.* is the teacher"),
        ({"only": "train"}, "--only=train, but"),
        ({"part": (1, 21)}, "of 20 pairs is empty"),
    ):
        with pytest.raises(UserError, match=message):
            workplace.made(fails_after=0, **options)
    config = from_config_dict(config_for(text, data={"source": "de", "target": "en"}))
    with pytest.raises(UserError, match="languages of its teacher"):
        distill([str(trained[0])], str(text / "test"), config, workplace.folder / "s")


def test_a_student_is_its_teacher_with_other_sizes(trained, tmp_path):
    teacher = Workdir(trained[0]).config()
    student = from_config_dict(load_config(f"student:{trained[0]}"))
    assert (student.model, student.train) == (teacher.model, teacher.train)
    assert student.data.tokenizer == str(trained[0] / "tokenizer.model")
    assert student.data.train == teacher.data.train
    small = from_config_dict(load_config(f"student:{trained[0]},3+1,narrow,tied")).model
    assert [small.side(side).layers for side in ("encoder", "decoder")] == [3, 1]
    assert (small.width, small.heads, small.hidden) == (16, 1, 16)
    with pytest.raises(UserError, match="name the teacher's workdir first"):
        load_config("student:6+2")


def test_a_student_learns_anew(trained, tmp_path):
    """It has no part of its teacher's loss, of what it froze, or of fine-tuning."""
    loss = {"loss": "r_drop", "options": {"r_drop_alpha": 3.0}, "freeze": "embedding"}
    for train, steps in ((loss, 12), ({"init_from": "elsewhere"}, 100_000)):
        config = read_checked_json(trained[0] / "config.json")
        config["train"].update(train)
        (tmp_path / "config.json").write_bytes(checked_json(config))
        new = from_config_dict(load_config(f"student:{tmp_path}")).train
        assert (new.loss, new.freeze, new.init_from) == ("cross_entropy", "", "")
        assert (dict(new.options), new.steps) == ({}, steps)
