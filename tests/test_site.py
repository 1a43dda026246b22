"""The site: what is changed of a page for it, its notebooks, explorer and build."""

import re
import subprocess
import sys

import pytest

from tests.small_run import ROOT

LOADED = r'<(?:script|link|img|iframe)[^>]*(?:src|href)="([^"]+)"'


@pytest.fixture(scope="module")
def site():
    """The modules that build the site."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs/site")
        patch.syspath_prepend(ROOT / "docs")
        import conf
        import live
        import notebook_pages

        yield conf, live, notebook_pages
        for name in ("conf", "live", "notebook_pages", "generated"):
            sys.modules.pop(name)


@pytest.mark.parametrize(
    ("place", "link", "there"),
    [
        ("page", "../CONTRIBUTING.md#b", "contributing.md#b"),
        ("page", "design.md", "design.md"),
        ("page", "../notebooks/1_paper.ipynb", "_notebooks/1_paper.md"),
        ("page", "../setup.py", "../setup.py"),
        ("tutorials/page", "../../CONTRIBUTING.md", "../contributing.md"),
        ("tutorials/page", "../design.md", "../design.md"),
    ],
)
def test_links_out_of_the_docs_lead_to_pages_of_the_site(site, place, link, there):
    page = [f"[a]({link})\n[b]({link})"]
    site[0].on_the_site(None, place, page)
    assert page == [f"[a]({there})\n[b]({there})"]


def test_a_picture_with_a_dark_version_follows_the_choice_of_the_reader(site):
    page = [(ROOT / "docs/experiments.md").read_text(encoding="utf-8")]
    pictures = page[0].count("<picture>")
    site[0].on_the_site(None, "experiments", page)
    assert "<picture>" not in page[0]
    assert page[0].count("only-light") == page[0].count("only-dark") == pictures > 3
    assert "{image} experiments/claims-dark.png\n:alt: BLEU of each row\n" in page[0]


def test_a_notebook_becomes_a_page(site):
    script = (
        "# ---\n# jupyter\n# ---\n"
        "# %% [markdown]\n# # Title\n#\n# A line.\n# $x$\n\n# %%\nx = 1\n\n\n# %%\n"
        "# Installs t2t_jax if it is missing.\n"
    )
    assert site[2].page(script) == "# Title\n\nA line.\n$x$\n\n```python\nx = 1\n```\n"
    assert site[2].listing().count("](_notebooks/") >= 3


def test_the_explorer_is_stored_and_made_again(site, tmp_path, monkeypatch):
    from t2t_jax.tools.pages.page import Payload, page

    payload = Payload({"version": 1, "title": "Ein <Titel> 🦊", "x": [0.5]})
    payload.content["map"] = payload.add([[0.0, 0.25], [1.0, 0.5]], scale=1 / 255)
    payload.add([-1.0, 1.0], signed=True)
    made = page(payload)
    _, live, _ = site
    monkeypatch.setattr(live, "STORED", tmp_path / "explorer.json")
    assert live.frame() == ""
    live.write(tmp_path)
    assert not (tmp_path / "explorer.html").exists()
    live.store(made, live.STORED)
    live.write(tmp_path)
    assert (tmp_path / "explorer.html").read_text(encoding="utf-8") == made
    assert 'src="explorer.html"' in live.frame()


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing(tmp_path):
    """`.ci/run` does the same with what `[docs]` installs."""
    pytest.importorskip("sphinx")
    built = tmp_path / "site"
    options = ["-q", "-W", "--keep-going", "-n", "-b", "html", "-d", tmp_path / "kept"]
    words = [sys.executable, "-m", "sphinx", *options, ROOT / "docs", built]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {p: p.read_text(encoding="utf-8") for p in built.rglob("*.html")}
    for path, text in pages.items():
        for file in re.findall(LOADED, text):
            assert not re.match(r"(?:https?:)?//", file), (path, file)
    for page, words in (
        ("reference/python", 'id="t2t_jax.Translator.translate"'),
        ("reference/commands", 'id="translate"'),
        ("reference/tables", "bytenet_unfold"),
        ("search", "searchindex.js"),
    ):
        assert words in pages[built / f"{page}.html"]
    assert pages[built / "_notebooks/1_the_paper.html"].count("<math") > 10
