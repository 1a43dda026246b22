"""Labelled text, its labels and its scores; and a classifier from text to answers."""

import functools
import gzip

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from flax import nnx
from hypothesis import given

from t2t_jax.config import from_config_dict
from t2t_jax.data.tokenizers.table import pack
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.tasks.classification import Classification, open_labelled
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.classification import answer_line, probabilities_of
from t2t_jax.metrics.measures import measured
from t2t_jax.model.architecture import logits
from t2t_jax.model.model import build
from tests.decoding import small_translator

LABELS = ["bad", "good", "so so"]


def write(folder, content, name="x.tsv"):
    (folder / name).write_bytes(content)
    return open_labelled(f"{folder}/{name.split('.')[0]}", "en", "de")


def task_of(folder, **data):
    """The task, with the text of x.tsv, and dev.tsv or test.tsv if they are named."""
    data = {"dir": str(folder), "joint_vocabulary": False, "vocab_size": 290} | data
    options = data.pop("options", {})
    task = {"kind": "classification", "options": options}
    model = {"kind": "classifier"}
    sections = {"task": task, "data": data, "model": model}
    return Classification(from_config_dict(sections))


# ----------------------------------------------------------------------- labelled text


def test_plain_and_gzipped_files_are_the_same(tmp_path):
    content = b" a b \tgood\r\n\tbad \nc = d\tso so\n"
    plain = write(tmp_path, content)
    zipped = write(tmp_path, gzip.compress(content), "z.tsv.gz")
    pairs = [(" a b ", "good"), ("", "bad"), ("c = d", "so so")]
    assert list(plain.pairs()) == list(zipped.pairs()) == pairs
    # Sentences of the grammar are labelled by their last mark.
    pairs = [*open_labelled("grammar:dev", "en", "de").pairs()]
    assert {label for _, label in pairs} == {"question", "statement"}
    assert not any(line.endswith((".", "?")) for line, _ in pairs)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"a\tgood\n\n", ["x.tsv, line 2: no tabs", "remove the empty line"]),
        (b"a\tb\tgood\n", ["x.tsv, line 1: 2 tabs", "replace the others by spaces"]),
        (b"a\tgood\nb\t \n", ["x.tsv, line 2", "no label after the tab", "write one"]),
        (b"sentence\tlabel\na\tgood\n", ["x.tsv, line 1", "a heading", "remove it"]),
        ("a\tgood\n".encode("utf-16"), ["x.tsv, line 1", "iconv -f UTF-16"]),
        (b"", ["x.tsv is empty"]),
    ],
)
def test_wrong_lines_are_named_with_a_remedy(tmp_path, content, parts):
    corpus = write(tmp_path, content)
    with pytest.raises(UserError) as error:
        list(corpus.pairs())
    assert all(part in str(error.value) for part in parts), error.value


# ------------------------------------------------------------------------------ labels


def vocabulary_of(labels=LABELS) -> Vocabulary:
    model = pack("labels", labels=labels)
    return Vocabulary(model, "labels", small_translator.vocabulary())


def test_a_label_is_one_token_and_nothing_follows_it():
    vocabulary = vocabulary_of()
    assert vocabulary.sizes == (3, 290)
    assert vocabulary.encode(LABELS[::-1], end=True) == [[2], [1], [0]]
    assert vocabulary.decode([[2], [0]]) == ["so so", "bad"]
    eos = vocabulary.source.eos
    assert vocabulary.source.encode(["a"], end=True)[0][-1] == eos  # text has an end
    with pytest.raises(UserError, match="unknown label 'god'; did you mean 'good'"):
        vocabulary.encode(["god"])
    for damaged in (["one"], ["a", "a"], "ab"):
        with pytest.raises(UserError, match="labels is damaged"):
            vocabulary_of(damaged)


@pytest.mark.parametrize(
    ("train", "data", "parts"),
    [
        ("good good", {}, "has the label 'good'; want .* two"),
        ("good bad", {"dev": "dev"}, "dev, line 2: .*'bda'"),
        ("good god", {"options": {"labels": "good,bad"}}, "'bad', of which .* no exam"),
        ("good bad", {"joint_vocabulary": True}, "set config.data.joint_vocabulary="),
    ],
)
def test_labels_that_do_not_match_are_refused(tmp_path, train, data, parts):
    corpus = write(tmp_path, "".join(f"a\t{x}\n" for x in train.split()).encode())
    write(tmp_path, b"c\tbad\nd\tbda\n", "dev.tsv")
    task = task_of(tmp_path, **{"dev": ""} | data)
    with pytest.raises(UserError, match=parts):
        task.vocab_sizes, task.vocabulary([corpus], small_translator.vocabulary())


# ------------------------------------------------------------------------------ scores


def score(name, answers, labels):
    measure = Classification.measures[name]
    return measured(measure, measure.statistics(answers, [("", x) for x in labels]))


