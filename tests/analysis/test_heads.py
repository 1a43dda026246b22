"""Attention heads: what they attend to, and the model without them."""

import jax
import numpy as np
import pytest

from experiments.measures import attention_patterns as patterns
from experiments.measures.heads import (
    Ablation,
    Head,
    heads_of,
    without_heads,
)
from t2t_jax.io.errors import UserError
from tests.decoding.small_translator import translator

PAIRS = [("the cat sees the dog", "die Katze sieht den Hund"), ("a dog", "ein Hund")]


@pytest.fixture(scope="module")
def ablation():
    return Ablation(translator(), PAIRS, PAIRS)


# ------------------------------------------------------------------------ without heads


def with_parameters(parameters):
    full = translator()
    return type(full)(full.config, full.vocabulary, full.model, parameters)


def loss(parameters):
    """Nats per piece, of a translator made of these parameters."""
    scores = with_parameters(parameters).score(PAIRS)
    return -sum(s.log_prob for s in scores) / sum(len(s.pieces) for s in scores)


@pytest.mark.parametrize("attention", ["encoder", "decoder", "cross"])
def test_a_removed_head_is_one_that_reads_no_values(ablation, attention):
    parameters = translator().parameters
    stack, module = {"cross": ("decoder", "cross")}.get(
        attention, (attention, "attention")
    )
    removed = without_heads(parameters, [Head(attention, 0, 1)])
    # Another way to the same function: the head's values are 0, and so is what it adds.
    blind = jax.tree.map(np.array, parameters)
    blind[stack][0][module]["value"][:, 1] = 0.0
    losses = [loss(p) for p in (parameters, removed, blind)]
    np.testing.assert_allclose(losses[1], losses[2], rtol=1e-5)
    assert abs(losses[0] - losses[1]) > 1e-3
    assert ablation.loss([Head(attention, 0, 1)]) == pytest.approx(losses[1], rel=1e-5)


def test_removal_changes_nothing_else_and_not_the_original():
    parameters = translator().parameters
    expected = jax.tree.map(np.array, parameters)
    heads = [Head("encoder", 0, 0), Head("cross", 0, 1)]
    once = without_heads(parameters, heads)
    twice = without_heads(once, heads)
    jax.tree.map(np.testing.assert_array_equal, once, twice)
    jax.tree.map(np.testing.assert_array_equal, parameters, expected)
    encoder, decoder = expected["encoder"][0], expected["decoder"][0]
    encoder["attention"]["out"][0] = 0.0
    decoder["cross"]["out"][1] = 0.0
    jax.tree.map(np.testing.assert_array_equal, once, expected)


def test_without_all_heads_the_source_makes_no_difference(ablation):
    cut = with_parameters(without_heads(translator().parameters, ablation.heads))
    score_a, score_b = cut.score([("a dog", "ein Hund"), ("the cat", "ein Hund")])
    assert score_a.log_prob == pytest.approx(score_b.log_prob, rel=1e-6)


def test_the_parameters_of_other_models_have_no_heads():
    assert heads_of({"encoder": {0: {"lstm": np.zeros(3)}}, "embedding": {}}) == []
    with pytest.raises(UserError, match="it has 6"):
        without_heads(translator().parameters, [Head("encoder", 0, 2)])


def test_nothing_is_lost_without_a_head_that_does_nothing(ablation):
    parameters = without_heads(translator().parameters, [Head("cross", 0, 0)])
    idle = Ablation(with_parameters(parameters), PAIRS, PAIRS)
    lost = idle.lost([Head("cross", 0, 0)])
    assert (lost["bleu_lost"], lost["loss_lost"], lost["p_value"]) == (0, 0, 1)
    assert not lost["distinguishable"]
    assert not lost["loss_distinguishable"]
    # The other way round, all of the loss is that of the head.
    lost = ablation.lost([Head("cross", 0, 0)])
    assert lost["loss_lost"] == pytest.approx(
        idle.loss([]) - ablation.loss([]), rel=1e-4
    )
    # By hand: the standard error of a ratio of sums, of two lines.
    more_n = idle.loss_n - ablation.loss_n
    pieces_n = ablation.pieces_n
    residual = more_n[0] - lost["loss_lost"] * pieces_n[0]
    error = np.sqrt(2) * abs(residual) / pieces_n.sum()
    assert lost["loss_error"] == pytest.approx(error, rel=1e-3)


