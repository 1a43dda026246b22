"""The page of a translation server: one file, and what a reader does in a browser."""

import asyncio
import dataclasses
import json
import os
import time

import pytest

from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.io.errors import UserError
from t2t_jax.tools.serve.engine import Limits, OverloadedError
from t2t_jax.tools.serve.page import page
from t2t_jax.tools.serve.settings import read_keys
from t2t_jax.tools.serve.turns import LateError
from tests.browser.looking import HOSTILE, Opened, launched
from tests.serve.fake_engine import FakeEngine
from tests.viewing.pages import blobs_of

LARGEST = 40_000  # bytes


def test_the_page_is_one_small_file():
    html = page().decode()
    parts = blobs_of(html)
    assert parts.keys() == {"packed-style", "packed-program", "payload"}
    for part in (html, *(data.decode() for data in parts.values())):
        for word in ("http:", "https:", "@import", "url(", "src=", "innerHTML"):
            assert word not in part
    assert "default-src 'none'" in html
    assert "connect-src 'self'" in html
    assert "{{" not in html
    assert len(html) <= LARGEST
    assert page() is page()


@pytest.fixture(scope="module")
def chromium():
    yield from launched()


WORDS = {"the": "der", "dog": "Hund", "sleeps": "schläft"}
OTHERS = ("Kater", "Wolf")  # the second and third hypotheses' word for "dog"


class Dictionary(FakeEngine):
    """Translates word by word; a prefix takes the place of the first words.

    Attributes:
      delays: seconds that a request waits, by its first line.
      errors: what the next requests raise.
      failing: a text; requests with a line that contains it fail.
    """

    limits = Limits(beams=(3,))

    def __init__(self):
        super().__init__("en-de", "de-en", "en-fr")
        self.delays, self.errors, self.failing = {}, [], None

    async def translate(self, direction, lines, requests, **call):
        if self.failing and any(self.failing in line for line in lines):
            raise RuntimeError
        if self.errors:
            raise self.errors.pop(0)
        await asyncio.sleep(self.delays.get(lines[0], 0))
        return await super().translate(direction, lines, requests, **call)

    def _translation(self, direction, line, request):
        if line.startswith("bad"):
            return UserError(f"no translation of {line!r}")
        hypotheses = []
        for n in range(request.nbest):
            words = [WORDS.get(word, word) for word in line.split(" ")]
            if n or "Hund" in request.must_not:
                substitute = OTHERS[max(0, n - 1)]
                words = [substitute if word == "Hund" else word for word in words]
            begun = (request.prefix or "").split()
            words[: len(begun)] = begun
            tokens, score = tuple(range(len(words) + 1)), -0.1 - n
            log_prob = score * len(words)
            hypotheses.append(
                Hypothesis(" ".join(words), score, log_prob, True, tokens)
            )
        return Translation(line, tuple(hypotheses))


@pytest.fixture
def server(running, monkeypatch):
    if "FIREFOX" in os.environ:  # Playwright needs `eval`, which the policy forbids
        html = page().replace(b"script-src ", b"script-src 'unsafe-eval' ", 1)
        monkeypatch.setattr("t2t_jax.tools.serve.page.page", lambda: html)
    return running(Dictionary())


@pytest.fixture
def open_page(chromium, server):
    """Opens the server's page; afterwards nothing may have failed unexpectedly.

    `open_page(width=1200, dark=False)` returns an `Opened`.
    """
    opened = []

    def open_(width=1200, dark=False):
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        opened.append(Opened(context, f"{server.url}/"))
        return opened[-1]

    yield open_
    for opened_page in opened:
        # Chromium reports the statuses that a test asked for.
        statuses = "responded with a status"
        problems = [text for text in opened_page.problems if statuses not in text]
        opened_page.close()
        assert not problems


def box(opened):
    return opened.page.get_by_label("Text to translate")


def words(opened, line=0):
    return opened.page.locator(".target-line").nth(line).locator("button.token")


def wait_for(opened, text, line=0):
    """Waits until a line's translation is a text."""
    opened.page.wait_for_function(
        """([line, text]) => {
          const element = document.querySelectorAll(".target-line")[line];
          const words = [...(element?.querySelectorAll("button.token") ?? [])];
          const shown = words.map((word) => word.textContent).join(" ");
          return shown === text && !element.querySelector("[aria-busy]");
        }""",
        arg=[line, text],
    )


