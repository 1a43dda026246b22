"""The beam tree, driven in a browser: every hypothesis, its fate, and the ways on."""

import math

import pytest

from t2t_jax.tools.pages.page import page
from tests.browser.looking import is_percent, is_shown, plain
from tests.viewing.made_up import made_up_payload

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def payload():
    return made_up_payload(target_pieces=7, readings=2)


@pytest.fixture
def opened(open_page, payload):
    return open_page(page(payload))


@pytest.fixture
def view(opened):
    return opened.view("beam")


def search_of(payload):
    return payload.content["sentences"][0]["of"][0]["search"]


def field(view, name):
    return plain(view.locator(f"[data-part=detail] [data-field={name}]").inner_text())


def check_details(view, nodes, n):
    """The panel is that of node `n`, and its numbers are those of the array."""
    node = nodes[n]
    assert view.locator("[data-shown]").get_attribute("data-shown") == str(n)
    if n == 0:
        assert field(view, "step") == "0"
        return
    assert field(view, "piece") == node["piece"]
    place = "never in the beam" if node["row"] is None else f"{node['row'] + 1} of"
    assert field(view, "step").startswith(f"{node['step']}, {place}")
    assert is_shown(field(view, "log-prob"), node["log_prob"], 4)
    assert is_shown(field(view, "score"), node["score"], 4)
    p = min(1, math.exp(node["log_prob"] - nodes[node["parent"]]["log_prob"]))
    assert is_percent(field(view, "piece-probability"), p)
    assert field(view, "why") == node["why"]
    if node["rank"] is not None:
        assert field(view, "rank") == str(node["rank"])
    if node["margin"] is not None:
        assert is_shown(field(view, "margin"), node["margin"])


def walk(view, nodes, n):
    """Clicks a node, wherever it is in the box that scrolls."""
    box, found = view.locator("[data-part=tree]"), view.locator(f"[data-node='{n}']")
    width = box.evaluate("box => box.scrollWidth")
    share = nodes[n]["step"] / (1 + max(node["step"] for node in nodes))
    for y in (0, 150, 300, 10_000):
        if found.count():
            break
        box.evaluate("(box, to) => box.scrollTo(...to)", [width * share - 60, y])
        view.page.wait_for_timeout(100)  # it draws what came into sight
    found.click()


def test_every_hypothesis_has_its_numbers_and_its_fate(view, payload):
    nodes = search_of(payload)["nodes"]
    assert len({node["fate"] for node in nodes}) >= 6
    for n in range(len(nodes)):
        walk(view, nodes, n)
        check_details(view, nodes, n)


def test_fates_are_counted_and_faded(view, payload):
    nodes = search_of(payload)["nodes"]
    fates = [node["fate"] for node in nodes]
    buttons = view.locator(".beam-filter button")
    assert buttons.count() == len({*fates})
    for button in buttons.all():
        fate = button.get_attribute("data-fate")
        assert button.locator(".count").inner_text() == str(fates.count(fate))
    button = view.locator(".beam-filter [data-fate=outranked]")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    faded = view.locator("[data-node].faded")
    shown = {int(node.get_attribute("data-node")) for node in faded.all()}
    assert shown
    assert {nodes[n]["fate"] for n in shown} == {"outranked"}


def test_the_one_that_took_the_place_is_a_click_away(view, payload):
    nodes = search_of(payload)["nodes"]
    places = [n for n, node in enumerate(nodes) if node["by"] is not None]
    assert places
    for n in places[:6]:
        walk(view, nodes, n)
        view.locator("[data-control=by]").click()
        check_details(view, nodes, nodes[n]["by"])
        tree = view.locator("[data-part=tree]")
        assert tree.evaluate("tree => tree === document.activeElement")


def test_the_tree_is_walked_by_keys(view, payload):
    search = search_of(payload)
    nodes, tree = search["nodes"], view.locator("[data-part=tree]")
    tree.press("End")
    check_details(view, nodes, search["best"][-1])
    for n in search["best"][-2::-1]:
        tree.press("ArrowLeft")
        check_details(view, nodes, n)
    for n in search["best"][1:]:
        tree.press("ArrowRight")
        check_details(view, nodes, n)
    label = tree.locator(".focused").get_attribute("aria-label")
    assert "on the best path" in label
    tree.press("Home")
    tree.press("ArrowRight")
    tree.press("ArrowDown")
    step = sorted(
        (n for n, node in enumerate(nodes) if node["step"] == 1),
        key=lambda n: (nodes[n]["row"] is None, nodes[n]["row"]),
    )
    shown = int(view.locator("[data-shown]").get_attribute("data-shown"))
    assert shown == step[nodes[search["best"][1]]["row"] + 1]