# ----------------------------------------------------------------------------- patterns

SOURCE = ("▁the", "▁cat", ",", "▁the", "▁do", "g", ".", "</s>")
TARGET = ("▁die", "▁Katze", ",", "▁der", "▁Hund", ".", "</s>")
READ = ("<s>", *TARGET[:-1])


def one_hot(columns, n):
    """Weights [1, 1, t, s] of a head whose query t attends to key `columns[t]`."""
    return np.eye(n)[list(columns)][None, None]


def described(sentence):
    averages = patterns.patterns([sentence])
    return {name: float(values[0, 0]) for name, values in averages.items()}


def test_uniform_attention_has_all_the_entropy():
    n = len(SOURCE)
    description = described(
        patterns.self_attention(SOURCE, np.full((1, 1, n, n), 1 / n), causal=False)
    )
    assert description["entropy"] == pytest.approx(np.log2(n))
    assert description["relative_entropy"] == pytest.approx(1)
    assert description["distance"] == pytest.approx(0)
    assert description["absolute_distance"] == pytest.approx((n * n - 1) / (3 * n))
    assert description["share.punctuation"] == pytest.approx((6 * 2 + 2 * 1) / n / n)
    causal = np.tril(np.ones((n, n)))
    causal = (causal / causal.sum(1, keepdims=True))[None, None]
    description = described(patterns.self_attention(SOURCE, causal, causal=True))
    assert description["relative_entropy"] == pytest.approx(1)
    assert description["entropy"] == pytest.approx(np.log2(np.arange(2, n + 1)).mean())


@pytest.mark.parametrize(
    ("kind", "causal", "columns"),
    [
        ("previous", False, [0, 0, 1, 2, 3, 4, 5, 6]),
        ("next", False, [1, 2, 3, 4, 5, 6, 7, 0]),
        ("start", True, [0] * 7),
        ("same piece", False, [3, 1, 2, 0, 4, 5, 6, 7]),
        ("punctuation", False, [6, 6, 6, 2, 2, 2, 2, 2]),
    ],
)
def test_planted_self_attention_is_recognized(kind, causal, columns):
    pieces = READ if kind == "start" else SOURCE
    sentence = patterns.self_attention(pieces, one_hot(columns, len(pieces)), causal)
    description = described(sentence)
    assert description[f"share_if_any.{kind}"] == pytest.approx(1)
    assert description["entropy"] == pytest.approx(0)
    if kind == "same piece":  # two queries of eight; the others attend to themselves
        assert description["share.same piece"] == pytest.approx(2 / 8)
    else:
        assert kind_of(description) == kind


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("aligned", [0, 1, 2, 3, 5, 6, 7]),
        ("aligned to read", [7, 0, 1, 2, 3, 4, 6]),
    ],
)
def test_planted_cross_attention_is_recognized(kind, columns):
    sentence = patterns.cross_attention(
        *(SOURCE, TARGET, one_hot(columns, 8)),
        words=([0, 1, 2, 3, 4, 4, 5, -1], [0, 1, 2, 3, 4, 5, -1]),
        links=[(n, n) for n in range(6)],
    )
    description = described(sentence)
    assert description[f"share_if_any.{kind}"] == pytest.approx(1)
    assert description["peak"] == pytest.approx(np.mean(columns) / 7)
    assert kind_of(description) == kind


def kind_of(description):
    shares = {
        name.removeprefix("share."): value
        for name, value in description.items()
        if name.startswith("share.")
    }
    return patterns.kind_of(shares, description["relative_entropy"])


def test_heads_without_a_large_share_are_broad_or_mixed():
    assert patterns.kind_of({"next": 0.29, "end": 0.1}, 0.8) == "broad"
    assert patterns.kind_of({"next": 0.29, "end": 0.1}, 0.7) == "mixed"
    assert patterns.kind_of({"next": 0.31, "end": 0.1}, 0.8) == "next"
