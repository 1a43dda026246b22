"""A real browser; reads numbers back from a page, and the arrays they should be."""

import math
import os
import re
import shutil

import numpy as np
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
]
HOSTILE = (
    "</script><img src=x onerror=\"document.title='broken'\"><!-- {{script}} \u2028'\"&"
)
ISOLATES = re.compile("[\u2066-\u2069]")


def launched():
    """Yields a headless browser, and closes it; skips the test if there is none.

    Firefox, if its path is in $FIREFOX; otherwise Chromium.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs pip install 't2t_jax[browser]'"
    )
    if path := os.environ.get("FIREFOX"):
        with playwright.sync_playwright() as started:
            channel = "moz-firefox"  # not Playwright's own build
            browser = started.firefox.launch(executable_path=path, channel=channel)
            yield browser
            browser.close()
        return
    names = [os.environ["CHROMIUM"]] if "CHROMIUM" in os.environ else NAMES
    path = next(filter(None, map(shutil.which, names)), None)
    if not path:
        pytest.skip(f"needs a browser: one of {', '.join(NAMES)} or $CHROMIUM")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A page that is open in a browser.

    Attributes:
      page: of Playwright.
      problems: messages of errors, and requests to anything but the page's own server.

    Args:
      address: of the page: `file:` and its path, or of a server.
    """

    def __init__(self, context, address):
        self.page = context.new_page()
        self.page.set_default_timeout(10_000)
        self.problems = []
        self._own = re.match("file:|https?://[^/]+/", address)[0]
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(error.stack))
        self.page.on("request", self._request)
        self.page.goto(address)
        self.page.wait_for_selector("#main section")

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _request(self, request):
        if not request.url.startswith((self._own, "data:", "blob:")):
            self.problems.append(f"request: {request.url}")

    def view(self, name, column=0):
        """The drawn view of a section, of one of the models."""
        self.page.locator(f"#{name}").scroll_into_view_if_needed()
        drawn = self.page.locator(f"#{name} .column").nth(column)
        drawn.scroll_into_view_if_needed()
        drawn.and_(self.page.locator(":not(.waiting)")).wait_for()
        return drawn.locator(".view")

    def announced(self):
        """The sentence that a screen reader reads last."""
        return plain(self.page.locator("#announcements").text_content())

    def rows(self, details):
        """The rows of a table of "numbers as text", which this opens."""
        if details.get_attribute("open") is None:
            details.locator("summary").click()
        cells = "rows => rows.map(r => [...r.cells].map(c => c.textContent))"
        rows = details.locator("tbody tr")
        rows.first.wait_for()
        return [[plain(cell) for cell in row] for row in rows.evaluate_all(cells)]

    def overflow(self):
        """Pixels that the page is wider than the screen."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def close(self):
        self.page.context.close()


def plain(text):
    """A text without the marks that keep its direction to itself."""
    return ISOLATES.sub("", text)


def reading_of(payload, sentence=0, model=0, reading=0):
    """A reading of a made-up payload."""
    return payload.content["sentences"][sentence]["of"][model]["readings"][reading]


def values_of(payload, reference):
    """The array that a reference of a payload stands for."""
    raw = np.frombuffer(payload.blobs[reference["blob"]], reference["kind"])
    raw = raw.reshape(reference["shape"]).astype(float)
    scale = np.asarray(reference["scale"])
    return raw * scale.reshape(-1, *[1] * (raw.ndim - 1) if scale.ndim else [])


def value(text):
    """The number that a text of a page begins or ends with: −1.23, +4e−5, 63%."""
    numbers = re.findall(r"[+−-]?\d[\d,]*\.?\d*(?:e[+−-]?\d+)?", plain(text))
    number = float(numbers[0].replace("−", "-").replace(",", "").replace("+", "", 1))
    return number / 100 if "%" in text else number


def is_shown(text, expected, digits=3):
    """True if a text is a number as the page rounds it: to so many digits."""
    if text.startswith("<"):  # "<0.1%"
        return expected < value(text)
    unit = 10.0 ** (math.floor(math.log10(abs(expected) or 1)) - digits + 1)
    # The page's document has five digits, so halves may be rounded the other way.
    return abs(value(text) - expected) <= 0.51 * unit + 1e-4 * abs(expected)


def is_percent(text, expected):
    """True if a text is a probability as the page rounds it."""
    if text.startswith("<"):
        return expected < 0.00101
    expected = (
        expected if expected == 1 else min(expected, 0.999)
    )  # below 1 is not certain
    unit = 0.001 if expected < 0.0995 or expected > 0.994 else 0.01
    return abs(value(text) - expected) <= 0.51 * unit
