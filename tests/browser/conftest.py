"""A real Chromium, and pages opened in it from disk.

python -m pytest -m browser
"""

import numpy as np
import pytest

from t2t_jax.decoding.translator import Translator
from t2t_jax.tools.explain.explain import explain
from t2t_jax.tools.explain.explanation import to_payload
from tests.bridges.exported import translator
from tests.browser.looking import Opened, launched

LINES = ["the cat sees the dog", "a dog </script><b>", "a dog sleeps"]
TARGETS = ["die Katze sieht den Hund", "ein Hund", "ein Hund"]


@pytest.fixture(scope="session")
def explained():
    """What a small model with two layers of two heads makes of three sentences."""
    small = translator(layers=2, output_bias=True)
    pieces = map(small.vocabulary.piece, range(len(small.vocabulary)))
    bias_v = [-20.0 * piece.startswith(("<0x", "<unk>")) for piece in pieces]
    bias = {"output_bias": np.array(bias_v, np.float32)}  # it says letters, not bytes
    parameters = small.parameters | {"embedding": small.parameters["embedding"] | bias}
    small = Translator(small.config, small.vocabulary, small.model, parameters, [7])
    options = {
        "prefix": ["die Katze ", "ein", "ein"],
        "must_not": "Hund",
        "warn": False,
    }
    return explain(small, LINES, TARGETS, beam=4, nbest=2, alpha=1.0, **options)


@pytest.fixture(scope="session")
def payload(explained):
    return to_payload(explained)


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium, for all tests of a worker."""
    yield from launched()


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
        opened.append(Opened(context, file.as_uri()))
        return opened[-1]

    yield open_
    for page in opened:
        problems = page.problems
        page.close()
        assert not problems
