"""A model starts from parts of one of another kind, or of another vocabulary."""

import dataclasses

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from t2t_jax.config import Config, from_config_dict
from t2t_jax.data.tokenizers.table import pack
from t2t_jax.data.tokenizers.training import train_tokenizer
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
from t2t_jax.tools.verify.random_models import random_parameters
from t2t_jax.training.step import initial_parameters
from tests.decoding.small_translator import CONFIG, TEXT, renumbered, vocabulary
from tests.small_run import assert_same, stored

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


def started(theirs: Config, ours: Config):
    """The parameters of both models, by path, and those of ours that were taken."""
    their_model, our_model = build(theirs.model, 20), build(ours.model, 20, 20)
    check_parts(ours, theirs, their_model, build(ours.model, 20))
    before = random_parameters(their_model, 0)
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
    "masked language model to translator": ("encoder_only", "transformer", BOTH),
    "translator to lm": ("transformer", "decoder_only", "decoder,embedding"),
    "lstm": ("lstm", "lstm", "encoder"),
}


@pytest.mark.parametrize("case", KINDS)
def test_a_part_is_what_it_was_and_the_others_are_random(case):
    theirs, ours, parts = KINDS[case]
    fields = {} if "lstm" in case else {"positions": "learned", "norm": "pre"}
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


ROTARY = {"positions": "rotary"}
WRONG = [
    ("transformer", "classifier", "encodr", {}, "'encodr', but .*did you mean 'encod"),
    ("decoder_only", "transformer", "encoder", {}, "decoder_only'. has no such part"),
    ("transformer", "classifier", BOTH, {"width": 16}, "model.width=8 there, 16 here"),
    ("transformer", "encoder_only", "encoder", ROTARY, "=sinusoid there, rotary here"),
    ("transformer", "transformer", BOTH, {"tied": "none"}, "tied=all there, none here"),
]


@pytest.mark.parametrize(("theirs", "ours", "parts", "model", "told"), WRONG)
def test_parts_that_differ_are_told(theirs, ours, parts, model, told):
    with pytest.raises(UserError, match=told):
        started(config_of(theirs), config_of(ours, parts, **model))


def test_the_pieces_are_those_of_the_same_text():
    translator, lm, mlm, classifier = map(
        config_of, ("transformer", "decoder_only", "encoder_only", "classifier")
    )
    both = Vocabulary(vocabulary().model, source=renumbered())
    assert text_vocabulary(both, translator, translator) is both
    assert text_vocabulary(both, translator, mlm).model == both.source.model
    assert text_vocabulary(both, translator, lm).model == both.model
    # The target of a classifier is its labels.
    assert text_vocabulary(both, classifier, translator).sizes == (291,)


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


def test_a_head_is_taken_over_for_the_same_labels(tmp_path):
    def labelled(*labels):
        return Vocabulary(pack("labels", labels=labels), "", vocabulary())

    of_two, old = {"joint_vocabulary": False}, labelled("bad", "good")
    theirs = config_of("classifier", data=of_two)
    workdir, their_model, before = stored(tmp_path / "there", theirs, old)
    start = {"init_from": str(workdir), "init_parts": f"{BOTH},head"}
    start["remap_vocabulary"] = True
    ours = config_of("classifier", data=of_two, train=start)
    assert_same(initialization.hook(ours, their_model, old)(), before)
    # Of other labels, or of the same in another order, rows would mean something else.
    for labels in (["bad", "good", "so so"], ["good", "bad"]):
        new = labelled(*labels)
        model = build(ours.model, *new.sizes)
        told = f"labels bad, good; this run has {', '.join(labels)}. "
        with pytest.raises(UserError, match=told):
            initialization.hook(ours, model, new)()


# ------------------------------------------------------- another vocabulary


def remapped(old: Vocabulary, new: Vocabulary, **model):
    config = dataclasses.replace(CONFIG.model, **model)
    before = random_parameters(build(config, *old.sizes), 0)
    after = remap(before, build(config, *new.sizes), old, new)
    return before["embedding"], after["embedding"]


@pytest.mark.parametrize("tied", ["all", "none"])
def test_shared_pieces_keep_their_rows(tied, capsys):
    old, new = vocabulary(), renumbered()
    before, after = remapped(old, new, tied=tied, output_bias=True)
    ids = {old.piece(i): i for i in range(len(old))}
    same = [(i, ids[new.piece(i)]) for i in range(len(new)) if new.piece(i) in ids]
    assert len(same) == len(old)
    assert any(i != j for i, j in same)
    for name, table in after.items():
        for i, j in same:
            np.testing.assert_array_equal(table[i], before[name][j])
    assert "the vocabulary: 290 of 291 tokens keep" in capsys.readouterr().err


def test_other_pieces_start_from_the_mean_of_their_text(capsys):
    old = vocabulary(279)  # hardly more than letters
    new = Vocabulary(train_tokenizer([*TEXT * 20, "q"], 300))
    before, after = remapped(old, new)
    theirs = {old.piece(i) for i in range(len(old))}
    others = [i for i in range(len(new)) if new.piece(i) not in theirs]
    spelled = [i for i in others if new.spelling(i).strip() != "q"]
    assert len(spelled) > 5
    for i in spelled:
        ids = old.encode([new.spelling(i).strip()])[0]
        mean = before["tokens"][ids].mean(axis=0)
        np.testing.assert_allclose(after["tokens"][i], mean, rtol=1e-5, atol=1e-6)
    counts = f"{len(new) - len(others)} of {len(new)} tokens keep their embeddings"
    assert counts in capsys.readouterr().err