def test_scores_are_those_counted_by_hand():
    answers = [
        answer_line("a", {"a": 0.9, "b": 0.1}),
        answer_line("a", {"a": 0.7, "b": 0.3}),
        answer_line("b", {"a": 0.2, "b": 0.8}),
        answer_line("b", {"a": 0.4, "b": 0.6}),
    ]
    labels = ["a", "b", "b", "b"]
    assert answers[0] == "a\ta=0.9\tb=0.1"
    assert score("accuracy", answers, labels) == 75
    # a: 1 correct, 2 said, 1 true; b: 2 correct, 2 said, 3 true.
    assert score("macro_f1", answers, labels) == pytest.approx(50 * (2 / 3 + 4 / 5))
    # Four bins: gaps 0.1, 0.7, 0.2, 0.4.
    assert score("ece", answers, labels) == pytest.approx(1.4 / 4)
    nll = -np.log([0.9, 0.3, 0.8, 0.6]).mean()
    assert score("nll", answers, labels) == pytest.approx(nll)
    brier = 2 * (0.01 + 0.49 + 0.04 + 0.16) / 4
    assert score("brier", answers, labels) == pytest.approx(brier)
    # Confidences of one bin are averaged: 0.57 in (8/15, 9/15], and half are right.
    answers = [answer_line("a", {"a": p, "b": 1 - p}) for p in (0.54, 0.56, 0.58, 0.6)]
    assert score("ece", answers, ["a", "a", "b", "b"]) == pytest.approx(0.07)
    # An answer that is no class of the set is a mistake: each class has 1 of 2.
    assert score("macro_f1", ["a", "b", "bb", "aa"], "abab") == pytest.approx(200 / 3)
    # A class that is neither true nor predicted does not count.
    answers = [answer_line("a", {"a": 0.8, "b": 0.1, "c": 0.1})] * 2
    assert score("macro_f1", answers, "aa") == 100


labels_st = st.text(st.characters(exclude_characters="\t\n\r"), min_size=1)


@given(st.data(), st.lists(labels_st, min_size=2, unique=True))
def test_an_answer_is_read_as_it_was_written(data, labels):
    probabilities = data.draw(
        st.lists(st.floats(0, 1), min_size=len(labels), max_size=len(labels))
    )
    line = answer_line(labels[0], dict(zip(labels, probabilities, strict=True)))
    found, columns = probabilities_of([line])
    assert columns == labels
    np.testing.assert_allclose(found[0], probabilities, rtol=1e-5)


def test_damaged_probabilities_are_named():
    intact = answer_line("a", {"a": 0.5, "b": 0.5})
    for line in ("b", "b\ta=half\tb=0.5", "b\ta=0.5\tb=nan", "c\ta=0.5\tb=0.5"):
        with pytest.raises(UserError, match="answer 2 is .* for each of a, b"):
            score("nll", [intact, line], "ab")


# ------------------------------------------------------------------------ a classifier


@functools.cache
def classifier(seed=1) -> Translator:
    sizes = {"layers": 1, "width": 16, "heads": 2, "hidden": 16}
    config = from_config_dict(
        {
            "task": {"kind": "classification"},
            "model": {"kind": "classifier", **sizes},
            "data": {"joint_vocabulary": False},
            "decode": {"max_source": 64, "batch_tokens": 256},
        }
    )
    vocabulary = vocabulary_of()
    model = build(config.model, *vocabulary.sizes)
    parameters = jax.tree.map(lambda x: 4 * x, model.init(jax.random.key(seed)))
    return Translator(config, vocabulary, model, parameters, [7])


LINES = ["a dog sleeps", "", "the cat sees the dog", "ein Hund"]


def test_a_label_does_not_depend_on_the_other_lines():
    found = classifier().classify(LINES)
    assert found == [classifier().classify([line])[0] for line in LINES]  # to the bit


def test_probabilities_are_those_of_the_logits_and_an_ensemble_has_their_mean():
    translator = classifier()
    ids = np.array(translator.vocabulary.source.encode([LINES[0]], end=True), np.int32)
    batch = {}
    for side, tokens in (("source", ids), ("target", np.zeros((1, 1), np.int32))):
        position = np.arange(tokens.shape[1], dtype=np.int32)[None]
        batch |= {side: tokens, f"{side}_segment": np.ones_like(tokens)}
        batch |= {f"{side}_position": position, f"{side}_input": tokens}
    model = nnx.merge(translator.model.definition, translator.parameters)
    expected = jax.jit(lambda: jax.nn.softmax(logits(model, batch)[0, 0]))()
    (prediction,) = translator.classify(LINES[:1])
    probabilities = [*prediction.probabilities.values()]
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)
    assert prediction.label == LABELS[int(np.argmax(probabilities))]

    second = classifier(2)
    for joint, *single in zip(
        Translator.ensemble([translator, second]).classify(LINES),
        *(member.classify(LINES) for member in (translator, second)),
        strict=True,
    ):
        expected = np.mean([[*p.probabilities.values()] for p in single], axis=0)
        np.testing.assert_allclose([*joint.probabilities.values()], expected, rtol=1e-5)
    with pytest.raises(UserError, match="'transformer' does not predict labels"):
        small_translator.translator().classify(["a"])


def test_answers_hold_all_probabilities_and_unknown_labels_are_refused(tmp_path):
    task, translator = task_of(tmp_path), classifier()
    (answer,) = task.answers(translator, [("a dog", "good")])
    (prediction,) = translator.classify(["a dog"])
    assert answer == answer_line(prediction.label, prediction.probabilities)
    with pytest.raises(UserError, match="test set, line 2: unknown label 'god'"):
        task.answers(translator, [("a", "good"), ("b", "god")])
