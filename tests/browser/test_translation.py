"""The translation's view and the page's frame, driven in a browser."""

import math

import pytest

from t2t_jax.tools.explain.explain import explain
from t2t_jax.tools.explain.explanation import to_payload
from t2t_jax.tools.pages.page import page
from tests.browser.looking import is_percent, is_shown, plain, reading_of
from tests.decoding.small_translator import translator

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def two_models(explained):
    """The payload of two models, of which the second has no attention."""
    lines = [sentence.source for sentence in explained.sentences]
    other = explain(translator(kind="bytenet"), lines, beam=2, alternatives=1)
    return to_payload(explained.beside(other))


def check_piece(view, reading, t):
    """The panel shows piece `t`: its figures and all its alternatives."""
    figures = view.locator(".figures dd").all_text_contents()
    assert is_percent(figures[0], math.exp(reading["log_probs"][t]))
    assert figures[1] == str(reading["rank"][t])
    assert is_shown(figures[2], reading["entropy"][t])
    rows = view.locator(".alternatives li")
    piece, expected = reading["pieces"][t], [*reading["alternatives"][t]]
    if piece not in [
        alternative for alternative, _, _ in expected
    ]:  # it is shown all the same
        expected.append((piece, reading["log_probs"][t], None))
    assert rows.count() == len(expected)
    pieces = [plain(p) for p in rows.locator(".piece-text").all_text_contents()]
    assert pieces == [piece for piece, _, _ in expected]
    for text, (_, log_prob, _) in zip(
        rows.locator(".share").all_text_contents(), expected, strict=True
    ):
        assert is_percent(text, math.exp(log_prob))


def test_every_piece_by_pointer_and_by_keyboard(open_page, payload):
    opened, reading = open_page(page(payload)), reading_of(payload)
    view = opened.view("translation")
    pieces = view.locator(".reading [role=option]")
    assert pieces.count() == len(reading["pieces"])
    last_piece = len(reading["pieces"]) - 1
    pieces.nth(0).click()
    pieces.nth(last_piece).hover()
    check_piece(view, reading, last_piece)
    opened.page.mouse.move(1, 1)
    check_piece(view, reading, 0)  # the selected one again
    line = view.locator(".reading")
    for key, t in (("End", last_piece), ("ArrowLeft", last_piece - 1), ("Home", 0)):
        line.press(key)
        check_piece(view, reading, t)
    for t in range(1, last_piece + 1):
        line.press("ArrowRight")
        check_piece(view, reading, t)
    rows = opened.rows(view.locator("details.numbers"))
    assert len(rows) == last_piece + 1
    for t, (piece, p, log_prob, rank, entropy, _) in enumerate(rows):
        assert piece == f"{t + 1} {reading['pieces'][t]}"
        assert is_percent(p, math.exp(reading["log_probs"][t]))
        assert is_shown(log_prob, reading["log_probs"][t])
        assert rank == str(reading["rank"][t])
        assert is_shown(entropy, reading["entropy"][t])
    named = line.get_attribute("aria-activedescendant")
    assert view.locator(f"#{named}").get_attribute("data-t") == str(last_piece)


def test_an_alternative_and_the_way_back(open_page, payload):
    opened, reading = open_page(page(payload)), reading_of(payload)
    view = opened.view("translation")
    assert reading["continuations"]
    for t, row in enumerate(reading["alternatives"]):
        view.locator(".reading [role=option]").nth(t).click()
        for n, (piece, _, index) in enumerate(row):
            if piece == reading["pieces"][t]:
                continue
            button = view.locator(".alternatives li").nth(n).locator("button")
            button.click()
            if index is None:
                assert "was not run from here" in view.locator(".beside").inner_text()
                continue
            expected = reading["continuations"][index]
            card = view.locator(".continuation")
            table = card.locator("tbody tr").all()
            for tr, result in zip(table, (reading, expected), strict=True):
                log_prob, score, _ = tr.locator("td").all_text_contents()
                assert is_shown(log_prob, result["log_prob"], 4)
                assert is_shown(score, result["score"], 4)
            assert opened.announced() == f"From there: {expected['text']}"
            card.get_by_role("button", name="Back").press("Enter")
            assert not view.locator(".continuation").count()
            assert button.evaluate("b => b === document.activeElement")


def test_sentences_and_readings_are_chosen_by_pointer_and_keys(open_page, payload):
    opened = open_page(page(payload))

    def check(sentence, reading):
        view = opened.view("translation")
        expected = reading_of(payload, sentence, 0, reading)
        score = view.locator(".score-line").inner_text()
        assert is_shown(score, expected["log_prob"], 4)
        source = payload.content["sentences"][sentence]["source"]
        assert opened.page.locator(".source-line").inner_text() == source
        count = opened.page.locator(".sentences .count").inner_text()
        assert count == f"Sentence {sentence + 1} of 3"

    check(0, 0)
    opened.page.locator(".sentences summary").click()
    opened.page.locator(".sentences li button").nth(2).click()
    check(2, 0)
    opened.page.locator(".readings button").nth(1).click()
    check(2, 1)
    for key, *place in (("[", 1, 1), ("r", 1, 0), ("]", 2, 0), ("]", 2, 0)):
        opened.page.keyboard.press(key)
        check(*place)
    # Selected from the start: the piece where the readings part.
    difference = reading_of(payload, 2)["difference"]
    view = opened.view("translation")
    selected = view.locator("[aria-selected=true]").get_attribute("data-t")
    assert selected == str(difference["position"])
    assert difference["rival"] in view.locator(".piece-head .warning").inner_text()


def test_two_models_stand_side_by_side(open_page, two_models):
    opened = open_page(page(two_models))
    for model in (0, 1):
        reading, view = (
            reading_of(two_models, model=model),
            opened.view("translation", model),
        )
        view.locator(".reading [role=option]").first.click()
        check_piece(view, reading, 0)
        score = view.locator(".score-line").inner_text()
        assert is_shown(score, reading["log_prob"], 4)
    # A selection is that of its own model.
    opened.view("translation", 1).locator(".reading [role=option]").nth(1).click()
    check_piece(opened.view("translation", 1), reading_of(two_models, model=1), 1)
    check_piece(opened.view("translation", 0), reading_of(two_models), 0)
    boxes = [opened.view("translation", m).bounding_box() for m in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    assert "Cross" in opened.view("attention", 0).inner_text()
    assert opened.view("attention", 1).locator("[data-missing]").inner_text()
    passport = opened.page.locator("#footer").text_content()
    assert "SHA-256 of the parameters" in passport


@pytest.mark.parametrize("width", [360, 800])
@pytest.mark.parametrize("models", [1, 2])
def test_nothing_is_wider_than_the_screen(open_page, request, width, models):
    payload = request.getfixturevalue("two_models" if models == 2 else "payload")
    opened = open_page(page(payload), width=width)
    for section in opened.page.locator("#main > section").all():
        for column in range(models):
            assert opened.view(section.get_attribute("id"), column).inner_text()
    assert opened.overflow() == 0