def bodies_of(server, path="/v1/translate"):
    return [*map(json.loads, server.bodies[path])]


def lines_of(server, path="/v1/translate"):
    return [body["lines"] for body in bodies_of(server, path)]


def set_limits(server, **limits):
    service = server.service
    service.settings = dataclasses.replace(service.settings, **limits)


browser = pytest.mark.browser


@browser
def test_typing_asks_once_after_a_pause_and_only_for_changed_lines(open_page, server):
    opened = open_page()
    box(opened).press_sequentially("the dog", delay=20)
    wait_for(opened, "der Hund")
    assert lines_of(server) == [["the dog"]]
    box(opened).press_sequentially("\n\nthe cat\nthe dog", delay=5)
    wait_for(opened, "der cat", 2)
    wait_for(opened, "der Hund", 3)
    assert lines_of(server) == [["the dog"], ["the cat"]]
    assert bodies_of(server)[-1] == {
        "direction": "en-de",
        "lines": ["the cat"],
        "prefix": [""],
        "beam": 3,
        "nbest": 3,
        "details": True,
    }
    # The line at the cursor has its hypotheses below.
    rows = opened.page.locator("#hypotheses tbody tr")
    assert [row.split("\t")[:2] for row in rows.all_inner_texts()] == [
        ["der Hund", "−0.100"],
        ["der Kater", "−1.10"],
        ["der Wolf", "−2.10"],
    ]
    assert opened.announced() == "der Hund"
    box(opened).press("ArrowUp")
    rows.first.get_by_text("der cat").wait_for()


@browser
def test_an_older_answer_is_cancelled_and_never_shown(open_page, server):
    opened = open_page()
    cancelled = []
    opened.page.on("requestfailed", lambda r: cancelled.append(r.url))
    server.engine.delays["the"] = 1.2
    box(opened).press_sequentially("the")
    while not bodies_of(server):
        opened.page.wait_for_timeout(20)
    box(opened).press_sequentially(" dog")
    wait_for(opened, "der Hund")
    assert len(cancelled) == 1  # of Firefox, Playwright does not know the bodies
    opened.page.wait_for_timeout(1500)
    wait_for(opened, "der Hund")
    assert lines_of(server) == [["the"], ["the dog"]]
    # What is still in the text is not asked for again.
    server.engine.delays["sleeps"] = 1
    box(opened).fill("sleeps")
    while len(bodies_of(server)) < 3:
        opened.page.wait_for_timeout(20)
    box(opened).fill("the cat\nsleeps")
    wait_for(opened, "der cat")
    wait_for(opened, "schläft", 1)
    assert lines_of(server)[2:] == [["sleeps"], ["the cat"]]
    assert len(cancelled) == 1


@browser
def test_a_word_is_replaced_and_the_rest_follows(open_page, server):
    opened = open_page()
    box(opened).fill("the dog sleeps")
    wait_for(opened, "der Hund schläft")
    words(opened).nth(1).click()
    choices = opened.page.get_by_role("group", name="Other words for Hund")
    choices.locator(".choice-word").first.wait_for()
    search = bodies_of(server)[-1]
    assert search["prefix"] == "der"
    assert search["nbest"] == search["beam"] == 3
    assert opened.page.locator("mark").all_text_contents() == ["dog"]
    assert search["lines"] == ["the dog sleeps"] * 2
    assert search["must_not"] == [[], ["Hund"]]
    results = choices.locator(".choice-word strong").all_inner_texts()
    assert results == ["Kater", "Wolf"]
    choices.locator(".choice-word").nth(1).click()
    wait_for(opened, "der Wolf schläft")
    assert bodies_of(server)[-1]["prefix"] == ["der Wolf"]
    assert words(opened).nth(1).evaluate("word => word === document.activeElement")
    assert opened.page.locator(".fixed").all_inner_texts() == ["der", "Wolf"]
    # A typed word; then another line does not disturb what was chosen.
    words(opened).nth(2).click()
    opened.page.get_by_label("Another word").fill("rennt")
    opened.page.get_by_label("Another word").press("Enter")
    wait_for(opened, "der Wolf rennt")
    assert bodies_of(server)[-1]["prefix"] == ["der Wolf rennt"]
    box(opened).fill("the\nthe dog sleeps")
    wait_for(opened, "der Wolf rennt", 1)
    wait_for(opened, "der")
    assert lines_of(server)[-1] == ["the"]
    opened.page.get_by_role("button", name="Undo choices").click()
    wait_for(opened, "der Hund schläft", 1)
    assert lines_of(server)[-1] == ["the"]  # it was known


