"""The beam tree of a long search, and the lens that moves it."""

import pytest

from t2t_jax.tools.pages.page import page
from tests.viewing.made_up import made_up_payload

pytestmark = pytest.mark.browser


@pytest.fixture
def show(open_page):
    """A function from a payload's options to the opened page and its first entry."""

    def show_(width=1200, **options):
        payload = made_up_payload(**{"layers": 3, **options})
        opened = open_page(page(payload), width)
        return opened, payload.content["sentences"][0]["of"][0]

    return show_


def focused(opened):
    return int(opened.page.locator("#beam .focused").get_attribute("data-node"))


def test_only_what_is_in_sight_of_a_long_search_is_drawn(show):
    opened, entry = show(target_pieces=200, width=360)
    search, view = entry["search"], opened.view("beam")
    assert opened.overflow() <= 0
    for key, node in (("End", search["best"][-1]), ("Home", 0)):
        view.locator("[data-part=tree]").press(key)
        assert focused(opened) == node
        drawn = view.locator("[data-part=tree] [data-node]").count()
        assert 0 < drawn < len(search["nodes"]) / 10


def test_the_lens_moves_the_tree(show):
    opened, entry = show()
    opened.view("beam")
    view = opened.view("layers")
    view.locator("td[data-layer='2'][data-position='0']").click()
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("ArrowDown")
    where = view.locator("[data-part=lens-detail] [data-layer]")
    assert where.get_attribute("data-layer") == "1"
    assert where.get_attribute("data-position") == "1"
    assert focused(opened) == entry["search"]["best"][2]
