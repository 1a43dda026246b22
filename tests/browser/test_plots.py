"""The page of the plot command, driven in a browser."""

import pytest

from t2t_jax.tools.pages import run_plots
from tests.browser.looking import value
from tests.viewing.logs import dev, eventful_run, train, write_run

pytestmark = pytest.mark.browser


@pytest.fixture
def runs(tmp_path):
    steady = [train(n, 8 - n / 50, 1 + n % 3) for n in range(10, 210, 10)]
    steady += [dev(n, 7 - n / 50, n / 10) for n in (100, 200)]
    steady.sort(key=lambda line: line["step"])
    return [
        eventful_run(tmp_path / "eventful"),
        write_run(tmp_path / "steady <b>", steady),
    ]


@pytest.fixture
def opened(open_page, runs):
    return open_page(run_plots.page(runs, smooth=1))


def panel(opened, title):
    return opened.page.locator(".panel").filter(has=opened.page.get_by_text(title))


def values(panel):
    """What the panel shows at the cursor: name -> text."""
    lines = panel.locator(".values li").all()
    return {
        line.locator(".name").inner_text(): line.locator(".number").inner_text()
        for line in lines
    }


def point_at(opened, panel, share):
    box = panel.locator(".drawing").bounding_box()
    left, right = box["x"] + 52, box["x"] + box["width"] - 12
    opened.page.mouse.move(left + share * (right - left), box["y"] + 100)


def test_the_cursor_reads_all_runs_in_all_panels(opened):
    loss, bleu = panel(opened, "Loss per token"), panel(opened, "BLEU, dev set")
    assert loss.locator(".at").inner_text() == "Last values"
    assert values(loss)["eventful"] == "train 3.400 (at 70), dev 3.600 (at 60)"
    point_at(opened, loss, 0.2)  # of 200 steps
    for one in (loss, bleu):
        assert one.locator(".at").inner_text() == "Steps: 40"
    assert values(loss) == {
        "eventful": "train 4.000, dev 4.200",
        "steady <b>": "train 7.200, dev 5.000 (at 100)",
    }
    assert values(bleu)["eventful"] == "dev 7.500"
    point_at(opened, loss, 0.5)
    assert values(loss) == {
        "eventful": "ended before",
        "steady <b>": "train 6.000, dev 5.000",
    }


def test_the_cursor_is_moved_by_keys_and_read_out(opened):
    drawing = panel(opened, "Loss per token").locator(".drawing")
    drawing.press("Home")
    for _ in range(4):
        drawing.press("ArrowRight")
    assert drawing.get_attribute("aria-valuenow") == "50"
    text = drawing.get_attribute("aria-valuetext")
    # At 50 the run has two values, of which it discarded the first.
    assert "eventful: train 3.700, dev 4.200 (at 40)" in text
    drawing.press("End")
    assert drawing.get_attribute("aria-valuenow") == "200"
    drawing.press("Escape")
    assert drawing.get_attribute("aria-valuetext").startswith("Last values")


def test_a_drag_zooms_all_panels_and_escape_ends_it(opened):
    loss, bleu = panel(opened, "Loss per token"), panel(opened, "BLEU, dev set")

    def numbers(one):
        texts = one.locator(".axes text[text-anchor=middle]").all_text_contents()
        return [value(text) for text in texts]

    whole = numbers(bleu)
    assert whole[0] == 0
    assert whole[-1] == 200
    point_at(opened, loss, 0.25)
    opened.page.mouse.down()
    point_at(opened, loss, 0.5)
    assert loss.locator(".chosen-range").is_visible()
    opened.page.mouse.up()
    for one in (loss, bleu):
        assert min(numbers(one)) >= 49
        assert max(numbers(one)) <= 101
    loss.locator(".drawing").press("-")
    assert min(numbers(bleu)) < 49  # away from the cursor, at the end of the drag
    loss.locator(".drawing").press("Escape")
    assert numbers(bleu) == whole


def test_smoothing_is_that_of_the_picture(open_page, runs):
    opened = open_page(run_plots.page(runs[1], smooth=5))
    path = panel(opened, "Gradient norm").locator(".curve:not(.faint)")
    heights = [
        float(point.split()[1]) for point in path.get_attribute("d")[1:].split("L")
    ]
    content = run_plots.plot_data(runs[1])
    logged = content["runs"][0]["stretches"][0]["values"]["gradient_norm"]
    wanted = run_plots.smoothed(logged, 5)
    # Pixels are a linear function of the values, downwards.
    slope = (heights[-1] - heights[0]) / (wanted[-1] - wanted[0])
    assert slope < 0
    for height, number in zip(heights, wanted, strict=True):
        assert abs(height - heights[0] - slope * (number - wanted[0])) < 0.3


def test_what_happened_is_marked_and_told(opened):
    loss, norm = panel(opened, "Loss per token"), panel(opened, "Gradient norm")
    titles = loss.locator(".event title").all_text_contents()
    assert titles == [
        "eventful: back to step 40: the loss rose",
        "eventful: continued after step 30",
    ]
    assert norm.locator(".event.alarm").count() == 2
    table = opened.page.locator(".all-runs").inner_text()
    assert "alarm at step 58: gradient norm not finite" in table
    rows = opened.rows(loss.locator("details"))
    assert ["eventful", "train", "10", "6"] in rows
    assert ["eventful", "train, discarded", "60", "not finite"] in rows


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(open_page, runs, dark):
    opened = open_page(run_plots.page(runs), width=360, dark=dark)
    assert opened.overflow() == 0
    curve = opened.page.locator(".curve").first

    def colour():
        return curve.evaluate("curve => getComputedStyle(curve).stroke")

    light, lighter = "rgb(0, 114, 178)", "rgb(86, 180, 233)"  # of the first run
    assert colour() == (lighter if dark else light)
    opened.page.get_by_role("button", name="Change to").click()
    assert colour() == (light if dark else lighter)
