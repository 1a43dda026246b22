"""A model of one vocabulary as the start of a model of another."""

import dataclasses

import jax
import numpy as np
import pytest

from t2t_jax.config import ModelConfig
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.model.model import build
from t2t_jax.run.initialization import remap
from tests.decoding.small_translator import CONFIG, TEXT, renumbered, vocabulary


def parameters_of(config: ModelConfig, sizes):
    """Parameters that all differ; those of biases, too."""
    shapes = build(config, *sizes).shapes
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda x: draw.normal(size=x.shape).astype(x.dtype), shapes)


def remapped(old: Vocabulary, new: Vocabulary, **model):
    config = dataclasses.replace(CONFIG.model, **model)
    before = parameters_of(config, old.sizes)
    after = remap(before, build(config, *new.sizes), old, new)
    shapes = jax.tree.map(lambda x: x.shape, build(config, *new.sizes).shapes)
    assert jax.tree.map(np.shape, after) == shapes
    return before["embedding"], after["embedding"]


def separate(target: Vocabulary, source: Vocabulary) -> Vocabulary:
    return Vocabulary(target.model, target.name, Vocabulary(source.model))


def test_the_same_vocabulary_changes_nothing():
    before, after = remapped(vocabulary(), vocabulary(), tied="none", output_bias=True)
    assert {*after} == {"tokens", "source_tokens", "output", "output_bias"}
    jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.parametrize("tied", ["all", "target", "none"])
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


def test_each_side_goes_by_its_own_vocabulary(capsys):
    old = separate(vocabulary(), vocabulary(279))
    new = separate(vocabulary(279), renumbered())
    before, after = remapped(old, new, tied="target")
    pieces = {old.source.piece(i): i for i in range(len(old.source))}
    for i in range(len(new.source)):
        if (j := pieces.get(new.source.piece(i))) is not None:
            row = before["source_tokens"][j]
            np.testing.assert_array_equal(after["source_tokens"][i], row)
    said = capsys.readouterr().err
    assert "the target: 279 of 279 tokens" in said
    assert "the source: 279 of 291 tokens" in said
