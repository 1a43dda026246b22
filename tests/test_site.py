"""The site: what is changed of a page for it, its notebooks, explorer and build."""

import dataclasses
import re
import subprocess
import sys

import pytest

from t2t_jax.config import ModelConfig
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


def test_links_out_of_the_docs_lead_to_pages_of_the_site(site):
    page = [
        "[a](../CONTRIBUTING.md#b) [c](design.md) [d](../notebooks/1_paper.ipynb)\n"
        "[e](../setup.py)"
    ]
    site[0].on_the_site(None, "page", page)
    assert page == [
        "[a](contributing.md#b) [c](design.md) [d](_notebooks/1_paper.md)\n"
        "[e](../setup.py)"
    ]
    below = ["[a](../../CONTRIBUTING.md) [b](../design.md)"]
    site[0].on_the_site(None, "tutorials/page", below)
    assert below == ["[a](../contributing.md) [b](../design.md)"]


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


def test_a_field_comes_with_all_its_limits(site):
    import generated

    limits = {f.name: generated._values(f) for f in dataclasses.fields(ModelConfig)}
    assert limits["layers"] == "int, at least 1"
    assert limits["dropout"] == "float, at least 0, below 1"


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
    options = ["-q", "-W", "--keep-going", "-n", "-b", "html", "-d", tmp_path / "kept"]
    built = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ROOT / "docs", built],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    pages = {p: p.read_text(encoding="utf-8") for p in built.rglob("*.html")}
    for path, text in pages.items():
        for file in re.findall(LOADED, text):
            assert not re.match(r"(?:https?:)?//", file), (path, file)
    python = pages[built / "reference/python.html"]
    assert 'id="t2t_jax.Translator.translate"' in python
    assert 'id="translate"' in pages[built / "reference/commands.html"]
    assert "bytenet_unfold" in pages[built / "reference/tables.html"]
    paper = pages[built / "_notebooks/1_the_paper.html"]
    assert paper.count("<math") > 10
    assert "searchindex.js" in pages[built / "search.html"]
