"""The findings as one self-contained HTML page."""

from typing import Any

from t2t_jax.tools.pages.page import page as html_page
from t2t_jax.tools.pages.payload import Payload

MAIN = "doctor/main.js"


def page(content: dict[str, Any]) -> str:
    """Returns the page of what `findings.findings` returns."""
    return html_page(Payload(content), MAIN, ["style.css", "doctor/doctor.css"])
