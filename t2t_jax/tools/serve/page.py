"""The page of a translation server: one file, which asks only the server it is from."""

import functools

from t2t_jax.tools.pages import page as pages


@functools.cache
def page() -> bytes:
    """Returns the HTML of the page, in UTF-8."""
    return pages.page(
        pages.Payload({"title": "Translate"}),
        main="translate/main.js",
        styles=["style.css", "translate/translate.css"],
        served=True,
    ).encode()
