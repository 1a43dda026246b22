"""Mixing by temperature: shares, limits, and an epoch that stays as long."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.config import DataConfig, from_config_dict
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.drawing import tempered
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.io.errors import UserError

CORPORA = st.lists(
    st.tuples(st.integers(1, 10**8), st.floats(0.01, 50)), min_size=2, max_size=6
)
TEMPERATURES = st.floats(1e-3, 1e6)


def shares(corpora, temperature):
    """The part of an epoch that each corpus is."""
    sizes, weights = zip(*corpora, strict=True)
    read = tempered(sizes, weights, temperature)
    drawn = [n * times for n, times in zip(sizes, read, strict=True)]
    assert sum(drawn) == pytest.approx(sum(n * w for n, w in corpora))
    return [each / sum(drawn) for each in drawn]


@given(CORPORA, TEMPERATURES)
def test_shares_are_proportional_to_size_to_the_inverse_temperature(corpora, t):
    found = shares(corpora, t)
    for (n, w), share in zip(corpora, found, strict=True):
        for (m, v), other in zip(corpora, found, strict=True):
            if share > 1e-200 and other > 1e-200:
                wanted = math.log(w / v) + math.log(n / m) / t
                assert math.log(share / other) == pytest.approx(wanted, abs=1e-6)


@given(CORPORA)
def test_the_limits_are_every_pair_alike_and_every_corpus_alike(corpora):
    sizes, weights = zip(*corpora, strict=True)
    assert tempered(sizes, weights, 1.0) == weights  # exactly: plans depend on them
    uniform = [w / sum(weights) for w in weights]
    assert shares(corpora, 1e9) == pytest.approx(uniform, rel=1e-6)


@given(st.lists(st.integers(1, 10**8), min_size=2, max_size=6), TEMPERATURES)
def test_a_higher_temperature_never_takes_from_the_smallest(sizes, t):
    corpora = [(n, 1.0) for n in sizes]
    smallest = sizes.index(min(sizes))
    lower, higher = (shares(corpora, x)[smallest] for x in (t, 1.5 * t))
    assert higher >= lower * (1 - 1e-9)


def test_a_corpus_that_cleaning_emptied_takes_no_share():
    assert tempered((100, 0), (1.0, 1.0), 5.0) == (1.0, 1.0)


def test_a_run_finds_the_weights_that_it_was_prepared_with(tmp_path, monkeypatch):
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    for name, count in (("large", 64), ("little", 4)):
        for language in ("en", "de"):
            lines = "".join(f"{name} line {i} {language}\n" for i in range(count))
            (tmp_path / f"{name}.{language}").write_text(lines)
    corpora = open_corpora("large,little@2", "en", "de", str(tmp_path), weights=True)
    plain, warm = (
        DataConfig(vocab_size=320, temperature=t, batch_tokens=512) for t in (1.0, 2.0)
    )
    vocabulary = make_tokenizer(corpora, plain)
    once, mixed = (
        prepare.training_pairs(corpora, vocabulary, config) for config in (plain, warm)
    )
    assert once.weights == (1.0, 2.0)
    assert once.folder == mixed.folder  # the arrays are shared
    # sqrt(64) : 2 * sqrt(4) = 2 : 1, of 72 pairs.
    assert mixed.weights == pytest.approx((48 / 64, 24 / 4))
    summaries = [prepare.text_summary(pairs, []) for pairs in (once, mixed)]
    assert summaries[0]["prepared"] != summaries[1]["prepared"]
    assert prepare.find_prepared(summaries[1]).weights == mixed.weights
    assert prepare.report_lines(mixed)[-1] == "an epoch draws 64 x 0.75 + 4 x 6"


def test_a_temperature_is_above_zero():
    with pytest.raises(UserError, match="data.temperature.* at least 0.001"):
        from_config_dict({"data": {"temperature": 0.0}})
