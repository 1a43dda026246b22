"""The README: its figures are those of the pages of results, and its presets exist."""

import re

import pytest

from t2t_jax import load_config
from t2t_jax.config import from_config_dict
from t2t_jax.model.model import build
from tests.documents import TO_RUN
from tests.model.laws import LAWS
from tests.small_run import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = re.compile(r"\]\((docs/results/[\w-]+\.md)\)")
FIGURE = re.compile(r"\*\*([\d.,]*\d)\*\*")
# Paragraphs, rows of tables and items of lists that have figures.
QUOTED = [*filter(FIGURE.search, re.split(r"\n\n|\n(?=\|)|\n(?=\d\. )", README))]
ROWS = re.findall(r"^\| `([\w.:]+)` \| ([\d,]+) \|[^|]+\| ([\d,]+) \|", README, re.M)


@pytest.mark.parametrize("part", QUOTED)
def test_a_figure_is_that_of_the_page_of_results_that_it_links(part):
    pages = RESULTS.findall(part)
    assert pages, "a figure without a link to its page of results"
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    figures = set(re.findall(r"[\d.,]*\d", text))
    missing = [figure for figure in FIGURE.findall(part) if figure not in figures]
    assert not missing, f"{missing} is not in {pages}"


@pytest.mark.parametrize(("name", "parameters", "tokens"), ROWS)
def test_a_preset_has_the_size_that_its_row_says(name, parameters, tokens):
    file, colon, recipe = name.partition(":")
    config = load_config(f"configs/{file.removesuffix('.py')}.py{colon}{recipe}")
    config = from_config_dict(config)
    assert f"{build(config.model, config.data.vocab_size).count():,}" == parameters
    assert f"{config.data.batch_tokens:,}" == tokens


def test_it_has_figures_and_presets_and_is_short():
    assert len(QUOTED) >= 8
    assert len(ROWS) == 5
    assert f"{len(LAWS)} property tests" in README
    assert len(TO_RUN) > 40  # "more than 40 blocks of commands"
    assert len(re.sub(r"<!--.*?-->", "", README).split()) <= 900
