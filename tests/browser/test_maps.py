"""Attention, alignment, lens and attribution, driven in a browser."""

import itertools
import math
import re

import numpy as np
import pytest

from t2t_jax.tools.pages.page import page
from tests.browser.looking import (
    is_percent,
    is_shown,
    plain,
    reading_of,
    value,
    values_of,
)

pytestmark = pytest.mark.browser
KINDS = {
    "cross": "cross attention",
    "encoder": "encoder's self-attention",
    "decoder": "decoder's self-attention",
}


@pytest.fixture
def opened(open_page, payload):
    return open_page(page(payload))


def press(view, group, name):
    view.locator(f"[data-choice={group}]").get_by_role(
        "button", name=name, exact=True
    ).click()


def shown_map(opened, view, title, rows, columns):
    """The weights of the map of this title, read cell by cell by the arrow keys."""
    # It is computed after a press; till then there is the map before.
    view.locator(f'[data-map="{title}"]').wait_for()
    view.locator(f".row-labels > :nth-child({rows}):last-child").wait_for()
    frame = view.locator(".attention-map .heatmap")
    note = view.locator(".attention-map .cell-note")
    assert frame.get_attribute("aria-label").startswith(title)
    weights = np.zeros((rows, columns))
    for key in rows * ["ArrowUp"] + columns * ["ArrowLeft"]:
        frame.press(key)
    for i in range(rows):
        frame.press("Home")
        for j in range(columns):
            text = plain(note.text_content())
            assert " attends to " in text
            assert opened.announced() == text
            weights[i, j] = value(text.rpartition(": ")[2])
            frame.press("ArrowRight")
        frame.press("ArrowDown")
    return weights


