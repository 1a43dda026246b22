"""An explanation says what the translator does, and its page holds the same numbers."""

import base64
import dataclasses
import functools
import gzip
import json
import re

import numpy as np
import pytest

from t2t_jax import UserError
from t2t_jax.decoding.translator import Translator
from t2t_jax.tools.explain import explain as explaining
from t2t_jax.tools.explain.explain import explain
from t2t_jax.tools.explain.explanation import Missing, to_payload
from tests.decoding.small_translator import translator

LINE, TARGET = "a dog </script><b>", "ein Hund"


@pytest.fixture(scope="module")
def explained(quick_compiler):
    return explain(translator(), LINE, TARGET, beam=3, alternatives=2, name="a & b")


def test_the_translation_is_that_of_translate(explained, quick_compiler):
    (wanted,) = translator().translate([LINE], beam=3)
    found, target = explained.readings
    assert found.hypothesis == wanted.best
    assert target.hypothesis.text == TARGET
    (score,) = translator().score([(LINE, TARGET)])
    np.testing.assert_allclose(target.hypothesis.log_prob, score.log_prob, rtol=1e-5)
    np.testing.assert_allclose(target.hypothesis.score, score.score, rtol=1e-5)
    np.testing.assert_allclose(target.distribution.log_probs, score.log_probs, 1e-4)
    assert target.pieces == score.pieces
    (sentence,) = explained.sentences
    np.testing.assert_allclose(sentence.reference_score, score.score, rtol=1e-5)
    verdict = "search error" if score.score > wanted.score else "model error"
    assert sentence.tree.reference.verdict == verdict
    # The readings differ where they say so.
    position, rival = found.difference
    ours, theirs = (r.hypothesis.tokens for r in explained.readings)
    assert ours[:position] == theirs[:position]
    assert rival == theirs[position] != ours[position]
    assert target.difference.rival == ours[position]
    row = found.attribution.said.positions.tolist().index(position)
    assert found.attribution.rivals[row] == rival


def test_the_parts_describe_the_same_pieces(explained):
    for reading in explained.readings:
        t, s = len(reading.pieces), len(explained.sentences[0].pieces)
        assert reading.distribution.top_ids.shape == (t, 10)
        assert reading.maps.cross.shape[2:] == reading.rollout.cross.shape == (t, s)
        last = np.log(reading.lens.probs[-1])
        np.testing.assert_allclose(last, reading.distribution.log_probs, rtol=1e-3)
        said = reading.attribution.said
        assert said.source.shape == (len(said.positions), s)
        assert len(reading.words.of_piece) == t
        assert len(reading.continuations) <= 2


def unpacked(page, name):
    """What a browser reads out of an element of the page."""
    packed = re.search(rf'id="{name}">([^<]*)<', page)[1]
    return gzip.decompress(base64.b64decode(packed))


def test_the_page_holds_the_arrays(explained):
    page = explained.html()
    content = json.loads(unpacked(page, "payload"))
    assert LINE not in page
    assert content["models"][0]["name"] == "a & b"
    (sentence,) = content["sentences"]
    assert sentence["source"] == LINE

    def array(shown, kind):
        raw = np.frombuffer(unpacked(page, f"blob-{shown['blob']}"), kind)
        return raw.reshape(shown["shape"])

    (entry,) = sentence["of"]
    for reading, shown in zip(explained.readings, entry["readings"], strict=True):
        assert shown["pieces"] == [*reading.pieces]
        log_probs = reading.distribution.log_probs
        np.testing.assert_allclose(shown["log_probs"], log_probs, rtol=1e-4)
        for name in ("encoder", "decoder", "cross"):
            packed = shown["attention"][name]["weights"]
            weights = array(packed, "u1") * packed["scale"]
            assert np.abs(weights - getattr(reading.maps, name)).max() < 0.51 / 255
        packed, wanted = shown["attribution"]["source"], reading.attribution.said.source
        values = array(packed, "i1") * np.array(packed["scale"])[:, None]
        steps = np.abs(wanted).max(1, keepdims=True) / 127
        assert (np.abs(values - wanted) <= 0.51 * steps + 1e-6).all()


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
    assert all(nodes[n]["row"] is not None for n in search["reference"]["nodes"])


