"""Decoding with weights of 8 bits."""

import numpy as np
import pytest

from t2t_jax import Translator
from t2t_jax.data.corpus import open_corpus
from t2t_jax.io.errors import UserError
from t2t_jax.parallel.machine import tree_bytes
from t2t_jax.tools.bridges.exporting import export


@pytest.fixture(scope="module")
def pair(trained):
    """The run, with float32 and with int8 weights."""
    workdir, _ = trained
    return Translator.load(workdir), Translator.load(workdir, weights="int8")


@pytest.fixture(scope="module")
def lines(text):
    return [source for source, _ in open_corpus("test", "en", "de", str(text)).pairs()]


def test_a_line_does_not_depend_on_its_neighbours(pair, lines):
    _, int8 = pair
    together = int8.translate(lines, warn=False)
    alone = [int8.translate([line], warn=False)[0] for line in lines[:3]]
    assert [t.best for t in together[:3]] == [t.best for t in alone]


def test_it_says_so_and_takes_less_memory(pair):
    exact, int8 = pair
    assert "weights" not in exact.provenance()
    assert int8.provenance()["weights"] == ["int8"]
    assert ("int8" in repr(exact), "int8" in repr(int8)) == (False, True)
    assert tree_bytes(int8.parameters) < 0.4 * tree_bytes(exact.parameters)
    members = Translator.ensemble([exact, int8])
    assert members.provenance()["weights"] == ["float32", "int8"]
    log_probs = [
        score.log_prob
        for score in (
            t.score([("a man", "ein Mann")])[0] for t in (exact, int8, members)
        )
    ]
    assert np.ptp(log_probs) < 0.05 * abs(log_probs[0])
    assert min(log_probs[:2]) <= log_probs[2] + 1e-3


def test_what_needs_float32_refuses(pair, trained, tmp_path):
    with pytest.raises(UserError, match="int8 weights, and an export starts from"):
        export(pair[1], "safetensors", tmp_path / "out")
    with pytest.raises(UserError, match="weights='int4'"):
        Translator.load(trained[0], weights="int4")