@browser
def test_the_keyboard_is_enough(open_page, server):
    opened = open_page()
    keys = opened.page.keyboard
    keys.type("the dog")  # the box has the focus
    wait_for(opened, "der Hund")
    keys.press("Tab")
    focused = opened.page.locator(":focus")
    assert focused.inner_text() == "der"
    keys.press("ArrowRight")
    name = focused.get_attribute("aria-label")
    assert name == "Hund, probability 61%, from dog"
    assert focused.get_attribute("data-band") == "1"
    # The source words that it is linked to are marked.
    assert opened.page.locator("mark").all_text_contents() == ["dog"]
    keys.press("Enter")
    opened.page.locator(".choice-word:focus").wait_for()
    assert focused.inner_text().startswith("Kater")
    keys.press("Escape")
    assert focused.inner_text() == "Hund"
    assert not opened.page.locator(".choices").count()
    keys.press("Enter")
    opened.page.locator(".choice-word:focus").wait_for()
    keys.press("ArrowDown")
    keys.press("Enter")
    wait_for(opened, "der Wolf")
    assert focused.inner_text() == "Wolf"


@browser
def test_the_direction_is_chosen_and_swapped(open_page, server):
    opened = open_page()
    select = opened.page.get_by_role("combobox", name="Languages")
    select.wait_for()
    assert select.locator("option").all_inner_texts() == [
        "English → German",
        "German → English",
        "English → French",
    ]
    box(opened).fill("the dog")
    wait_for(opened, "der Hund")
    opened.page.get_by_role("button", name="Swap").click()
    assert box(opened).input_value() == "der Hund"
    wait_for(opened, "der Hund")
    assert [body["direction"] for body in bodies_of(server)] == ["en-de", "de-en"]
    select.select_option(index=2)
    wait_for(opened, "der Hund")
    assert bodies_of(server)[-1]["direction"] == "en-fr"
    assert not opened.page.get_by_role("button", name="Swap").is_visible()


@browser
def test_what_is_shown_is_saved(open_page, server):
    opened = open_page()
    box(opened).fill("the dog\n\nsleeps")
    wait_for(opened, "schläft", 2)
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="Save JSON").click()
    assert download.value.suggested_filename == "answer.json"
    saved = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert saved["request"] == bodies_of(server)[-1]
    assert saved["request"]["lines"] == ["the dog", "sleeps"]
    assert saved["request"]["provenance"] is True
    assert saved["response"]["provenance"]["checkpoints"] == [[12]]
    translations = saved["response"]["translations"]
    texts = [row["hypotheses"][0]["text"] for row in translations]
    assert texts == ["der Hund", "schläft"]


@browser
def test_the_saved_explanation_is_a_page_of_its_own(open_page, server, chromium):
    opened = open_page()
    set_limits(server, lines=1)
    opened.page.reload()
    hostile = HOSTILE.replace(" ", "\u00a0")
    box(opened).fill(f"the dog. bad line\n{hostile}")
    wait_for(opened, "der dog.")
    opened.page.locator(".target-line").nth(1).locator(".token").first.wait_for()
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="Save explanation").click()
    assert download.value.suggested_filename == "explanation.html"
    context = chromium.new_context(java_script_enabled=False, offline=True)
    saved = context.new_page()
    requested = []
    saved.on("request", lambda request: requested.append(request.url))
    saved.set_content(download.value.path().read_text(encoding="utf-8"))
    answer = saved.locator("script#answer[type='application/json']").text_content()
    tables = [text.split() for text in saved.locator("tbody").all_inner_texts()]
    tags = saved.locator("img, [onerror], script:not(#answer)").count()
    token = saved.locator(".token", has_text="dog.")
    recorded = token.inner_text().split(), token.get_attribute("data-band")
    body = saved.locator("body").inner_text()
    context.close()
    assert (requested, tags) == ([], 0)
    assert recorded == (["dog.", "61%"], "1")
    assert tables[0][:3] == ["der", "dog.", "\u22120.100"]
    assert tables[-1][0] == "checkpoints"
    assert hostile in body
    # Several requests are a list, each with the answer that it got.
    pairs = json.loads(answer)
    assert [pair["request"] for pair in pairs] == bodies_of(server)[-2:]
    answered = [pair["response"]["translations"][0]["source"] for pair in pairs]
    assert answered == ["the dog.", hostile]


