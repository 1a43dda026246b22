"""Takes the pictures of the explorer in README.md and seeing.md.

    python docs/site/pictures.py

Needs Playwright and Chromium (`pip install -e '.[browser]'`).
"""

import shutil
import tempfile
from pathlib import Path

import live
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1]
PIECE = 13  # of the first sentence: where its verb does not agree
WIDTH, HEIGHT = 1120, 1000
VIEWS = ("beam",)


def main() -> None:
    """Writes explorer.png and a picture of each of `VIEWS`."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        live.write(Path(folder))
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        size = {"width": WIDTH, "height": HEIGHT}
        page = browser.new_page(viewport=size, color_scheme="light")
        page.goto(f"file://{folder}/explorer.html#translation")
        page.locator(f'#translation [data-t="{PIECE}"]').click()
        page.locator("#translation").get_by_text("continue").first.click()
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(500)  # views near the screen are drawn
        page.screenshot(path=DOCS / "explorer.png")
        # The bar of links would cover a part of a view that is scrolled to.
        page.add_style_tag(content=".bar { position: static !important }")
        for view in VIEWS:
            section = page.locator(f"#{view}")
            section.scroll_into_view_if_needed()
            page.wait_for_timeout(500)
            section.screenshot(path=DOCS / f"explorer-{view}.png")
        browser.close()


if __name__ == "__main__":
    main()