def test_saving_keeps_an_earlier_page(explained, tmp_path):
    place = tmp_path / "page.html"
    place.write_text("earlier")
    explained.save(place)
    assert place.read_text().startswith("<!doctype html>")
    assert (tmp_path / "page.1.html").read_text() == "earlier"
    model = dataclasses.replace(explained.models[0], name='"big" <v2>')
    frame = dataclasses.replace(explained, models=(model,))._repr_html_()
    assert "<iframe srcdoc=" in frame
    assert 'title="Explanation(&quot;big&quot; &lt;v2&gt;, 1 sentence)"' in frame


def test_two_models_explain_the_same_sentences(explained):
    both = explained.beside(explained)
    assert len(both.models) == 2
    assert len(to_payload(both).content["sentences"][0]["of"]) == 2
    with pytest.raises(UserError, match="got 4 models"):
        both.beside(both)
    model = dataclasses.replace(explained.models[0], sentences=())
    with pytest.raises(UserError, match="different sentences"):
        explained.beside(dataclasses.replace(explained, models=(model,)))


def attention_shown(explanation):
    content = to_payload(explanation).content
    return content["sentences"][0]["of"][0]["readings"][0]["attention"]


def test_what_a_model_has_not_is_named(quick_compiler):
    """An ensemble, and models without attention to a part, or without a source."""
    pair = Translator.ensemble([translator(), translator(2)])
    (reading,) = explain(pair, "a dog", beam=1, alternatives=0).readings
    assert isinstance(reading.maps, Missing)
    assert "ensemble of 2" in reading.lens.why
    explanation = explain(translator(kind="lstm"), "a dog", beam=1, alternatives=1)
    (reading,) = explanation.readings
    assert len(reading.maps.cross)
    assert isinstance(reading.rollout, Missing)
    shown = attention_shown(explanation)
    assert "within the source" in shown["encoder"]["missing"]
    assert "weights" in shown["cross"]


def test_a_language_model_shows_the_attention_that_it_has(quick_compiler):
    model = translator(kind="decoder_only")
    explanation = explain(model, "the cat", beam=1, warn=False, alternatives=0)
    (reading,) = explanation.readings
    (wanted,) = model.translate(["the cat"], beam=1, warn=False)
    assert reading.hypothesis == wanted.best
    t = len(reading.pieces)
    assert reading.maps.decoder.shape[2:] == (t, t)
    assert isinstance(reading.coverage, Missing)
    assert isinstance(reading.rollout, Missing)
    assert not reading.attribution.said.source.any()
    assert reading.attribution.said.target.any()
    shown = attention_shown(explanation)
    assert "This model has no" in shown["cross"]["missing"]
    assert "weights" in shown["decoder"]


@pytest.mark.parametrize("kind", ["encoder_only", "classifier"])
def test_a_model_that_generates_no_text_is_refused(kind):
    model = translator(kind=kind)
    for search in (functools.partial(explain, model), model.translate):
        with pytest.raises(UserError, match=f"kind='{kind}' generates no text"):
            search(["a dog"])


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ("", {}, "line 1: it has no visible"),
        (("a dog", " "), {}, "line 2: it has no visible"),
        ((), {}, "at least one sentence"),
        (("a", "b"), {"target": "c"}, "2 lines and 1 targets"),
        (5, {}, "lines=5; want a sentence"),
        ("a", {"target": 5}, "target=5; want a sentence"),
        ("a", {"alternatives": -1}, "alternatives=-1"),
    ],
)
def test_mistakes_are_named(lines, options, message):
    with pytest.raises(UserError, match=message):
        explain(translator(), lines, **options)


def test_a_target_without_text_is_none():
    lines = ["a", "b", "c", "d"]
    found = explaining._lines_and_targets(lines, ["ein", "", " \t", None])
    assert found == (lines, ["ein", None, None, None])
