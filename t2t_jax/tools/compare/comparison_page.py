"""The HTML page of comparisons: `page`. Its modules are in pages/page/comparison/."""

from collections.abc import Sequence

from t2t_jax.tools.pages.page import page as html_page
from t2t_jax.tools.pages.payload import Payload

LINES = 5_000  # of a test set that a page holds; those with the largest differences


def page(comparisons: Sequence[dict]) -> str:
    """Returns a self-contained page.

    Args:
      comparisons: of `compare`, one for each test set.
    """
    *names, last = (system["name"] for system in comparisons[0]["systems"])
    content = {
        "title": f"{', '.join(names)} and {last}, compared",
        "sets": [_shortened(comparison) for comparison in comparisons],
    }
    styles = ["style.css", "comparison/comparison.css"]
    return html_page(Payload(content), "comparison/main.js", styles)


def _shortened(comparison: dict) -> dict:
    """Numbers the lines, and leaves out what a browser would be slow with."""
    lines = [s | {"number": n} for n, s in enumerate(comparison["sentences"])]
    left_out = max(0, len(lines) - LINES)
    if left_out:
        lines.sort(key=lambda s: -max(abs(c - s["chrf"][0]) for c in s["chrf"]))
        lines = sorted(lines[:LINES], key=lambda s: s["number"])
    return comparison | {"sentences": lines, "left_out": left_out}
