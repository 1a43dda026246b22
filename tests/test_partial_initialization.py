"""Parts of a model start from another model's, of another kind, too."""

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from t2t_jax.config import Config, from_config_dict
from t2t_jax.data.tokenizers.table import pack
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.run import initialization
from t2t_jax.run.initialization import (
    check_parts,
    completed,
    remap,
    taken_over,
    text_vocabulary,
)
from t2t_jax.training.step import initial_parameters
from tests.decoding.small_translator import renumbered, vocabulary
from tests.small_run import assert_same, random_parameters, stored

pytestmark = pytest.mark.usefixtures("quick_compiler")

SMALL = {"layers": 1, "width": 8, "heads": 2, "hidden": 8}
BOTH = "encoder,embedding"


def config_of(kind: str, parts: str = "", data=None, train=None, **model) -> Config:
    start = {"init_from": "there", "init_parts": parts} if parts else {}
    return from_config_dict(
        {
            "model": {"kind": kind, **SMALL, **model},
            "data": data or {},
            "train": start | (train or {}),
        }
    )


def started(theirs: Config, ours: Config, pieces: int = 20, labels: int | None = None):
    """The parameters of both models, by path, and those of ours that were taken."""
    their_model = build(theirs.model, pieces)
    our_model = build(ours.model, labels or pieces, pieces)
    check_parts(ours, theirs, their_model, build(ours.model, pieces))
    before = random_parameters(their_model)
    parts = ours.train.init_parts.split(",")
    taken = taken_over(parts, their_model, our_model, before)
    # Biases begin at 0 here and there.
    random = jax.tree.map(lambda x: np.full(x.shape, 7.0), our_model.shapes)
    after = completed(taken, random)
    shapes = jax.tree.map(lambda x: x.shape, our_model.shapes)
    assert jax.tree.map(np.shape, after) == shapes
    return flatten_dict(before), flatten_dict(after), flatten_dict(taken)


KINDS = {
    "translator to classifier": ("transformer", "classifier", BOTH),
    "masked language model to classifier": ("encoder_only", "classifier", BOTH),
    "masked language model to translator": ("encoder_only", "transformer", BOTH),
    "language model to translator": ("decoder_only", "transformer", "decoder"),
    "translator to lm": ("transformer", "decoder_only", "decoder,embedding"),
    "classifier to translator": ("classifier", "transformer", BOTH),
    "language model to classifier": ("decoder_only", "classifier", "embedding"),
    "lstm": ("lstm", "lstm", "encoder"),
}


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("case", KINDS)
def test_a_part_is_what_it_was_and_the_others_are_random(case, norm):
    theirs, ours, parts = KINDS[case]
    fields = {} if "lstm" in case else {"positions": "learned", "norm": norm}
    before, after, taken = started(
        config_of(theirs, **fields), config_of(ours, parts, **fields)
    )
    assert {path[0].partition("_")[0] for path in taken} == {*parts.split(",")}
    for path, x in after.items():
        named = any(path[0].startswith(part) for part in parts.split(","))
        if named and not {"cross", "cross_sub"} & {*path}:
            np.testing.assert_array_equal(x, before[path])
        else:
            assert (x == 7).all()


@pytest.mark.parametrize("tied", ["target", "none"])
def test_a_classifier_takes_the_table_of_the_source(tied):
    theirs = config_of("transformer", tied=tied)
    before, after, taken = started(theirs, config_of("classifier", BOTH), labels=3)
    table = before["embedding", "source_tokens"]
    np.testing.assert_array_equal(after["embedding", "tokens"], table)
    assert after["head", "labels"].shape == (3, 8)
    assert ("head", "labels") not in taken


@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        ("transformer", "decoder_only", True),
        ("encoder_only", "transformer", False),
    ],
)
def test_an_output_layer_is_taken_over_for_the_same_predictions(theirs, ours, same):
    untied = {"tied": "none", "output_bias": True}
    ours = config_of(ours, "embedding", **untied)
    _, _, taken = started(config_of(theirs, **untied), ours)
    assert (("embedding", "output_bias") in taken) == same
    assert (("embedding", "output") in taken) == same


ROTARY = {"positions": "rotary"}
OFFSET = {"options": {"position_offset": 2}}
WRONG = [
    ("transformer", "classifier", "encodr", {}, "'encodr', but .*did you mean 'encod"),
    ("decoder_only", "transformer", "encoder", {}, "decoder_only'. has no such part"),
    ("lstm", "classifier", "encoder", {}, r"0.backward.bias=\(4, 8\) there, no array"),
    ("transformer", "classifier", BOTH, {"layers": 2}, "encoder_layers=1 there, 2 h"),
    ("transformer", "classifier", BOTH, {"width": 16}, "model.width=8 there, 16 here"),
    ("transformer", "encoder_only", "encoder", ROTARY, "=sinusoid there, rotary here"),
    ("transformer", "encoder_only", "encoder", OFFSET, "offset=0 there, 2 here"),
    ("transformer", "transformer", BOTH, {"tied": "none"}, "tied=all there, none here"),
]