def test_following_a_hypothesis_hides_the_others(opened, view, payload):
    nodes = search_of(payload)["nodes"]
    n = next(
        n for n, node in enumerate(nodes) if node["by"] and node["row"] is not None
    )
    walk(view, nodes, n)
    before = view.locator("[data-node]").count()
    view.locator("[data-control=follow]").click()
    assert "Only the family of" in opened.announced()
    family = {n, nodes[n]["by"]}
    family |= {m for m, node in enumerate(nodes) if node["parent"] == n}
    at = n
    while at >= 0:
        family.add(at)
        at = nodes[at]["parent"]
    shown = ids(view)
    assert n in shown
    assert len(shown) < before
    # More of the family: descendants, and those who took their places.
    near = {m for m in shown if nodes[m]["step"] <= nodes[n]["step"]}
    assert near <= family | {nodes[m]["by"] for m in family}
    view.locator("[data-control=show-all]").click()
    assert view.locator("[data-node]").count() == before


def ids(view):
    shown = view.locator("[data-node]").all()
    return {int(node.get_attribute("data-node")) for node in shown}


def test_what_never_entered_the_beam_can_be_hidden(view, payload):
    nodes = search_of(payload)["nodes"]
    outside = {n for n, node in enumerate(nodes) if node["row"] is None}
    assert ids(view) & outside
    view.locator("[data-control=leaves]").uncheck()
    assert not ids(view) & outside


def test_the_finished_hypotheses_and_why_it_stopped(view, payload):
    search = search_of(payload)
    rows = view.locator("[data-finished]").all()
    found = [int(row.get_attribute("data-finished")) for row in rows]
    assert found[: len(search["finished"])] == search["finished"]
    for row, n in zip(rows, found, strict=True):
        for name in ("log-prob", "score"):
            text = row.locator(f"[data-field={name}]").inner_text()
            assert is_shown(text, search["nodes"][n][name.replace("-", "_")], 4)
    summary = view.locator("[data-part=summary]").inner_text()
    assert plain(summary).endswith(search["stopped"]["why"])
    assert f"after step {search['stopped']['step']}" in summary


def test_where_the_reference_left_the_beam(view, payload):
    search = search_of(payload)
    reference, part = search["reference"], view.locator("[data-part=reference]")
    assert part.get_attribute("data-verdict") == reference["verdict"]

    def shown(name):
        return part.locator(f"[data-field={name}]").inner_text()

    for name in ("score", "best-score", "log-prob"):
        assert is_shown(shown(name), reference[name.replace("-", "_")], 4)
    assert is_shown(shown("margin"), reference["margin"])
    for name in ("step", "rank", "why"):
        assert shown(name) == str(reference[name])
    part.locator("[data-control=reference]").click()
    check_details(view, search["nodes"], reference["nodes"][-1])


def test_all_hypotheses_as_text(opened, view, payload):
    nodes = search_of(payload)["nodes"]
    rows = opened.rows(view.locator("details.numbers"))
    assert len(rows) == len(nodes)
    shown = sorted((row[0], row[2], row[-1]) for row in rows)
    wanted = sorted((str(n["step"]), n["piece"], n["why"]) for n in nodes)
    assert shown == wanted


def focused(opened):
    return int(opened.page.locator("#beam .focused").get_attribute("data-node"))


def test_only_what_is_in_sight_of_a_long_search_is_drawn(open_page):
    long = made_up_payload(target_pieces=200)
    opened, search = open_page(page(long), width=360), search_of(long)
    view = opened.view("beam")
    assert opened.overflow() <= 0
    for key, node in (("End", search["best"][-1]), ("Home", 0)):
        view.locator("[data-part=tree]").press(key)
        assert focused(opened) == node
        drawn = view.locator("[data-part=tree] [data-node]").count()
        assert 0 < drawn < len(search["nodes"]) / 10


def test_the_lens_moves_the_tree(opened, payload):
    opened.view("beam")
    view = opened.view("layers")
    view.locator("td[data-layer='1'][data-position='0']").click()
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("ArrowDown")
    where = view.locator("[data-part=lens-detail] [data-layer]")
    assert where.get_attribute("data-layer") == "0"
    assert where.get_attribute("data-position") == "1"
    assert focused(opened) == search_of(payload)["best"][2]
