"""The beam tree, driven in a browser: every hypothesis, its fate, and the ways on."""

import math

import pytest

from t2t_jax.tools.explain.explain import explain
from t2t_jax.tools.explain.explanation import to_payload
from t2t_jax.tools.pages.page import page
from tests.browser.looking import is_percent, is_shown, plain
from tests.decoding.small_translator import translator

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(open_page, payload):
    return open_page(page(payload))


@pytest.fixture
def view(opened):
    return opened.view("beam")


@pytest.fixture
def search(payload):
    return search_of(payload)


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
    if node["why"]:
        assert field(view, "why") == node["why"]
    if node["rank"] is not None:
        assert field(view, "rank") == str(node["rank"])


def walk(view, nodes, n):
    """Clicks a node, wherever it is in the box that scrolls."""
    box, drawn = view.locator("[data-part=tree]"), view.locator(f"[data-node='{n}']")
    width = box.evaluate("box => box.scrollWidth")
    share = nodes[n]["step"] / (1 + max(node["step"] for node in nodes))
    for y in (0, 150, 300, 10_000):
        if drawn.count():
            break
        box.evaluate("(box, to) => box.scrollTo(...to)", [width * share - 60, y])
        view.page.wait_for_timeout(100)  # it draws what came into sight
    drawn.click()


def ids(view):
    drawn = view.locator("[data-node]").all()
    return {int(node.get_attribute("data-node")) for node in drawn}


def test_every_hypothesis_has_its_numbers_and_its_fate(opened, view, search):
    nodes = search["nodes"]
    assert len({node["fate"] for node in nodes}) >= 4
    for n in range(len(nodes)):
        walk(view, nodes, n)
        check_details(view, nodes, n)
    rows = opened.rows(view.locator("details.numbers"))
    listed = sorted((row[0], row[2]) for row in rows if row[0] != "0")
    assert listed == sorted((str(node["step"]), node["piece"]) for node in nodes[1:])


def test_the_tree_is_walked_by_keys_and_to_what_took_a_place(view, search):
    nodes, best, tree = (
        search["nodes"],
        search["best"],
        view.locator("[data-part=tree]"),
    )
    tree.press("End")
    check_details(view, nodes, best[-1])
    for key, path in (("ArrowLeft", best[-2::-1]), ("ArrowRight", best[1:])):
        for n in path:
            tree.press(key)
            check_details(view, nodes, n)
    n = next(n for n, node in enumerate(nodes) if node["by"] is not None)
    walk(view, nodes, n)
    view.locator("[data-control=by]").click()
    check_details(view, nodes, nodes[n]["by"])
    assert tree.evaluate("tree => tree === document.activeElement")


def test_hypotheses_are_hidden_and_shown(opened, view, search):
    nodes = search["nodes"]
    n = next(
        n for n, node in enumerate(nodes) if node["by"] and node["row"] is not None
    )
    walk(view, nodes, n)
    all_ids = ids(view)
    view.locator("[data-control=follow]").click()
    assert "Only the family of" in opened.announced()
    assert n in ids(view)
    assert len(ids(view)) < len(all_ids)
    view.locator("[data-control=show-all]").click()
    with_leaves = ids(view)
    view.locator("[data-control=leaves]").uncheck()
    assert {n for n in ids(view) if nodes[n]["row"] is None} < with_leaves


def test_the_finished_hypotheses_and_why_it_stopped(view, search):
    rows = view.locator("[data-finished]").all()
    numbers = [int(row.get_attribute("data-finished")) for row in rows]
    assert numbers[: len(search["finished"])] == search["finished"]
    for row, n in zip(rows, numbers, strict=True):
        score = row.locator("[data-field=score]").inner_text()
        assert is_shown(score, search["nodes"][n]["score"], 4)
    summary = view.locator("[data-part=summary]").inner_text()
    assert plain(summary).endswith(search["stopped"]["why"])


def test_where_the_reference_left_the_beam(view, search):
    reference, part = search["reference"], view.locator("[data-part=reference]")
    assert part.get_attribute("data-verdict") == reference["verdict"]

    def field_text(name):
        return part.locator(f"[data-field={name}]").inner_text()

    for name in ("score", "best-score", "log-prob"):
        assert is_shown(field_text(name), reference[name.replace("-", "_")], 4)
    assert plain(field_text("why")) == reference["why"]
    part.locator("[data-control=reference]").click()
    path = [n for n, node in enumerate(search["nodes"]) if "r" in node["flags"]]
    check_details(view, search["nodes"], path[-1])


def focused(opened):
    return int(opened.page.locator("#beam .focused").get_attribute("data-node"))


def test_only_what_is_in_sight_of_a_long_search_is_drawn(open_page):
    small = translator().with_options(extra_length=200)
    explanation = explain(
        small, "a dog", beam=4, prefix="die Katze " * 20, alternatives=0
    )
    long_payload = to_payload(explanation)
    opened, search = open_page(page(long_payload), width=360), search_of(long_payload)
    view = opened.view("beam")
    assert opened.overflow() <= 0
    for key, node in (("End", search["best"][-1]), ("Home", 0)):
        view.locator("[data-part=tree]").press(key)
        assert focused(opened) == node
        drawn = view.locator("[data-part=tree] [data-node]").count()
        assert 0 < drawn < len(search["nodes"]) / 4