@pytest.mark.parametrize(("theirs", "ours", "parts", "model", "told"), WRONG)
def test_parts_that_differ_are_told(theirs, ours, parts, model, told):
    with pytest.raises(UserError, match=told):
        started(config_of(theirs), config_of(ours, parts, **model))


def test_fields_that_do_not_concern_a_part_may_differ():
    fields = {"decoder_layers": 2, "dropout": 0.3, "attention": "dense", "tied": "none"}
    started(config_of("transformer"), config_of("transformer", "encoder", **fields))
    other = {"norm": "pre", "encoder_layers": 3}
    started(config_of("transformer"), config_of("classifier", "embedding", **other))


def test_parts_need_a_model_to_start_from():
    with pytest.raises(UserError, match="init_parts='encoder', but there is no model"):
        config_of("classifier", train={"init_parts": "encoder"})


def test_the_pieces_are_those_of_the_same_text():
    translator, lm, mlm, classifier = map(
        config_of, ("transformer", "decoder_only", "encoder_only", "classifier")
    )
    both = Vocabulary(vocabulary().model, source=renumbered())
    assert text_vocabulary(both, translator, translator) is both
    assert text_vocabulary(both, translator, mlm).model == both.source.model
    assert text_vocabulary(both, translator, lm).sizes == (290,)
    assert text_vocabulary(both, translator, lm).model == both.model
    # The target of a classifier is its labels.
    assert text_vocabulary(both, classifier, translator).sizes == (291,)


def test_a_table_may_be_remapped_to_other_pieces():
    old, new = vocabulary(), Vocabulary(vocabulary().model, source=renumbered())
    theirs = build(config_of("transformer").model, *old.sizes)
    ours = build(config_of("classifier", BOTH).model, *new.sizes)
    before = random_parameters(theirs)
    taken = taken_over(BOTH.split(","), theirs, ours, before)
    after = remap(taken, ours, old, new)["embedding"]["tokens"]
    ids = {old.piece(i): i for i in range(len(old))}
    for i in range(len(new.source)):
        if (j := ids.get(new.source.piece(i))) is not None:
            np.testing.assert_array_equal(after[i], before["embedding"]["tokens"][j])


def test_a_run_starts_from_parts_of_a_workdir(tmp_path, capsys):
    pieces = vocabulary()
    workdir, _, before = stored(tmp_path / "there", config_of("encoder_only"), pieces)
    ours = config_of("classifier", BOTH, train={"init_from": str(workdir), "seed": 5})
    initialization.check_source(ours)
    assert initialization.vocabulary(ours).model == pieces.model
    model = build(ours.model, 3, len(pieces))
    after = initialization.hook(ours, model, pieces)()
    random = jax.jit(lambda: initial_parameters(model, 5))()
    assert_same(after["encoder"], before["encoder"])
    assert_same(after["embedding"], before["embedding"])
    assert_same(after["head"], jax.device_get(random["head"]))
    assert "random parameters: head" in capsys.readouterr().err


@pytest.mark.parametrize("parts", ["", f"{BOTH},head"])
@pytest.mark.parametrize("remap_vocabulary", [False, True])
def test_a_head_is_taken_over_for_the_same_labels(tmp_path, parts, remap_vocabulary):
    def labelled(*labels):
        return Vocabulary(pack("labels", labels=labels), "", vocabulary())

    of_two, old = {"joint_vocabulary": False}, labelled("bad", "good")
    theirs = config_of("classifier", data=of_two)
    workdir, their_model, before = stored(tmp_path / "there", theirs, old)
    start = {"init_from": str(workdir), "remap_vocabulary": remap_vocabulary}
    start |= {"init_parts": parts}
    ours = config_of("classifier", data=of_two, train=start)
    assert_same(initialization.hook(ours, their_model, old)(), before)
    # Of other labels, or of the same in another order, rows would mean something else.
    for labels in (["bad", "good", "so so"], ["good", "bad"]):
        new = labelled(*labels)
        model = build(ours.model, *new.sizes)
        told = f"labels bad, good; this run has {', '.join(labels)}. "
        with pytest.raises(UserError, match=told):
            initialization.hook(ours, model, new)()
