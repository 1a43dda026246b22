"""The page of the doctor, driven in a browser."""

import pytest

from t2t_jax.tools.doctor.examination import Examination
from t2t_jax.tools.doctor.findings import findings, page
from t2t_jax.tools.doctor.overlap import Reference
from tests.doctor.made_up import MadeUp, grammar_pairs

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def html():
    text = grammar_pairs(200)
    text[50] = text[50][::-1]
    text[60] = text[60][0], "<img src=x onerror=alert(1)> \x02" + text[60][1]
    examination = Examination([MadeUp(text)], [Reference("dev", text[:3])])
    return page(findings(examination, ("en", "de")))


def rule(opened, name):
    named = opened.page.get_by_text(name, exact=True)
    return opened.page.locator("details.rule").filter(has=named)


@pytest.mark.parametrize("width", [1200, 400])
def test_rules_open_on_their_worst_pairs(open_page, html, width):
    opened = open_page(html, width=width)
    swapped = rule(opened, "swapped")
    assert "removed" in swapped.locator("summary").inner_text()
    assert not swapped.locator("table").first.is_visible()
    swapped.locator("summary").focus()
    opened.page.keyboard.press("Enter")
    accused = swapped.locator("tr.accused").first
    assert accused.is_visible()
    assert accused.locator("th").inner_text() == "▶ 51"
    # The page itself does not scroll sideways.
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_nobody_sees_is_spelled_and_nothing_is_markup(open_page, html):
    opened = open_page(html, dark=True)
    opened.page.get_by_role("button", name="All examples").click()
    odd = rule(opened, "odd_characters").locator("tr.accused").first
    assert "<img src=x onerror=alert(1)>" in odd.inner_text()
    assert odd.locator(".unseen-character").inner_text() == "U+0002"
    assert not opened.page.locator("main img").count()
    assert opened.page.locator(".histogram svg rect").count() > 20