def agree(read, expected):
    """Equal to the three digits that are shown."""
    np.testing.assert_allclose(read, expected, rtol=5.1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_enlarged_is_the_array(opened, payload, kind):
    attention = reading_of(payload)["attention"][kind]
    weights = values_of(payload, attention["weights"])
    view = opened.view("attention")
    press(view, "attention", kind.title())
    buttons = view.locator(".head-map")
    assert buttons.count() == 4
    for n, (layer, head) in enumerate(itertools.product(range(2), range(2))):
        name = buttons.nth(n).get_attribute("aria-label")
        assert name.startswith(f"Enlarge layer {layer + 1}, head {head + 1}")
        entropy = re.search(r"entropy (\S+) bits", name)[1]
        assert is_shown(entropy, attention["entropy"][layer][head])
    buttons.nth(2).click()
    expected = weights[1, 0]
    title = f"Layer 2, head 1 of the {KINDS[kind]}"
    agree(shown_map(opened, view, title, *expected.shape), expected)


def test_sets_of_heads_are_those_of_numpy(opened, payload):
    weights = values_of(payload, reading_of(payload)["attention"]["cross"]["weights"])
    view = opened.view("attention")

    def check(title, expected):
        title = f"{title} of the cross attention"
        agree(shown_map(opened, view, title, *expected.shape), expected)

    check("Mean of 4 heads", weights.mean((0, 1)))  # at first: all
    view.locator("[data-heads=none]").click()
    assert "no head is checked" in view.locator(".attention-map").inner_text()
    for layer, head in ((0, 1), (1, 0)):
        view.locator(f"input[data-layer='{layer}'][data-head='{head}']").check()
    check("Mean of 2 heads", weights[[0, 1], [1, 0]].mean(0))
    press(view, "map", "Maximum of checked")
    view.locator("th input[data-layer='0']").check()  # all of a layer
    check("Maximum of 3 heads", np.stack([*weights[0], weights[1, 0]]).max(0))
    press(view, "map", "Rollout (approximate)")
    rollout = reading_of(payload)["rollout"]["cross"]
    check("Rollout (approximate)", values_of(payload, rollout))


def by_words(weights, rows, columns):
    """The mean over a query word's pieces of the sum over a key word's."""

    def units(words):
        unit_of = [0]
        for previous, word in itertools.pairwise(words):
            unit_of.append(unit_of[-1] + (word != previous or word < 0))
        return np.eye(unit_of[-1] + 1)[unit_of]

    queries, keys = units(rows), units(columns)
    return (queries / queries.sum(0)).T @ weights @ keys


def test_words_are_sums_of_keys_and_means_of_queries(opened, payload):
    entry = payload.content["sentences"][0]["of"][0]
    reading = entry["readings"][0]
    source, target = entry["source_words"], reading["words"]
    assert len({*target}) < len(target)  # some word has several pieces
    view = opened.view("attention")
    view.locator("[data-map]").wait_for()
    press(view, "units", "Words")
    read = [-1, *target[:-1]]
    pairs = {"Cross": (target, source), "Encoder": (source, source)}
    pairs["Decoder"] = (target, read)
    for name, (rows, columns) in pairs.items():
        press(view, "attention", name)
        weights = reading["attention"][name.lower()]["weights"]
        mean = values_of(payload, weights).mean((0, 1))
        expected = by_words(mean, rows, columns)
        title = f"Mean of 4 heads of the {KINDS[name.lower()]}"
        agree(shown_map(opened, view, title, *expected.shape), expected)


def test_the_alignment_and_its_coverage(opened, payload):
    alignment = reading_of(payload)["alignment"]
    view = opened.view("alignment")
    source = view.locator("[data-line=source] .token")
    for s, coverage in enumerate(alignment["coverage"]):
        text = view.locator(f"[data-coverage='{s}']").inner_text()
        assert is_shown(text, coverage, 2)
        classes = source.nth(s).get_attribute("class").split()
        for kind in ("dropped", "repeated"):
            assert (kind in classes) == (s in alignment[kind])
    assert view.locator("path.aligned").count() == len(alignment["links"])
    view.locator("[data-line=target] .token").first.focus()
    weights = values_of(payload, alignment["weights"])[0]
    parts = opened.announced().partition(" reads ")[2].split(", ")
    agree([*map(value, parts)], np.sort(weights[weights > 0.02])[::-1][:8])


def test_the_lens_at_every_layer(opened, payload):
    reading = reading_of(payload)
    lens = reading["lens"]
    view = opened.view("layers")
    for layer, t in itertools.product(range(2), range(len(reading["pieces"]))):
        view.locator(f"td[data-layer='{layer}'][data-position='{t}']").click()
        top = view.locator(".lens-top tbody tr").all()
        for tr, (piece, p) in zip(top, lens["top"][layer][t], strict=False):
            assert plain(tr.locator("th").inner_text()) == piece
            assert is_percent(tr.locator("td").inner_text(), p)
        labels = view.locator(".lens-chart").get_attribute("aria-label").split("; ")
        for n, text in enumerate(labels):
            name, p, rank = re.match(r"(layer \d) (\S+), rank (\d+)", text).groups()
            assert name == f"layer {n + 1}"
            assert is_percent(p, lens["probability"][n][t])
            assert int(rank) == lens["rank"][n][t]
    # The views look at one piece: that of the last click.
    translation = opened.view("translation")
    selected = translation.locator("[aria-selected=true]").get_attribute("data-t")
    assert selected == str(t)


@pytest.mark.parametrize(
    ("question", "suffix"),
    [("Why this token", ""), ("Why this and not its rival", "_contrast")],
)
def test_attribution_and_its_contrast(opened, payload, question, suffix):
    reading = reading_of(payload)
    attribution = reading["attribution"]
    view = opened.view("attribution")
    press(view, "contrast", question)
    sides = "source", "target"
    parts = [values_of(payload, attribution[f"{side}{suffix}"]) for side in sides]
    for n, t in enumerate(attribution["positions"]):
        view.locator("[data-choice=position] select").select_option(index=int(t))
        title = plain(view.locator("[data-attribution]").inner_text())
        rival = f" and not {attribution['rivals'][n]}" if suffix else ""
        assert title == f"Why {reading['pieces'][t]}{rival}?"
        expected = [parts[0][n], parts[1][n][:t]]
        for side, values in zip(sides, expected, strict=True):
            texts = view.locator(f"[data-line={side}] .token-value").all_text_contents()
            for text, number in zip(texts, values, strict=False):
                assert is_shown(text, number, 2) or math.isclose(number, 0)
            assert not any(texts[len(values) :])  # later pieces were not read
        rows = opened.rows(view.locator("details.numbers"))
        for row, number in zip(rows, np.concatenate(expected), strict=True):
            assert is_shown(row[3], number) or math.isclose(number, 0)
