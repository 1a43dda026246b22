"""Stored results are used again if all that they depend on is as it was."""

import copy
import dataclasses
import json
import sys
from types import SimpleNamespace

import pytest

from t2t_jax import Translator, UserError
from t2t_jax.config import SECTIONS
from t2t_jax.data.corpus import derived, open_corpus
from t2t_jax.decoding import searcher
from t2t_jax.evaluation import provenance, scores
from t2t_jax.evaluation.scores import score_set
from t2t_jax.io import ideas
from t2t_jax.io.output_files import OutputFile
from t2t_jax.model.attention import ATTENTION
from t2t_jax.sections import table_of
from t2t_jax.tasks.translation import Translation
from t2t_jax.workdir import Workdir
from tests.decoding.small_translator import translator, with_own_source

# The fields without influence on the results of given parameters.
IRRELEVANT = {
    "model.remat",
    *("data.dir", "data.test", "data.feeder"),
    # Of the search: which parameters (they are hashed), and lines at a time.
    *("decode.average", "decode.checkpoint", "decode.batch_tokens"),
    # Without groups, and without a choice that has options.
    *("decode.diversity", "decode.options"),
}
FIELDS = [
    (section, field)
    for section in ("task", "model", "data", "decode")
    for field in dataclasses.fields(SECTIONS[section])
]
IDEA = """
from t2t_jax.model.attention import ATTENTION, AttentionFunction
from my_helper import factor

def mine(q_bthk, *others):
    return ATTENTION["dense"].attend(factor * q_bthk, *others)

ATTENTION["mine"] = AttentionFunction(mine)
"""


def another_value(section, field):
    """A value that the field does not have."""
    value = getattr(getattr(translator().config, section), field.name)
    if field.name == "options":
        return type(value)({"window": 3})
    if field.metadata["table"] or field.metadata["choices"]:
        alternatives = {*table_of(field), *field.metadata["choices"]} - {value}
        return min(alternatives - {"rerank"})
    if isinstance(value, bool):
        return not value
    return f"{value}x" if isinstance(value, str) else value + 1


def with_config(original, section, name, value):
    """The translator with a field of its config changed, whatever that means to it."""
    changed, config = copy.copy(original), copy.copy(original.config)
    values = copy.copy(getattr(config, section))
    object.__setattr__(values, name, value)
    object.__setattr__(config, section, values)
    changed.members = (original.members[0]._replace(config=config),)
    return changed


@pytest.mark.parametrize(
    ("section", "field"), FIELDS, ids=lambda x: getattr(x, "name", x)
)
def test_every_field_that_may_change_a_result_is_part_of_its_provenance(section, field):
    original = translator()
    changed = with_config(original, section, field.name, another_value(section, field))
    relevant = f"{section}.{field.name}" not in IRRELEVANT
    assert (original.provenance() != changed.provenance()) == relevant
    assert original.provenance() == translator().provenance()


