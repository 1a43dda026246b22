"""The beam tree and the logit lens in a real browser: keys, links, filters, numbers."""

import shutil

import pytest

from t2t_jax.viewing.page import page
from t2t_jax.viewing.payload import rounded
from tests.viewing.made_up import made_up_payload

pytestmark = pytest.mark.browser
BROWSER = shutil.which("chromium")
TREE, DETAIL = "#beam [data-part=tree]", "#beam [data-part=detail]"
GRID = "#layers [data-part=lens-grid]"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=BROWSER, args=options)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """A function from a payload's options to the page shown and its first entry."""
    pages = []

    def open_page(width=1200, **options):
        payload = made_up_payload(**{"layers": 3, "readings": 2, **options})
        path = tmp_path / "page.html"
        path.write_text(page(payload), encoding="utf-8")
        shown = browser.new_page(viewport={"width": width, "height": 800})
        errors = []
        shown.on("pageerror", lambda error: errors.append(str(error)))
        pages.append((shown, errors))
        shown.goto(path.as_uri())
        shown.locator(TREE).scroll_into_view_if_needed()
        return shown, rounded(payload.content)["sentences"][0]["of"][0]

    yield open_page
    for shown, errors in pages:
        shown.close()
        assert errors == []


def focused(shown):
    """The node in focus, as the tree, the node and the panel say."""
    node = shown.locator(f"{TREE} .focused")
    assert shown.locator(TREE).get_attribute("aria-activedescendant") == (
        node.get_attribute("id")
    )
    number = int(node.get_attribute("data-node"))
    assert shown.locator(f"{DETAIL} [data-shown]").get_attribute("data-shown") == (
        str(number)
    )
    return number


def field(shown, name):
    text = shown.locator(f"{DETAIL} [data-field={name}]").inner_text()
    return float(text.replace("−", "-"))


def test_keys_walk_the_tree_and_the_panel_has_the_numbers(opened):
    shown, entry = opened()
    search = entry["search"]
    shown.locator(TREE).focus()
    shown.keyboard.press("End")
    for node in search["best"][:0:-1]:
        assert focused(shown) == node
        for name, key in (("log-prob", "log_prob"), ("score", "score")):
            expected = pytest.approx(search["nodes"][node][key], rel=1e-3)
            assert field(shown, name) == expected
        shown.keyboard.press("ArrowLeft")
    assert focused(shown) == 0
    shown.keyboard.press("ArrowRight")
    assert focused(shown) == search["best"][1]
    shown.keyboard.press("ArrowDown")
    place = search["nodes"][search["best"][1]]["row"] + 1
    nodes = enumerate(search["nodes"])
    below = [i for i, n in nodes if (n["step"], n["row"]) == (1, place)]
    assert [focused(shown)] == below


def test_a_death_leads_to_the_hypothesis_that_took_the_place(opened):
    shown, entry = opened()
    nodes = entry["search"]["nodes"]
    dead = next(i for i, n in enumerate(nodes) if n["by"] is not None)
    shown.locator(TREE).focus()
    shown.keyboard.press("Home")
    shown.locator(f"{TREE} [data-node='{dead}']").click()
    assert (
        shown.locator(f"{DETAIL} [data-field=why]").inner_text() == nodes[dead]["why"]
    )
    shown.locator(f"{DETAIL} [data-control=by]").click()
    assert focused(shown) == nodes[dead]["by"]
    shown.locator(f"{TREE} [data-node='{dead}']").click()
    shown.locator(TREE).press("Enter")
    assert focused(shown) == nodes[dead]["by"]


def test_leaves_fates_and_all_but_one_family_can_be_hidden(opened):
    shown, entry = opened()
    search = entry["search"]
    leaves = shown.locator(f"{TREE} .leaf:not(.reference)")
    leaves.first.click()
    parent = search["nodes"][focused(shown)]["parent"]
    shown.locator("#beam [data-control=leaves]").uncheck()
    assert leaves.count() == 0
    assert focused(shown) == parent  # the leaf in focus is gone
    shown.locator("#beam .beam-filter [data-fate=alive]").click()
    alive = shown.locator(f"{TREE} [data-fate=alive]")
    assert alive.count() == shown.locator(f"{TREE} .faded").count() > 0
    shown.locator(TREE).press("End")
    shown.locator(f"{DETAIL} [data-control=follow]").click()
    drawn = shown.locator(f"{TREE} [data-node]").evaluate_all(
        "all => all.map((node) => Number(node.dataset.node))"
    )
    assert set(drawn) <= {*search["best"]}
    # A link to a hidden node shows all again.
    shown.locator("#beam [data-finished]").nth(1).locator("button").click()
    assert focused(shown) == search["finished"][1]
    assert shown.locator("#beam [data-control=show-all]").is_disabled()


def test_the_outcome_is_in_tables(opened):
    shown, entry = opened()
    search = entry["search"]
    finished = shown.locator("#beam [data-finished]").evaluate_all(
        "rows => rows.map((row) => Number(row.dataset.finished))"
    )
    assert finished[: len(search["finished"])] == search["finished"]
    lost = {i for i, n in enumerate(search["nodes"]) if n["fate"] == "lost"}
    assert {*finished[len(search["finished"]) :]} == lost
    verdict = shown.locator("#beam [data-part=reference]")
    assert verdict.get_attribute("data-verdict") == search["reference"]["verdict"]
    shown.locator("#beam .beam-outcome .numbers summary").click()
    rows = shown.locator("#beam .beam-outcome .numbers tbody tr")
    assert rows.count() == len(search["nodes"])


def test_only_what_is_in_sight_of_a_long_search_is_drawn(opened):
    shown, entry = opened(target_pieces=200, readings=1, width=360)
    search = entry["search"]
    assert shown.evaluate("document.documentElement.scrollWidth") == 360
    for key, node in (("End", search["best"][-1]), ("Home", 0)):
        shown.locator(TREE).press(key)
        assert focused(shown) == node
        drawn = shown.locator(f"{TREE} [data-node]").count()
        assert 0 < drawn < len(search["nodes"]) / 10


def test_the_lens_shows_each_layer_and_moves_the_tree(opened):
    shown, entry = opened()
    lens = entry["readings"][0]["lens"]
    shown.locator("#layers").scroll_into_view_if_needed()
    cells = shown.locator(f"{GRID} [data-layer]")
    cells.first.wait_for()
    assert cells.count() == sum(map(len, lens["rank"]))
    chosen = shown.locator(f"{GRID} .chosen")
    assert chosen.count() == sum(r == 1 for row in lens["rank"] for r in row)
    shown.locator(f"{GRID} [data-layer='2'][data-position='0']").click()
    shown.keyboard.press("ArrowRight")
    shown.keyboard.press("ArrowDown")
    where = shown.locator("#layers [data-part=lens-detail] [data-layer]")
    assert where.get_attribute("data-layer") == "1"
    assert where.get_attribute("data-position") == "1"
    tops = where.locator("tbody th").all_inner_texts()
    assert tops == [piece for piece, _ in lens["top"][1][1]]
    said = shown.locator("#layers .lens-chart").get_attribute("aria-label")
    assert said.count("rank") == 3
    assert f"rank {lens['rank'][1][1]};" in said
    assert focused(shown) == entry["search"]["best"][2]


def test_a_model_without_layers_says_why(opened):
    shown, entry = opened(missing=True)
    shown.locator("#layers").scroll_into_view_if_needed()
    said = shown.locator("#layers .missing").inner_text()
    assert said == entry["readings"][0]["lens"]["missing"]
