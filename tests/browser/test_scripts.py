"""Text of any script, and text that tries to be something else."""

import copy

import pytest

from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.tools.explain.explain import explain
from t2t_jax.tools.explain.explanation import to_payload
from t2t_jax.tools.pages.page import page
from tests.browser.looking import HOSTILE, is_shown, plain, reading_of
from tests.decoding.small_translator import translator

pytestmark = pytest.mark.browser
# Right to left, without spaces, and bytes of an emoji, which the vocabulary lacks.
SCRIPTS = ["يرى الكلب القطة", "猫は犬を見る。", "a dog 😀 sleeps"]


def every_view(opened):
    for section in opened.page.locator("#main > section").all():
        view = opened.view(section.get_attribute("id"))
        for details in view.locator("details.numbers").all():
            opened.rows(details)
        yield view


def hostile(value):
    """A document in which every text that a user wrote tries to be an element."""
    written = {"source", "text", "pieces", "word_texts", "source_word_texts", "piece"}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _replaced(item) if name in written else hostile(item)
        for name, item in value.items()
    }


def _replaced(value):
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return [f"{n}{HOSTILE}" for n, _ in enumerate(value)]
    return hostile(value)  # an array named "source"


def test_text_is_never_read_as_html(open_page, payload):
    changed = copy.copy(payload)
    changed.content = hostile(payload.content)
    changed.content["title"] = HOSTILE
    changed.content["models"][0] |= {"name": HOSTILE, "passport": [[HOSTILE, HOSTILE]]}
    opened = open_page(page(changed))
    for view in every_view(opened):
        assert "onerror" in view.inner_text()
    opened.page.locator(".sentences summary").click()
    opened.page.locator(".sentences li button").nth(1).click()
    opened.view("translation").locator("button.alternative").first.click()
    assert not opened.page.locator("img:not(.cells), [onerror]").count()
    assert opened.page.title() != "broken"
    assert opened.page.locator("h1").inner_text().startswith("</script><img")


def test_pieces_of_other_scripts(open_page):
    small = translator(pieces=310)
    vocabulary = Vocabulary(train_tokenizer([*SCRIPTS[:2], "a dog"] * 20, 310))
    small = Translator(small.config, vocabulary, small.model, small.parameters)
    explanation = explain(small, SCRIPTS, SCRIPTS, beam=1, alternatives=0, warn=False)
    payload = to_payload(explanation)
    opened = open_page(page(payload))
    for index, text in enumerate(SCRIPTS):
        opened.page.locator(".sentences summary").click()
        opened.page.locator(".sentences li button").nth(index).click()
        opened.page.locator(".readings button").nth(1).click()
        for view in every_view(opened):
            assert view.inner_text()
        line = opened.view("translation").locator(".reading")
        # Signs are what the text does not contain: </s>, a lone space, parts of bytes.
        spelled = "".join(line.locator("[data-t]:not(.sign)").all_text_contents())
        assert plain(spelled) == reading_of(payload, index, 0, 1)["text"].replace(
            " ", ""
        )
        assert opened.page.locator(".source-line").inner_text() == text
        rightward = index > 0
        direction = line.evaluate("line => getComputedStyle(line).direction")
        assert direction == ("ltr" if rightward else "rtl")
        # The keys move as the text runs on the screen.
        line.press("Home")
        line.press("ArrowRight" if rightward else "ArrowLeft")
        selected = line.locator("[aria-selected=true]")
        assert selected.get_attribute("data-t") == "1"
        boxes = [line.locator("[data-t]").nth(t).bounding_box()["x"] for t in (0, 1)]
        assert (boxes[0] < boxes[1]) == rightward


def test_a_notebook_shows_the_page_in_a_frame(open_page, explained):
    frame_html = explained._repr_html_()
    opened = open_page(f"<main id=main><section>{frame_html}</section></main>")
    frame = opened.page.frame_locator("iframe")
    frame.locator(".reading [role=option]").first.wait_for()
    score = frame.locator(".score-line").inner_text()
    assert is_shown(score, explained.readings[0].hypothesis.log_prob, 4)
