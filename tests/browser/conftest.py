"""A real Chromium, and pages opened in it from disk.

python -m pytest -m browser
"""

import os
import shutil

import pytest

from tests.browser.looking import Opened

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
]


def _chromium():
    """The path of a Chromium; None if there is none."""
    if named := os.environ.get("CHROMIUM"):
        return shutil.which(named)
    return next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium, for all tests of a worker."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs pip install 't2t_jax[browser]'"
    )
    path = _chromium()
    if not path:
        pytest.skip(f"needs a browser: one of {', '.join(NAMES)} or $CHROMIUM")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, tmp_path):
    """Opens HTML as a page; afterwards nothing may have failed or been asked for.

    `open_page(html, width=1200, dark=False, touch=False)` returns an `Opened`.
    """
    opened = []

    def open_(html, width=1200, dark=False, touch=False):
        file = tmp_path / f"page-{len(opened)}.html"
        file.write_text(html, encoding="utf-8")
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
        )
        opened.append(Opened(context, file))
        return opened[-1]

    yield open_
    for page in opened:
        problems = page.problems
        page.close()
        assert not problems