def test_all_else_that_a_result_depends_on_is_part_of_its_provenance(monkeypatch):
    original = translator()
    (member,) = original.members
    variants = [translator(seed=2), original.tagged("<2de>"), with_own_source(original)]
    variants += [
        Translator.ensemble([original, original]),
        original.with_options(options={}, choose="mbr"),
    ]
    variants.append(original.with_choice("mbr", utility="bleu"))
    variants.append(copy.copy(original))
    variants[-1].members = (member._replace(steps=(8,)),)
    provenances = [
        json.dumps(variant.provenance()) for variant in (original, *variants)
    ]
    for owner, name, value in (
        (ideas, "imported", {"folder/idea.py": "0" * 64}),
        (searcher, "__version__", "0.0"),
        (
            sys.modules["t2t_jax.model.attention"],
            "ATTENTION",
            {"fused": ATTENTION["dense"]},
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            provenances.append(json.dumps(original.provenance()))
    assert len({*provenances}) == len(provenances)


# -------------------------------------------------------------- stored scores and jobs


@pytest.fixture
def computes_scores(monkeypatch, tmp_path):
    """Scores a set with made-up answers; says whether a model was asked for them."""
    answered = []
    (tmp_path / "work").mkdir()
    for side in ("en", "de"):
        (tmp_path / f"set.{side}").write_text("one\ntwo\n")

    def answers(self, translator, pairs, warn=True):
        answered.append(translator)
        return [target for _, target in pairs]

    monkeypatch.setattr(Translation, "answers", answers)
    monkeypatch.setattr(Translation, "extra_scores", lambda *_: {})
    corpus = open_corpus(str(tmp_path / "set"), "en", "de")

    def computes_scores(model, corpus=corpus):
        count_before = len(answered)
        score_set(model, corpus, Workdir(tmp_path / "work"))
        return len(answered) > count_before

    return computes_scores


def test_scores_are_used_again_unless_a_task_or_a_text_has_changed(
    computes_scores, tmp_path, monkeypatch
):
    model = translator()
    assert computes_scores(model)
    assert not computes_scores(model)
    monkeypatch.setattr(Translation, "score_options", lambda *_: {"options": 1})
    assert computes_scores(model)
    assert not computes_scores(model)
    (tmp_path / "set.de").write_text("one\nthree\n")
    assert computes_scores(model)
    assert not computes_scores(model)


def test_another_commit_or_machine_scores_nothing_anew(
    computes_scores, tmp_path, monkeypatch
):
    model, folder = translator(), tmp_path / "work/scores"
    assert computes_scores(model)
    for name in ("code_version", "describe_machine"):
        monkeypatch.setattr(provenance, name, lambda: {"commit": "another"})
    assert not computes_scores(model)
    monkeypatch.setattr(scores, "SCORES_VERSION", 4)
    assert computes_scores(model)
    assert json.loads((folder / "set.json").read_text())["code"]["commit"] == "another"
    assert (folder / "set.1.json").exists()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Starts another program with --ideas, as far as this one can: a translator."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(ATTENTION, "mine", None)
    (tmp_path / "my_idea.py").write_text(IDEA)
    (tmp_path / "my_helper.py").write_text("factor = 1\n")

    def start():
        for name in ("my_idea", "my_helper"):
            sys.modules.pop(name, None)
        monkeypatch.setattr(ideas, "imported", {})
        ideas.load(str(tmp_path / "my_idea.py"))
        model = with_config(translator(), "model", "attention", "mine")
        return SimpleNamespace(translator=model, function=ATTENTION["mine"].attend)

    yield start
    for name in ("my_idea", "my_helper"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("edited", ["my_idea.py", "my_helper.py"])
def test_scores_and_jobs_of_an_idea_end_with_its_code(
    computes_scores, program, tmp_path, edited
):
    def stopped(model):
        with OutputFile(tmp_path / "out", model.provenance(), resume=True) as output:
            output.add(["one"], "eins\n")
            raise KeyboardInterrupt

    assert computes_scores(program().translator)
    with pytest.raises(KeyboardInterrupt):
        stopped(program().translator)
    assert not computes_scores(program().translator)
    with pytest.raises(KeyboardInterrupt):
        stopped(program().translator)
    text = (tmp_path / edited).read_text()
    (tmp_path / edited).write_text(
        text.replace("factor * q", "q").replace("= 1", "= 2")
    )
    assert computes_scores(program().translator)
    with pytest.raises(UserError, match="begun with other settings:\n  ideas: "):
        stopped(program().translator)
    (tmp_path / edited).write_text(text)
    # The scores of the code before were put away, so they are not found again.
    assert computes_scores(program().translator)
    with pytest.raises(KeyboardInterrupt):
        stopped(program().translator)


def test_text_that_an_idea_makes_is_prepared_again_after_an_edit(program, tmp_path):
    corpus = open_corpus("grammar:test", "en", "de")
    prints = []
    for text in (IDEA, IDEA, IDEA.replace("factor *", "2 *")):
        (tmp_path / "my_idea.py").write_text(text)
        prints.append(derived(corpus, "kind", program().function).fingerprint())
    assert prints[0] == prints[1] != prints[2]
    fingerprint = derived(corpus, "kind", list).fingerprint
    assert fingerprint() == derived(corpus, "kind", iter).fingerprint()
