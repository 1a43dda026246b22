"""Text of any script, and text that tries to be something else."""

import pytest

from t2t_jax.tools.pages.page import page
from tests.browser.looking import HOSTILE, plain, reading_of
from tests.viewing.made_up import made_up_payload

pytestmark = pytest.mark.browser


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
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [f"{n}{HOSTILE}" for n, _ in enumerate(value)]
    return hostile(value)  # an array named "source"


def test_text_is_never_read_as_html(open_page):
    payload = made_up_payload(sentences=2, readings=2)
    payload.content = hostile(payload.content)
    payload.content["title"] = HOSTILE
    payload.content["models"][0]["name"] = HOSTILE
    payload.content["models"][0]["passport"] = [[HOSTILE, HOSTILE]]
    opened = open_page(page(payload))
    for view in every_view(opened):
        assert "onerror" in view.inner_text()
    opened.page.locator(".sentences summary").click()
    opened.page.locator(".sentences li button").nth(1).click()
    opened.view("translation").locator("button.alternative").first.click()
    assert not opened.page.locator("img:not(.cells), [onerror]").count()
    assert opened.page.title() != "broken"
    assert opened.page.locator("h1").inner_text().startswith("</script><img")


@pytest.mark.parametrize("script", ["japanese", "arabic", "emoji"])
def test_pieces_of_other_scripts(open_page, script):
    payload = made_up_payload(script=script, target_pieces=6)
    opened = open_page(page(payload))
    for view in every_view(opened):
        assert view.inner_text()
    line = opened.view("translation").locator(".reading")
    # Signs are what the sentence does not contain: </s>, a lone space, parts of bytes.
    shown = "".join(line.locator("[data-t]:not(.sign)").all_text_contents())
    assert plain(shown) == reading_of(payload)["text"].replace(" ", "")
    direction = line.evaluate("line => getComputedStyle(line).direction")
    assert direction == ("rtl" if script == "arabic" else "ltr")
    # The keys move as the text runs on the screen.
    line.press("Home")
    line.press("ArrowLeft" if script == "arabic" else "ArrowRight")
    chosen = line.locator("[aria-selected=true]")
    assert chosen.get_attribute("data-t") == "1"
    boxes = [line.locator("[data-t]").nth(t).bounding_box()["x"] for t in (0, 1)]
    assert (boxes[0] > boxes[1]) == (script == "arabic")
