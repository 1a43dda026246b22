"""The masked language model: what it predicts, its answers, and what is refused."""

import dataclasses
import functools
import json
import math

import jax
import pytest
from flax import nnx

from t2t_jax.config import TaskConfig
from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.pairs import tokenize_in_memory
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.data.noise import MASK
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.tasks.table import task_of
from t2t_jax.training.losses import loss_sums
from tests.bridges.exported import random_like
from tests.decoding import small_translator
from tests.decoding.explaining.test_distribution import probabilities

LINES = ["the cat sees the dog", "a dog sleeps in the house", "", "sleepless dogs"]
PAIRS = [("", line) for line in LINES]


@functools.cache
def translator():
    model = train_tokenizer(LINES * 20, 300, [MASK])
    config = dataclasses.replace(
        small_translator.CONFIG,
        task=TaskConfig(kind="masked_language_model"),
        model=dataclasses.replace(small_translator.CONFIG.model, kind="encoder_only"),
    )
    built = build(config.model, 300)
    parameters = random_like(built.shapes, 0.5, 1)  # `built.init` would be compiled
    return Translator(config, Vocabulary(model), built, parameters, [7])


def computed(function, batch, *arguments):
    """A function of the model and a batch, compiled."""
    definition = translator().model.definition

    def evaluate(parameters, batch):
        return function(nnx.merge(definition, parameters), batch, *arguments)

    return jax.jit(evaluate)(translator().parameters, batch)


@pytest.mark.parametrize("inside", [False, True])
def test_a_mask_becomes_the_most_probable_piece_that_fits_its_place(inside):
    vocabulary = translator().vocabulary
    line = "the cat<mask> the dog" if inside else "the cat <mask> the dog"
    begin, mask, end = "the cat", vocabulary.id_of(MASK), " the dog"
    prefix_ids, line_ids = vocabulary.encode([begin, begin + end])
    ids = [*prefix_ids, mask, *line_ids[len(prefix_ids) :], vocabulary.eos]
    mask_probabilities = probabilities(translator(), (ids, ids))[len(prefix_ids)]
    fits = {
        i: piece.removeprefix("▁")
        for i, piece in enumerate(map(vocabulary.piece, range(len(vocabulary))))
        if piece.startswith("▁") != inside
        and piece.strip("▁")
        and not piece.startswith("<")
    }
    best = max(fits, key=lambda i: mask_probabilities[i])
    (filled,) = translator().fill([line])
    assert filled.pieces == (fits[best],)
    assert str(filled) == line.replace(MASK, filled.pieces[0])
    assert filled.probabilities == pytest.approx([mask_probabilities[best]], rel=1e-4)


def test_several_masks_lines_without_any_and_lines_that_are_cut(caplog):
    cut_line = "the " * 70 + MASK  # of at most 64 pieces
    lines = [f"{MASK} cat {MASK} the{MASK}", "the cat", "", cut_line]
    several, *unmasked = translator().fill(lines)
    assert len(several.pieces) == 3
    assert several.text == "{} cat {} the{}".format(*several.pieces)
    assert [filled.text for filled in unmasked] == lines[1:]
    assert unmasked[0].hypothesis().score == 1.0
    assert several.hypothesis().log_prob == pytest.approx(
        sum(map(math.log, several.probabilities))
    )
    assert "2 of 4 lines have no <mask>" in caplog.text
    assert translator().fill(lines[:1]) == [several]  # not a trace of other lines


def test_answers_hold_the_loss_of_the_same_examples():
    """Of what the loss sees, from packed rows: the same pieces, probabilities, sum."""
    task, vocabulary = task_of(translator().config), translator().vocabulary
    answers = task.answers(translator(), PAIRS)
    pairs = tokenize_in_memory(PAIRS, vocabulary, task.encode)
    pairs = dataclasses.replace(pairs, noise=task.noise(vocabulary, []))
    (layout,) = plan_epoch(
        *pairs.lengths(), batch_tokens=1_024, batching="packed", seed=0, epoch=0
    )
    batch = pairs.batch(layout, seed=0, epoch=0)
    _, nll, tokens = computed(loss_sums, batch, 0.0, vocabulary.bos)
    log_probs = [float(answer.split("\t")[2]) for answer in answers]
    assert -sum(log_probs) == pytest.approx(float(nll), rel=1e-4)
    restored = [json.loads(answer.split("\t")[3]) for answer in answers]
    assert sum(map(len, restored)) == int(tokens)
    assert sum(int(answer.split("\t")[1]) for answer in answers) == int(tokens)
    correct = sum(was == best for pieces in restored for was, best, _ in pieces)
    scores = task.quick_scores(answers, PAIRS)
    assert scores["accuracy"] == pytest.approx(100 * correct / int(tokens))
    assert scores["masked_perplexity"] == pytest.approx(
        math.exp(float(nll) / int(tokens)), rel=1e-4
    )
    assert answers[2].startswith("0\t0\t")  # an empty line has nothing to hide


def test_other_models_and_separate_vocabularies_are_refused():
    with pytest.raises(UserError, match="no probability of a whole line"):
        translator().score([("", "the cat")])
    with pytest.raises(UserError, match="generates no text"):
        translator().translate(["the cat"])
    config = translator().config
    apart = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, tied="target"),
        data=dataclasses.replace(config.data, joint_vocabulary=False),
    )
    with pytest.raises(UserError, match="leave it at True"):
        _ = task_of(apart).vocab_sizes
