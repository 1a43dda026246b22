"""An explanation says what the translator does, and its page holds the same numbers."""

import dataclasses
import json

import numpy as np
import pytest

from t2t_jax import UserError
from t2t_jax.tools.explain.explain import explain
from t2t_jax.tools.explain.explanation import Explanation, Missing, to_payload
from tests.decoding.small_translator import translator
from tests.viewing.pages import blobs_of

LINE, TARGET = "a dog </script><b>", "ein Hund"


@pytest.fixture(scope="module")
def explained():
    return explain(translator(), LINE, TARGET, beam=3, alternatives=2, name="a & b")


def test_the_translation_is_that_of_translate(explained):
    (expected,) = translator().translate([LINE], beam=3)
    reading, target = explained.readings
    assert reading.hypothesis == expected.best
    assert target.hypothesis.text == TARGET
    (score,) = translator().score([(LINE, TARGET)])
    np.testing.assert_allclose(target.hypothesis.score, score.score, rtol=1e-5)
    np.testing.assert_allclose(target.distribution.log_probs, score.log_probs, 1e-4)
    assert target.pieces == score.pieces
    (sentence,) = explained.sentences
    np.testing.assert_allclose(sentence.reference_score, score.score, rtol=1e-5)
    verdict = "search error" if score.score > expected.score else "model error"
    assert sentence.tree.reference.verdict == verdict
    # The readings differ where they say so.
    position, rival = reading.difference
    tokens, target_tokens = (r.hypothesis.tokens for r in explained.readings)
    assert tokens[:position] == target_tokens[:position]
    assert rival == target_tokens[position] != tokens[position]
    assert target.difference.rival == tokens[position]


def test_the_verdict_names_the_difference(explained):
    reading, target = explained.readings
    t = reading.difference.position
    attended = reading.maps.cross[reading.coverage.layer, :, t].mean(axis=0)
    token = explained.sentences[0].pieces[attended.argmax()]
    best = explained.models[0].piece_of[reading.distribution.top_ids[t, 0]]
    lines = explained.verdicts().splitlines()
    assert len(lines) == 7
    assert lines[:2] == [LINE, f"  a & b: {reading.hypothesis.text}"]
    assert explained.sentences[0].tree.reference.why in lines[3]
    for side in (reading, target):
        p = np.exp(side.distribution.log_probs[t])
        assert f"“{side.pieces[t]}” {p:.2f}, rank" in lines[4]
    p = np.exp(reading.distribution.top_log_probs[t, 0])
    assert f": “{best}” {p:.2f}" in lines[5]
    assert f": “{token}” {attended.max():.2f}, " in lines[6]
    alone = explain(translator(), LINE, beam=3, alternatives=0).verdicts()
    t = reading.distribution.log_probs.argmin()
    assert f"least probable: token {t + 1}; translation “{reading.pieces[t]}”" in alone
    assert "target" not in alone


def test_the_page_holds_the_arrays(explained):
    page = explained.html()
    blobs = blobs_of(page)
    content = json.loads(blobs["payload"])
    assert LINE not in page
    assert content["models"][0]["name"] == "a & b"
    (sentence,) = content["sentences"]
    assert sentence["source"] == LINE

    def array(entry_readingence, kind):
        raw = np.frombuffer(blobs[f"blob-{entry_readingence['blob']}"], kind)
        return raw.reshape(entry_readingence["shape"])

    (entry,) = sentence["of"]
    for reading, entry_reading in zip(
        explained.readings, entry["readings"], strict=True
    ):
        assert entry_reading["pieces"] == [*reading.pieces]
        log_probs = reading.distribution.log_probs
        np.testing.assert_allclose(entry_reading["log_probs"], log_probs, rtol=1e-4)
        for name in ("encoder", "decoder", "cross"):
            packed = entry_reading["attention"][name]["weights"]
            weights = array(packed, "u1") * packed["scale"]
            assert np.abs(weights - getattr(reading.maps, name)).max() < 0.51 / 255
        packed, expected = (
            entry_reading["attribution"]["source"],
            reading.attribution.said.source,
        )
        values = array(packed, "i1") * np.array(packed["scale"])[:, None]
        steps = np.abs(expected).max(1, keepdims=True) / 127
        assert (np.abs(values - expected) <= 0.51 * steps + 1e-6).all()


def test_the_tree_of_the_page_is_the_tree(explained):
    tree = explained.sentences[0].tree
    search = to_payload(explained).content["sentences"][0]["of"][0]["search"]
    nodes = search["nodes"]
    assert len(nodes) == len(tree.nodes)
    for node, tokens in zip(nodes, tree.nodes, strict=True):
        parent = node["parent"]
        assert (parent == -1) == (not tokens)
        if tokens:
            assert [*tree.nodes][parent] == tokens[:-1]
    text = [nodes[n]["piece"] for n in search["best"][1:]]
    assert text == [*explained.readings[0].pieces]
    assert [*tree.nodes][search["finished"][0]] == tree.finished[0]


def test_a_part_that_is_missing_has_its_reason_on_the_page(explained):
    model = explained.models[0]
    reading = dataclasses.replace(explained.readings[0], lens=Missing("no layers"))
    sentence = dataclasses.replace(model.sentences[0], readings=(reading,))
    changed = Explanation((dataclasses.replace(model, sentences=(sentence,)),))
    (entry,) = to_payload(changed).content["sentences"][0]["of"]
    assert entry["readings"][0]["lens"] == {"missing": "no layers"}


@pytest.mark.slow
def test_what_a_model_has_not_is_named():
    """A model without attention within the source."""
    explanation = explain(translator(kind="lstm"), "a dog", beam=1, alternatives=1)
    (reading,) = explanation.readings
    assert len(reading.maps.cross)
    assert isinstance(reading.rollout, Missing)
    content = to_payload(explanation).content
    attention = content["sentences"][0]["of"][0]["readings"][0]["attention"]
    assert "within the source" in attention["encoder"]["missing"]
    assert "weights" in attention["cross"]


def test_mistakes_are_named():
    two_groups = translator().with_options(beam=4, groups=2)
    for model, options, message in (
        (translator(), {"lines": ("a dog", " ")}, "line 2: it has no visible"),
        (translator(), {"lines": ("a", "b"), "target": "c"}, "2 lines and 1 targets"),
        (translator(kind="encoder_only"), {"lines": "a"}, "generates no text"),
        (two_groups, {"lines": "a"}, "groups=2.*explain"),
        (translator(), {"lines": "a", "no_repeat_ngram": 2}, "no_repeat_ngram=0"),
    ):
        with pytest.raises(UserError, match=message):
            explain(model, **options)
