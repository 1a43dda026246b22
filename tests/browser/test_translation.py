"""The translation's view and the page's frame, driven in a browser."""

import math

import pytest

from t2t_jax.tools.pages.page import page
from tests.browser.looking import is_percent, is_shown, plain, reading_of
from tests.viewing.made_up import made_up_payload

pytestmark = pytest.mark.browser


def check_piece(view, reading, t):
    """The panel shows piece `t`: its figures and all its alternatives."""
    figures = view.locator(".figures dd").all_text_contents()
    assert is_percent(figures[0], math.exp(reading["log_probs"][t]))
    assert figures[1] == str(reading["rank"][t])
    assert is_shown(figures[2], reading["entropy"][t])
    rows = view.locator(".alternatives li")
    wanted = reading["alternatives"][t]
    assert rows.count() == len(wanted)
    pieces = [plain(p) for p in rows.locator(".piece-text").all_text_contents()]
    assert pieces == [piece for piece, _, _ in wanted]
    for text, (_, log_prob, _) in zip(
        rows.locator(".share").all_text_contents(), wanted, strict=True
    ):
        assert is_percent(text, math.exp(log_prob))


def test_every_piece_by_pointer_and_by_keyboard(open_page):
    payload = made_up_payload()
    opened, reading = open_page(page(payload)), reading_of(payload)
    view = opened.view("translation")
    pieces = view.locator(".reading [role=option]")
    assert pieces.count() == len(reading["pieces"])
    last = len(reading["pieces"]) - 1
    pieces.nth(3).hover()
    check_piece(view, reading, 3)
    opened.page.mouse.move(1, 1)
    check_piece(view, reading, 0)  # the selected one again
    pieces.nth(5).click()
    assert pieces.nth(5).get_attribute("aria-selected") == "true"
    check_piece(view, reading, 5)
    line = view.locator(".reading")
    for key, t in (("End", last), ("ArrowLeft", last - 1), ("Home", 0)):
        line.press(key)
        check_piece(view, reading, t)
    for t in range(1, last + 1):
        line.press("ArrowRight")
        check_piece(view, reading, t)
    rows = opened.rows(view.locator("details.numbers"))
    assert len(rows) == last + 1
    for t, (piece, p, log_prob, rank, entropy, _) in enumerate(rows):
        assert piece == f"{t + 1} {reading['pieces'][t]}"
        assert is_percent(p, math.exp(reading["log_probs"][t]))
        assert is_shown(log_prob, reading["log_probs"][t])
        assert rank == str(reading["rank"][t])
        assert is_shown(entropy, reading["entropy"][t])
    named = line.get_attribute("aria-activedescendant")
    assert view.locator(f"#{named}").get_attribute("data-t") == str(last)


def test_an_alternative_and_the_way_back(open_page):
    payload = made_up_payload()
    opened, reading = open_page(page(payload)), reading_of(payload)
    view = opened.view("translation")
    for t, row in enumerate(reading["alternatives"]):
        view.locator(".reading [role=option]").nth(t).click()
        for piece, _, index in row:
            if piece == reading["pieces"][t]:
                continue
            button = view.locator("button.alternative").filter(has_text=piece)
            button.first.click()
            if index is None:
                assert "was not run from here" in view.locator(".beside").inner_text()
                continue
            wanted = reading["continuations"][index]
            card = view.locator(".continuation")
            assert card.locator("mark").count() == 1
            table = card.locator("tbody tr").all()
            for tr, of in zip(table, (reading, wanted), strict=True):
                log_prob, score, count = tr.locator("td").all_text_contents()
                assert is_shown(log_prob, of["log_prob"], 4)
                assert is_shown(score, of["score"], 4)
                assert count == str(len(of["pieces"]))
            gap = card.locator("p").nth(1).inner_text()
            better = wanted["score"] > reading["score"]
            assert ("better" if better else "worse") in gap
            assert opened.announced() == f"From there: {wanted['text']}"
            card.get_by_role("button", name="Back").press("Enter")
            assert not view.locator(".continuation").count()
            assert button.first.evaluate("b => b === document.activeElement")


def test_sentences_and_readings_are_chosen_by_pointer_and_keys(open_page):
    payload = made_up_payload(sentences=3, readings=2)
    opened = open_page(page(payload))

    def check(sentence, reading):
        view = opened.view("translation")
        wanted = reading_of(payload, sentence, 0, reading)
        score = view.locator(".score-line").inner_text()
        assert is_shown(score, wanted["log_prob"], 4)
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
    opened.page.keyboard.press("[")
    check(1, 1)
    opened.page.keyboard.press("r")
    check(1, 0)
    opened.page.keyboard.press("]")
    opened.page.keyboard.press("]")  # there is none after the last
    check(2, 0)
    # Selected from the start: the piece where the readings part.
    at = reading_of(payload, 2)["difference"]["position"]
    view = opened.view("translation")
    assert view.locator("[aria-selected=true]").get_attribute("data-t") == str(at)
    assert "▁anders" in view.locator(".piece-head .warning").inner_text()


def test_two_models_stand_side_by_side(open_page):
    payload = made_up_payload(models=2)
    opened = open_page(page(payload))
    for model in (0, 1):
        view = opened.view("translation", model)
        check_piece(view, reading_of(payload, model=model), 0)
        assert is_shown(
            view.locator(".score-line").inner_text(),
            reading_of(payload, model=model)["log_prob"],
            4,
        )
    # A selection is that of its own model.
    opened.view("translation", 1).locator(".reading [role=option]").nth(2).click()
    check_piece(opened.view("translation", 1), reading_of(payload, model=1), 2)
    check_piece(opened.view("translation", 0), reading_of(payload), 0)
    boxes = [opened.view("translation", m).bounding_box() for m in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    for section in opened.page.locator("#main > section").all():
        name = section.get_attribute("id")
        assert opened.view(name, 1).inner_text()
    passport = opened.page.locator("#footer").text_content()
    assert "average of steps 500, 525" in passport


@pytest.mark.parametrize("width", [360, 800])
@pytest.mark.parametrize(
    "options",
    [{}, {"models": 2, "readings": 2}, {"target_pieces": 60}, {"missing": True}],
    ids=str,
)
def test_nothing_is_wider_than_the_screen(open_page, width, options):
    opened = open_page(page(made_up_payload(**options)), width=width)
    for section in opened.page.locator("#main > section").all():
        for column in range(options.get("models", 1)):
            assert opened.view(section.get_attribute("id"), column).inner_text()
    assert opened.overflow() == 0
    for name in ("attention", "layers", "attribution") if "missing" in options else ():
        assert (
            "An LSTM has no attention of this kind." in opened.view(name).inner_text()
        )
