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
from tests.viewing.made_up import made_up_payload

pytestmark = pytest.mark.browser
KINDS = {
    "cross": "cross attention",
    "encoder": "encoder's self-attention",
    "decoder": "decoder's self-attention",
}


@pytest.fixture(scope="module")
def payload():
    return made_up_payload(source_pieces=9, target_pieces=8, layers=2, heads=3)


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
    found = np.zeros((rows, columns))
    for key in rows * ["ArrowUp"] + columns * ["ArrowLeft"]:
        frame.press(key)
    for i in range(rows):
        frame.press("Home")
        for j in range(columns):
            text = plain(note.text_content())
            assert " attends to " in text
            assert opened.announced() == text
            found[i, j] = value(text.rpartition(": ")[2])
            frame.press("ArrowRight")
        frame.press("ArrowDown")
    return found


def agree(found, wanted):
    """Equal to the three digits that are shown."""
    np.testing.assert_allclose(found, wanted, rtol=5.1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_enlarged_is_the_array(opened, payload, kind):
    attention = reading_of(payload)["attention"][kind]
    weights = values_of(payload, attention["weights"])
    view = opened.view("attention")
    press(view, "attention", kind.title())
    buttons = view.locator(".head-map")
    assert buttons.count() == 6
    for layer in range(2):
        for head in range(3):
            name = buttons.nth(3 * layer + head).get_attribute("aria-label")
            numbers = re.search(r"entropy (\S+) bits, (?:peak at|offset) (\S+)", name)
            assert name.startswith(f"Enlarge layer {layer + 1}, head {head + 1}")
            assert is_shown(numbers[1], attention["entropy"][layer][head])
            second = attention["peak" if kind == "cross" else "offset"][layer][head]
            assert is_shown(numbers[2], second, 2)
    buttons.nth(4).click()
    assert buttons.nth(4).get_attribute("aria-pressed") == "true"
    wanted = weights[1, 1]
    title = f"Layer 2, head 2 of the {KINDS[kind]}"
    agree(shown_map(opened, view, title, *wanted.shape), wanted)


def test_sets_of_heads_are_those_of_numpy(opened, payload):
    weights = values_of(payload, reading_of(payload)["attention"]["cross"]["weights"])
    view = opened.view("attention")
    size = weights.shape[2:]

    def shown(title):
        return shown_map(opened, view, f"{title} of the cross attention", *size)

    agree(shown("Mean of 6 heads"), weights.mean((0, 1)))  # at first: all
    view.locator("[data-heads=none]").click()
    assert "no head is checked" in view.locator(".attention-map").inner_text()
    for layer, head in ((0, 1), (1, 2)):
        box = f"input[data-layer='{layer}'][data-head='{head}']"
        view.locator(box).check()
    two = weights[[0, 1], [1, 2]]
    agree(shown("Mean of 2 heads"), two.mean(0))
    press(view, "map", "Maximum of checked")
    agree(shown("Maximum of 2 heads"), two.max(0))
    view.locator("th input[data-layer='0']").check()  # all of a layer
    four = np.stack([*weights[0], weights[1, 2]])
    agree(shown("Maximum of 4 heads"), four.max(0))


def by_words(weights, rows, columns):
    """The mean over a query word's pieces of the sum over a key word's."""

    def units(words):
        of = [0]
        for before, word in itertools.pairwise(words):
            of.append(of[-1] + (word != before or word < 0))
        return np.eye(of[-1] + 1)[of]

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
        wanted = by_words(mean, rows, columns)
        title = f"Mean of 6 heads of the {KINDS[name.lower()]}"
        agree(shown_map(opened, view, title, *wanted.shape), wanted)


def test_rollout_and_its_warning(opened, payload):
    view = opened.view("attention")
    for kind in KINDS:
        press(view, "attention", kind.title())
        press(view, "map", "Rollout (approximate)")
        rollout = values_of(payload, reading_of(payload)["rollout"][kind])
        title = f"Rollout (approximate) of the {KINDS[kind]}"
        agree(shown_map(opened, view, title, *rollout.shape), rollout)
        assert "It is approximate" in view.locator(".attention-map").inner_text()


def test_small_maps_are_drawn_from_their_heads(opened, payload):
    weights = values_of(payload, reading_of(payload)["attention"]["cross"]["weights"])
    view = opened.view("attention")
    view.locator(".head-map").nth(5).scroll_into_view_if_needed()
    view.locator(".head-map img").nth(5).wait_for()
    reds = view.locator(".head-map img").evaluate_all(
        """images => images.map((image) => {
             const { naturalWidth: width, naturalHeight: height } = image;
             const canvas = new OffscreenCanvas(width, height);
             const context = canvas.getContext("2d");
             context.drawImage(image, 0, 0);
             const { data } = context.getImageData(0, 0, width, height);
             return [...data].filter((_, i) => i % 4 === 0);
           })"""
    )
    for head, red in zip(weights.reshape(6, -1), reds, strict=True):
        # On white, the stronger the darker; equal weights have equal colours.
        assert np.all(np.diff(np.array(red)[np.argsort(head)]) <= 0)
        assert red[head.argmax()] == min(red) < red[head.argmin()]


def test_arcs_say_what_a_piece_attends_to(opened, payload):
    reading = reading_of(payload)
    weights = values_of(payload, reading["attention"]["cross"]["weights"]).mean((0, 1))
    view = opened.view("attention")
    tokens = view.locator(".arcs [data-line=queries] .token")
    for t in range(len(reading["pieces"])):
        tokens.nth(t).hover()
        note = plain(view.locator(".arcs-note").inner_text())
        assert note.startswith(f"{reading['pieces'][t]} attends to ")
        shown = [value(part) for part in note.partition(" attends to ")[2].split(", ")]
        wanted = np.sort(weights[t][weights[t] > 0.01])[::-1][:8]
        agree(shown, wanted)
        assert view.locator(".arcs svg path").count() == len(wanted)


def test_the_alignment_and_its_coverage(opened, payload):
    entry = payload.content["sentences"][0]["of"][0]
    alignment = entry["readings"][0]["alignment"]
    weights = values_of(payload, alignment["weights"])
    view = opened.view("alignment")
    source = view.locator("[data-line=source] .token")
    assert source.count() == len(entry["source_word_texts"])
    for s, coverage in enumerate(alignment["coverage"]):
        assert is_shown(
            view.locator(f"[data-coverage='{s}']").inner_text(), coverage, 2
        )
        classes = source.nth(s).get_attribute("class").split()
        assert ("dropped" in classes) == (s in alignment["dropped"])
        assert ("repeated" in classes) == (s in alignment["repeated"])
    assert view.locator("path.aligned").count() == len(alignment["links"])
    target = view.locator("[data-line=target] .token")
    for t in range(len(weights)):
        target.nth(t).focus()
        note = opened.announced()
        shown = [value(part) for part in note.partition(" reads ")[2].split(", ")]
        wanted = np.sort(weights[t][weights[t] > 0.02])[::-1][:8]
        agree(shown, wanted)


def test_the_lens_at_every_layer(opened, payload):
    reading = reading_of(payload)
    lens = reading["lens"]
    view = opened.view("layers")
    for layer in range(2):
        for t, chosen in enumerate(reading["pieces"]):
            cell = view.locator(f"td[data-layer='{layer}'][data-position='{t}']")
            cell.click()
            top = view.locator(".lens-top tbody tr").all()
            for tr, (piece, p) in zip(top, lens["top"][layer][t], strict=True):
                assert plain(tr.locator("th").inner_text()) == piece
                assert is_percent(tr.locator("td").inner_text(), p)
            said = view.locator(".lens-chart").get_attribute("aria-label").split("; ")
            for n, text in enumerate(said):
                name, p, rank = re.match(r"(layer \d) (\S+), rank (\d+)", text).groups()
                assert name == f"layer {n + 1}"
                assert is_percent(p, lens["probability"][n][t])
                assert int(rank) == lens["rank"][n][t]
            is_chosen = "chosen" in (cell.get_attribute("class") or "")
            assert is_chosen == (lens["rank"][layer][t] == 1), chosen
    # The views look at one piece: that of the last click.
    translation = opened.view("translation")
    selected = translation.locator("[aria-selected=true]").get_attribute("data-t")
    assert selected == str(len(reading["pieces"]) - 1)


def test_attribution_and_its_contrast(opened, payload):
    reading = reading_of(payload)
    attribution = reading["attribution"]
    view = opened.view("attribution")
    for question, suffix in (
        ("Why this token", ""),
        ("Why this and not its rival", "_contrast"),
    ):
        press(view, "contrast", question)
        parts = [
            values_of(payload, attribution[f"{part}{suffix}"])
            for part in ("source", "target")
        ]
        for t in (1, 4, len(reading["pieces"]) - 1):
            view.locator("[data-choice=position] select").select_option(index=t)
            title = plain(view.locator("[data-attribution]").inner_text())
            rival = f" and not {attribution['rivals'][t]}" if suffix else ""
            assert title == f"Why {reading['pieces'][t]}{rival}?"
            wanted = [parts[0][t], parts[1][t][:t]]
            for part, values in zip(("source", "target"), wanted, strict=True):
                shown = view.locator(f"[data-line={part}] .token-value")
                texts = shown.all_text_contents()
                for text, number in zip(texts, values, strict=False):
                    assert is_shown(text, number, 2) or math.isclose(number, 0)
                assert not any(texts[len(values) :])  # later pieces were not read
            totals = view.locator(".attribution-totals").inner_text()
            of_source, _, of_target = totals.partition(", the tokens")
            assert is_shown(of_source.split()[-1], wanted[0].sum(), 2)
            assert is_shown(of_target.split()[-1].rstrip("."), wanted[1].sum(), 2)
            rows = opened.rows(view.locator("details.numbers"))
            assert len(rows) == len(wanted[0]) + t
            for row, number in zip(rows, np.concatenate(wanted), strict=True):
                assert is_shown(row[3], number) or math.isclose(number, 0)
