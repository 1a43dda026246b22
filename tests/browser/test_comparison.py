"""The page of the compare command, driven in a browser."""

import pytest

from t2t_jax.metrics import measures
from t2t_jax.tools.compare.compare import System, compare
from t2t_jax.tools.compare.summary import page
from tests.browser.looking import HOSTILE, plain, value
from tests.comparison.made_up_systems import made_up

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def compared():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "SAMPLES", 50)
        return compare(*made_up(lines=60))


@pytest.fixture
def opened(open_page, compared):
    return open_page(page([compared]))


def titles(opened):
    return [plain(t) for t in opened.page.locator(".line-title").all_inner_texts()]


def shown_lines(opened):
    return [int(value(t.split("\n")[0])) - 1 for t in titles(opened)]


def cells(opened, part, row):
    texts = opened.page.locator(f"#{part} tbody tr").nth(row).locator("td, th")
    return [plain(text) for text in texts.all_inner_texts()]


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
    found = compared["changes"][0]["right"][0]
    row = cells(opened, "words", 0)
    assert (row[0], int(row[1])) == (found["word"], found["count"])


def test_lines_are_sorted_filtered_and_searched(opened, compared):
    gains = [s["chrf"][1] - s["chrf"][0] for s in compared["sentences"]]
    order = sorted(range(60), key=lambda n: (-gains[n], n))
    assert shown_lines(opened) == order[:20]
    opened.page.keyboard.press("]")
    assert shown_lines(opened) == order[20:40]
    opened.page.keyboard.press("s")
    order = sorted(range(60), key=lambda n: (gains[n], n))
    assert shown_lines(opened) == order[:20]
    assert opened.announced().startswith("largest loss, all lines")
    opened.page.keyboard.press("f")
    assert set(shown_lines(opened)) <= {n for n in range(60) if gains[n] > 0}
    opened.page.locator("#lines select").nth(1).select_option("all lines")
    opened.page.locator("#lines input[type=search]").fill("unsinn")
    sides = [
        n
        for n, s in enumerate(compared["sentences"])
        if any("Unsinn" in part for output in s["outputs"][:2] for part, _ in output)
    ]
    status = opened.page.locator("#lines [role=status]").inner_text()
    assert f"of {len(sides)} lines" in status


def test_lines_are_walked_by_keys(opened):
    opened.page.keyboard.press("j")
    opened.page.keyboard.press("j")
    focused = (
        "[...document.querySelectorAll('.sentence')].indexOf(document.activeElement)"
    )
    assert opened.page.evaluate(focused) == 1
    opened.page.keyboard.press("k")
    assert opened.page.evaluate(focused) == 0
    opened.page.keyboard.press("?")
    assert "next and previous line" in opened.page.locator("dialog").inner_text()


def test_a_word_and_a_sign_show_their_lines(opened, compared):
    found = compared["changes"][0]["right"][0]
    opened.page.locator("#words .word").first.click()
    sides = [
        n
        for n, s in enumerate(compared["sentences"])
        if any(
            part.strip() == found["word"] and mark & 3 in (1, 2)
            for part, mark in s["reference"]
        )
    ]
    assert set(shown_lines(opened)) <= set(sides)
    assert (
        f"of {len(sides)} line"
        in opened.page.locator("#lines [role=status]").inner_text()
    )
    row = opened.page.locator("#signs tbody tr").filter(has_text="Loops")
    row.get_by_role("button").click()
    wanted = {
        n
        for n, s in enumerate(compared["sentences"])
        if "loops" in s["signs"][0] + s["signs"][1]
    }
    assert set(shown_lines(opened)) == wanted
    opened.page.locator("#words .line-number").first.click()
    assert shown_lines(opened) == [found["lines"][0]]


def test_marks_say_who_has_a_word(opened, compared):
    first = opened.page.locator(".sentence").first
    sentence = compared["sentences"][shown_lines(opened)[0]]

    def marked(row, kind):
        return first.locator("dd").nth(row).locator(f".{kind}").all_inner_texts()

    words = sentence["outputs"][0]
    assert marked(2, "wrong") == [p.strip() for p, mark in words if not mark & 1]
    words = sentence["outputs"][1]
    assert marked(3, "only") == [p.strip() for p, m in words if m & 2 and not m & 1]
    words = sentence["reference"]
    assert marked(1, "missed") == [p.strip() for p, mark in words if not mark & 3]


def test_the_contents_mark_where_the_reader_is(opened):
    current = "nav a[aria-current]"
    assert opened.page.locator(current).inner_text() == "Scores"
    opened.page.keyboard.press("6")
    opened.page.locator(current).filter(has_text="Side by side").wait_for()


def test_another_system_is_chosen_by_a_key(opened, compared):
    opened.page.keyboard.press("c")
    gains = [s["chrf"][2] - s["chrf"][0] for s in compared["sentences"]]
    order = sorted(range(60), key=lambda n: (-gains[n], n))
    assert shown_lines(opened) == order[:20]
    assert "system 2 against system 0" in opened.announced()
    better = opened.page.locator("#histogram .legend .gained").inner_text()
    assert value(better) == compared["histograms"][1]["better"]


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_a_phone(open_page, compared, dark):
    assert open_page(page([compared]), width=390, dark=dark).overflow() <= 0


def test_text_is_never_read_as_html(open_page, monkeypatch):
    monkeypatch.setattr(measures, "SAMPLES", 20)
    texts, systems = made_up(lines=4)
    texts.references[1] = HOSTILE
    hostile = [System(HOSTILE, [HOSTILE, *s.lines[1:]], HOSTILE) for s in systems]
    opened = open_page(page([compare(texts, hostile)]))
    assert "onerror" in opened.page.locator("#lines").inner_text()
    assert not opened.page.locator("img, [onerror]").count()
    assert opened.page.title() != "broken"
