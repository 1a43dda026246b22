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
from t2t_jax.extensions.run.another_vocabulary import remap
from t2t_jax.extensions.run.init_parts import check_parts, completed, taken_over
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.run import initialization
from t2t_jax.run.initialization import text_vocabulary
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


def started(source_config: Config, config: Config):
    """The parameters of both models, by path, and those of ours that were taken."""
    source_model, model = build(source_config.model, 20), build(config.model, 20, 20)
    check_parts(config, source_config, source_model, build(config.model, 20))
    source_parameters = random_parameters(source_model, 0)
    parts = config.train.init_parts.split(",")
    taken_parameters = taken_over(parts, source_model, model, source_parameters)
    # Biases begin at 0 here and there.
    random = jax.tree.map(lambda x: np.full(x.shape, 7.0), model.shapes)
    parameters = completed(taken_parameters, random)
    shapes = jax.tree.map(lambda x: x.shape, model.shapes)
    assert jax.tree.map(np.shape, parameters) == shapes
    return (
        flatten_dict(source_parameters),
        flatten_dict(parameters),
        flatten_dict(taken_parameters),
    )


KINDS = {
    "translator to classifier": ("transformer", "classifier", BOTH),
    "masked language model to translator": ("encoder_only", "transformer", BOTH),
    "translator to lm": ("transformer", "decoder_only", "decoder,embedding"),
    "lstm": ("lstm", "lstm", "encoder"),
}


@pytest.mark.parametrize("case", KINDS)
def test_a_part_is_what_it_was_and_the_others_are_random(case):
    source_kind, kind, parts = KINDS[case]
    fields = {} if "lstm" in case else {"positions": "learned", "norm": "pre"}
    source_parameters, parameters, taken_parameters = started(
        config_of(source_kind, **fields), config_of(kind, parts, **fields)
    )
    assert {path[0].partition("_")[0] for path in taken_parameters} == {
        *parts.split(",")
    }
    for path, x in parameters.items():
        named = any(path[0].startswith(part) for part in parts.split(","))
        if named and not {"cross", "cross_sub"} & {*path}:
            np.testing.assert_array_equal(x, source_parameters[path])
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


@pytest.mark.parametrize(("source_kind", "kind", "parts", "model", "message"), WRONG)
def test_parts_that_differ_are_told(source_kind, kind, parts, model, message):
    with pytest.raises(UserError, match=message):
        started(config_of(source_kind), config_of(kind, parts, **model))


def test_the_pieces_are_those_of_the_same_text():
    translator, lm, mlm, classifier = map(
        config_of, ("transformer", "decoder_only", "encoder_only", "classifier")
    )
    separate = Vocabulary(vocabulary().model, source=renumbered())
    assert text_vocabulary(separate, translator, translator) is separate
    assert text_vocabulary(separate, translator, mlm).model == separate.source.model
    assert text_vocabulary(separate, translator, lm).model == separate.model
    # The target of a classifier is its labels.
    assert text_vocabulary(separate, classifier, translator).sizes == (291,)


def test_a_run_starts_from_parts_of_a_workdir(tmp_path, capsys):
    pieces = vocabulary()
    workdir, _, source_parameters = stored(
        tmp_path / "there", config_of("encoder_only"), pieces
    )
    config = config_of("classifier", BOTH, train={"init_from": str(workdir), "seed": 5})
    initialization.check_source(config)
    assert initialization.vocabulary(config).model == pieces.model
    model = build(config.model, 3, len(pieces))
    parameters = initialization.hook(config, model, pieces)()
    random = jax.jit(lambda: initial_parameters(model, 5))()
    assert_same(parameters["encoder"], source_parameters["encoder"])
    assert_same(parameters["embedding"], source_parameters["embedding"])
    assert_same(parameters["head"], jax.device_get(random["head"]))
    assert "random parameters: head" in capsys.readouterr().err


def test_a_head_is_taken_over_for_the_same_labels(tmp_path):
    def labelled(*labels):
        return Vocabulary(pack("labels", labels=labels), "", vocabulary())

    two_vocabularies, source_labels = (
        {"joint_vocabulary": False},
        labelled("bad", "good"),
    )
    source_config = config_of("classifier", data=two_vocabularies)
    workdir, their_model, source_parameters = stored(
        tmp_path / "there", source_config, source_labels
    )
    start = {"init_from": str(workdir), "init_parts": f"{BOTH},head"}
    start["remap_vocabulary"] = True
    config = config_of("classifier", data=two_vocabularies, train=start)
    assert_same(
        initialization.hook(config, their_model, source_labels)(), source_parameters
    )
    # Of other labels, or of the same in another order, rows would mean something else.
    for labels in (["bad", "good", "so so"], ["good", "bad"]):
        changed_labels = labelled(*labels)
        model = build(config.model, *changed_labels.sizes)
        message = f"labels bad, good; this run has {', '.join(labels)}. "
        with pytest.raises(UserError, match=message):
            initialization.hook(config, model, changed_labels)()


# ------------------------------------------------------- another vocabulary


def remapped(old: Vocabulary, new: Vocabulary, **model):
    config = dataclasses.replace(CONFIG.model, **model)
    source_parameters = random_parameters(build(config, *old.sizes), 0)
    parameters = remap(source_parameters, build(config, *new.sizes), old, new)
    return source_parameters["embedding"], parameters["embedding"]


@pytest.mark.parametrize("tied", ["all", "none"])
def test_shared_pieces_keep_their_rows(tied, capsys):
    old, new = vocabulary(), renumbered()
    source_tables, tables = remapped(old, new, tied=tied, output_bias=True)
    ids = {old.piece(i): i for i in range(len(old))}
    shared = [(i, ids[new.piece(i)]) for i in range(len(new)) if new.piece(i) in ids]
    assert len(shared) == len(old)
    assert any(i != j for i, j in shared)
    for name, table in tables.items():
        for i, j in shared:
            np.testing.assert_array_equal(table[i], source_tables[name][j])
    assert "the vocabulary: 290 of 291 tokens keep" in capsys.readouterr().err


def test_other_pieces_start_from_the_mean_of_their_text(capsys):
    old = vocabulary(279)  # hardly more than letters
    new = Vocabulary(train_tokenizer([*TEXT * 20, "q"], 300))
    source_tables, tables = remapped(old, new)
    known = {old.piece(i) for i in range(len(old))}
    new_ids = [i for i in range(len(new)) if new.piece(i) not in known]
    spelled = [i for i in new_ids if new.spelling(i).strip() != "q"]
    assert len(spelled) > 5
    for i in spelled:
        ids = old.encode([new.spelling(i).strip()])[0]
        mean = source_tables["tokens"][ids].mean(axis=0)
        np.testing.assert_allclose(tables["tokens"][i], mean, rtol=1e-5, atol=1e-6)
    counts = f"{len(new) - len(new_ids)} of {len(new)} tokens keep their embeddings"
    assert counts in capsys.readouterr().err
