"""The pages of the compare command and of the doctor, driven in a browser."""

import pytest

from t2t_jax.metrics import measures
from t2t_jax.tools.compare import summary
from t2t_jax.tools.compare.compare import System, compare_texts
from t2t_jax.tools.doctor import findings
from t2t_jax.tools.doctor.examination import Examination
from t2t_jax.tools.doctor.overlap import ReferenceSet
from tests.browser.looking import HOSTILE, plain, value
from tests.comparison.made_up_systems import made_up
from tests.doctor.made_up import corpus_of, grammar_pairs

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(measures, "SAMPLES", 20)


@pytest.fixture
def compared():
    return compare_texts(*made_up(lines=60))


@pytest.fixture
def opened(open_page, compared):
    return open_page(summary.comparison_page([compared]))


def titles(opened):
    return [plain(t) for t in opened.page.locator(".line-title").all_inner_texts()]


def shown_lines(opened):
    return [int(value(t.split("\n")[0])) - 1 for t in titles(opened)]


def cells(opened, part, row):
    texts = opened.page.locator(f"#{part} tbody tr").nth(row).locator("td, th")
    return [plain(text) for text in texts.all_inner_texts()]


def gains_of(compared, system=1):
    return [s["chrf"][system] - s["chrf"][0] for s in compared["sentences"]]


def ordered(gains):
    return sorted(range(len(gains)), key=lambda n: (-gains[n], n))


def test_tables_show_the_numbers_of_the_comparison(opened, compared):
    for s, system in enumerate(compared["systems"]):
        row = cells(opened, "scores", s)
        assert row[0].endswith(system["name"])
        for text, total in zip(row[1:], compared["totals"], strict=False):
            assert value(text) == round(total["systems"][s]["score"], 2)
    bucket = compared["aspects"]["length"]["buckets"][0]
    row = cells(opened, "where", 0)
    assert row[0] == bucket["name"]
    assert value(row[1]) == bucket["count"]
    assert value(row[3]) == round(bucket["systems"][0]["chrf"], 1)
    change = compared["changes"][0]["right"][0]
    row = cells(opened, "words", 0)
    assert (row[0], int(row[1])) == (change["word"], change["count"])


def test_lines_are_sorted_filtered_searched_and_walked(opened, compared):
    gains, press = gains_of(compared), opened.page.keyboard.press
    assert shown_lines(opened) == ordered(gains)[:20]
    press("]")
    assert shown_lines(opened) == ordered(gains)[20:40]
    press("s")
    assert shown_lines(opened) == ordered([-gain for gain in gains])[:20]
    assert opened.announced().startswith("largest loss, all lines")
    press("f")
    assert set(shown_lines(opened)) <= {n for n in range(60) if gains[n] > 0}
    opened.page.locator("#lines select").nth(1).select_option("all lines")
    opened.page.locator("#lines input[type=search]").fill("unsinn")
    matches = [
        s
        for s in compared["sentences"]
        if any("Unsinn" in part for output in s["outputs"][:2] for part, _ in output)
    ]
    status = opened.page.locator("#lines [role=status]").inner_text()
    assert f"of {len(matches)} lines" in status
    opened.page.locator("h1").click()
    for key in ("j", "j", "k"):
        press(key)
    focused = "document.querySelector('.sentence') === document.activeElement"
    assert opened.page.evaluate(focused)


def test_a_word_and_a_sign_show_their_lines(opened, compared):
    change = compared["changes"][0]["right"][0]
    opened.page.locator("#words .word").first.click()
    assert set(change["lines"]) <= set(shown_lines(opened))
    row = opened.page.locator("#signs tbody tr").filter(has_text="Loops")
    row.get_by_role("button").click()
    sentences = enumerate(compared["sentences"])
    expected = {n for n, s in sentences if "loops" in s["signs"][0] + s["signs"][1]}
    assert set(shown_lines(opened)) == expected
    opened.page.locator("#words .line-number").first.click()
    assert shown_lines(opened) == [change["lines"][0]]


def test_text_is_never_read_as_html_and_fits_a_phone(open_page):
    texts, systems = made_up(lines=4)
    texts.references[1] = HOSTILE
    hostile = [System(HOSTILE, [HOSTILE, *s.lines[1:]], HOSTILE) for s in systems]
    opened = open_page(
        summary.comparison_page([compare_texts(texts, hostile)]), dark=True
    )
    assert "onerror" in opened.page.locator("#lines").inner_text()
    assert not opened.page.locator("img, [onerror]").count()
    assert opened.page.title() != "broken"
    html = summary.comparison_page([compare_texts(*made_up(lines=4))])
    assert open_page(html, width=390).overflow() <= 0


@pytest.mark.parametrize("width", [1200, 400])
def test_the_doctor_s_rules_open_on_their_worst_pairs(open_page, width):
    text = grammar_pairs(200)
    text[50] = text[50][::-1]
    text[60] = text[60][0], "<img src=x onerror=alert(1)> \x02" + text[60][1]
    examination = Examination([corpus_of(text)], [ReferenceSet("dev", text[:3])])
    html = findings.findings_page(findings.findings(examination, ("en", "de")))
    opened = open_page(html, width=width)

    def rule(name):
        named = opened.page.get_by_text(name, exact=True)
        return opened.page.locator("details.rule").filter(has=named)

    swapped = rule("swapped")
    assert "removed" in swapped.locator("summary").inner_text()
    assert not swapped.locator("table").first.is_visible()
    swapped.locator("summary").focus()
    opened.page.keyboard.press("Enter")
    accused = swapped.locator("tr.accused").first
    assert accused.locator("th").inner_text() == "▶ 51"
    assert opened.overflow() <= 0
    # What nobody sees is spelled, and nothing is markup.
    opened.page.get_by_role("button", name="All examples").click()
    odd = rule("odd_characters").locator("tr.accused").first
    assert "<img src=x onerror=alert(1)>" in odd.inner_text()
    assert odd.locator(".unseen-character").inner_text() == "U+0002"
    assert not opened.page.locator("main img").count()
