"""Pages of real, if small, translators: a browser reads back what the arrays hold."""

import re

import numpy as np
import pytest

from t2t_jax.tools.explain.explain import explain
from tests.browser.looking import is_percent, is_shown, plain
from tests.decoding.small_translator import translator

pytestmark = pytest.mark.browser
LINE, TARGET = "a dog sees </script><b>", "ein Hund"
OTHERS = ["猫は犬を見る。", "يرى الكلب القطة", "a dog 😀 sleeps"]


@pytest.fixture(scope="module")
def explained(quick_compiler):
    return explain(translator(), [LINE, *OTHERS], [TARGET, None, None, None], beam=3)


@pytest.fixture
def opened(open_page, explained):
    return open_page(explained.html("<i>title"))


def test_the_translation_with_its_probabilities(opened, explained):
    view = opened.view("translation")
    for index, reading in enumerate(explained.readings):
        if index:
            opened.page.locator(".readings button").nth(index).click()
            view = opened.view("translation")
        score = view.locator(".score-line").inner_text()
        assert is_shown(score, reading.hypothesis.log_prob, 4)
        options = view.locator(".reading [role=option]").all()
        assert len(options) == len(reading.pieces)
        of = reading.distribution
        for t, option in enumerate(options):
            p, rank, entropy = re.search(
                r", (\S+), rank (\d+), entropy (\S+) bits$",
                option.get_attribute("aria-label"),
            ).groups()
            assert is_percent(p, np.exp(of.log_probs[t]))
            assert rank == str(of.rank[t])
            assert is_shown(entropy, of.entropy[t], 2)
    assert opened.page.title() == "<i>title"


def test_the_tree_ends_in_the_translation(opened, explained):
    view = opened.view("beam")
    view.locator("[data-part=tree]").press("End")
    detail = view.locator("[data-part=detail]")
    best = explained.readings[0].hypothesis
    assert plain(detail.locator("[data-field=text]").inner_text()) == best.text.strip()
    score = detail.locator("[data-field=score]").inner_text()
    assert is_shown(score, best.score, 4)
    rows = opened.rows(view.locator("details.numbers"))
    assert len(rows) == len(explained.sentences[0].tree.nodes)
    reference = view.locator("[data-part=reference]")
    shown = reference.locator("[data-field=score]").inner_text()
    assert is_shown(shown, explained.sentences[0].reference_score, 4)


def test_the_lens_ends_in_the_distribution(opened, explained):
    reading = explained.readings[0]
    view = opened.view("layers")
    for t, log_prob in enumerate(reading.distribution.log_probs):
        view.locator(f"td[data-layer='0'][data-position='{t}']").click()
        chart = view.locator(".lens-chart").get_attribute("aria-label")
        p, rank = re.fullmatch(r"layer 1 (\S+), rank (\d+)", chart).groups()
        assert is_percent(p, np.exp(log_prob))
        assert rank == str(reading.distribution.rank[t])


def test_sentences_of_any_script(opened, explained):
    for index, sentence in enumerate(explained.sentences):
        opened.page.locator(".sentences summary").click()
        opened.page.locator(".sentences li button").nth(index).click()
        assert opened.page.locator(".source-line").inner_text() == sentence.source
        source = opened.view("translation").locator("p.pieces").first
        shown = "".join(source.locator(".piece:not(.sign)").all_text_contents())
        assert plain(shown).replace(" ", "") == sentence.source.replace(" ", "")
        for section in opened.page.locator("#main > section").all():
            assert opened.view(section.get_attribute("id")).inner_text()


def test_a_model_without_attention_beside_one_with(open_page, quick_compiler):
    both = explain(translator(), LINE, beam=2, alternatives=1, name="tiny")
    other = explain(
        translator(kind="bytenet"), LINE, beam=2, alternatives=1, name="net"
    )
    opened = open_page(both.beside(other).html())
    assert "Cross" in opened.view("attention", 0).inner_text()
    missing = opened.view("attention", 1).locator("[data-missing]")
    assert missing.inner_text()
    for model, of in enumerate((both, other)):
        score = opened.view("translation", model).locator(".score-line").inner_text()
        assert is_shown(score, of.readings[0].hypothesis.log_prob, 4)


def test_a_notebook_shows_the_page_in_a_frame(open_page, explained):
    opened = open_page(
        f"<main id=main><section>{explained._repr_html_()}</section></main>"
    )
    frame = opened.page.frame_locator("iframe")
    frame.locator(".reading [role=option]").first.wait_for()
    score = frame.locator(".score-line").inner_text()
    assert is_shown(score, explained.readings[0].hypothesis.log_prob, 4)