@browser
def test_sentences_are_asked_for_and_the_text_keeps_its_form(open_page, server):
    opened = open_page()
    box(opened).fill("the dog.  the cat\n\n  sleeps")
    wait_for(opened, "der dog. der cat")
    wait_for(opened, "schläft", 2)
    assert lines_of(server) == [["the dog.", "the cat", "sleeps"]]
    assert lines_of(server, "/v1/sentences") == [["the dog.  the cat", "  sleeps"]]
    # Of a paragraph, only the sentence that changed.
    box(opened).press("Control+Home")
    box(opened).press("End")
    box(opened).press_sequentially(" sleeps")
    wait_for(opened, "der dog. der cat schläft")
    assert lines_of(server)[1:] == [["the cat sleeps"]]
    assert opened.announced() == "der cat schläft"
    opened.page.locator("#hypotheses").get_by_text("Sentence 2,").first.wait_for()
    words(opened).nth(2).focus()  # "der", of the second sentence
    assert opened.page.locator(".source-copy .at").inner_text() == "the cat sleeps"
    assert opened.page.locator("mark").inner_text() == "the"
    opened.page.get_by_role("button", name="Swap").click()
    assert box(opened).input_value() == "der dog.  der cat schläft\n\n  schläft"


@browser
def test_without_a_splitter_each_line_is_asked_for(open_page, server, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    opened = open_page()
    box(opened).fill("the dog. the cat\nsleeps")
    wait_for(opened, "schläft", 1)
    assert lines_of(server) == [["the dog. the cat", "sleeps"]]
    opened.page.locator("#source").get_by_text("a line of its own").wait_for()


@browser
def test_a_long_text_is_asked_for_in_pieces_that_fail_alone(open_page, server):
    set_limits(server, lines=30, characters=200, bytes=2000)
    server.engine.failing = "word7 "
    server.engine.errors = [LateError("too late")]  # then requests are of half the size
    opened = open_page()
    lines = [f"word{n} dog" for n in range(60)]
    box(opened).fill("\n".join([*lines, "x" * 201]))
    for line in (25, 45, 59):
        wait_for(opened, f"word{line} Hund", line)
    rows = opened.page.locator(".target-line")
    rows.nth(60).get_by_text("Not translated: 201 characters").wait_for()
    status = opened.page.locator(".status")
    status.get_by_text("an error of the server").wait_for()
    refused, late, *rest_sizes = map(len, lines_of(server))
    assert (refused, late, max(rest_sizes)) == (20, 20, 10)
    assert (
        max(len("".join(request)) for request in lines_of(server, "/v1/sentences"))
        <= 200
    )
    assert {line for request in lines_of(server) for line in request} == {*lines}
    (failed,) = (request for request in lines_of(server) if lines[7] in request)
    assert opened.page.locator(".target-line .warning").count() == len(failed) + 1
    count, server.engine.failing = len(bodies_of(server)), None
    status.get_by_role("button", name="Try again").click()
    wait_for(opened, "word7 Hund", 7)
    assert {line for request in lines_of(server)[count:] for line in request} == {
        *failed
    }


@browser
def test_without_its_server_a_page_marks_what_is_old(open_page, server):
    opened = open_page()
    box(opened).fill("the dog\nsleeps")
    wait_for(opened, "schläft", 1)
    opened.page.route("**/v1/*", lambda route: route.abort())
    box(opened).fill("the cat\nsleeps")
    opened.page.locator(".status").get_by_text("cannot be reached").wait_for()
    old = opened.page.get_by_role("group", name="Translation of an earlier text")
    assert old.inner_text().split() == ["der", "Hund"]
    style = "element => getComputedStyle(element).textDecorationLine"
    assert old.evaluate(style) == "line-through"
    first = opened.page.locator(".target-line").first
    first.get_by_text("Not translated: The server cannot be reached").wait_for()
    assert opened.page.locator(".old").count() == 1
    opened.page.unroute("**/v1/*")
    opened.page.get_by_role("button", name="Try again").click()
    wait_for(opened, "der cat")
    assert not opened.page.locator(".old, .target-line .warning").count()
    opened.problems.clear()  # of the requests that failed


@browser
def test_the_panes_scroll_together(open_page, server):
    opened = open_page()
    # Long lines of buttons, which need more room than their text does.
    box(opened).fill("\n".join(f"{n}" + " a" * (n % 7 * 9) for n in range(80)))
    wait_for(opened, "79" + " a" * 18, 79)

    def middle():
        return opened.page.evaluate(
            """() => ["source-copy span", "target-line > .sentence"].map((name) => {
              const all = [...document.querySelectorAll("." + name)];
              const pane = all[0].closest(".source-box, .target-lines");
              const { top, height } = pane.getBoundingClientRect();
              return all.findIndex(
                (each) => each.getBoundingClientRect().bottom >= top + height / 2);
            })"""
        )

    for pane in (".source-box", ".target-lines"):
        share = "p => { p.scrollTop = (p.scrollHeight - p.clientHeight) / 2; }"
        opened.page.locator(pane).evaluate("p => { p.scrollTop = 0; }")
        opened.page.wait_for_timeout(100)
        opened.page.locator(pane).evaluate(share)
        opened.page.wait_for_timeout(100)
        source, target = middle()
        assert source == target > 20
    # A sentence that is pointed at is marked on both sides.
    opened.page.locator(".source-copy span").nth(source).hover(force=True)
    marked = opened.page.locator(".target-line").nth(source).locator(".at")
    marked.wait_for()
    assert opened.page.locator(".at").count() == 2


@browser
def test_waiting_refusals_and_keys(open_page, server, tmp_path):
    (tmp_path / "keys").write_text("secret\n")
    set_limits(server, keys=read_keys(f"{tmp_path}/keys"))
    server.engine.ready = False
    server.service.report("2 of 4 programs")
    opened = open_page()
    status = opened.page.locator(".status")
    key = opened.page.get_by_label("API key")
    status.get_by_text("The server is compiling: 2 of 4 programs").wait_for()
    server.engine.ready = True
    opened.page.wait_for_function(
        "() => !document.querySelector('.status').textContent"
    )
    assert not key.count()
    box(opened).fill("the")
    for value, message in (("wrong", "wants an API key"), ("secret", "key is wrong")):
        status.get_by_text(message).wait_for()
        key.fill(value)
        key.press("Enter")
    wait_for(opened, "der")
    assert not key.count()
    server.engine.errors = [OverloadedError(1), UserError("the line is too long")]
    began = time.monotonic()
    box(opened).fill("the dog")
    status.get_by_text("The server is busy; asking again in 1 s.").wait_for()
    status.get_by_text("the line is too long").wait_for()
    assert time.monotonic() - began >= 1
    assert opened.announced() == "the line is too long"
    status.get_by_role("button", name="Try again").click()
    wait_for(opened, "der Hund")
    assert status.inner_text() == ""
    # One refused line does not take the others with it.
    box(opened).fill("bad line\nthe dog\nthe")
    wait_for(opened, "der", 2)
    first = opened.page.locator(".target-line").first
    first.get_by_text("no translation of 'bad line'").wait_for()


@browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_horizontal_scroll(open_page, dark):
    opened = open_page(width=360, dark=dark)
    box(opened).fill(f"the dog {'x' * 60} sleeps\n{'y' * 60}")
    wait_for(opened, "y" * 60, 1)
    words(opened).nth(2).click()
    opened.page.locator(".choices").get_by_text("no other word").wait_for()
    assert opened.overflow() <= 0  # Firefox has a vertical scrollbar
    scrolls = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert not opened.page.locator(".panes *:not(bdi)").evaluate_all(scrolls)
    # The box is as high as its text: the copy behind it has the same lines.
    heights = opened.page.locator(".source-box > *").evaluate_all(
        "all => all.map(e => [e.clientHeight, e.scrollHeight])"
    )
    assert heights[0] == heights[1]
    assert heights[0][0] == heights[0][1]
    ground = opened.page.locator("body").evaluate(
        "body => getComputedStyle(body).backgroundColor"
    )
    assert ground == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


@browser
def test_text_is_never_read_as_html(open_page):
    opened = open_page()
    hostile = HOSTILE.replace(" ", "\u00a0")
    box(opened).fill(f"{hostile}\nbad {hostile}")
    opened.page.locator(".target-line .warning").wait_for()
    words(opened).first.click()
    opened.page.locator(".choices").wait_for()
    assert not opened.page.locator("img, [onerror]").count()
    assert opened.page.title() == "Translate"
