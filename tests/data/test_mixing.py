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


def shares(corpora, temperature):
    """The part of an epoch that each corpus is."""
    sizes, weights = zip(*corpora, strict=True)
    read = tempered(sizes, weights, temperature)
    drawn = [n * times for n, times in zip(sizes, read, strict=True)]
    assert sum(drawn) == pytest.approx(sum(n * w for n, w in corpora))
    return [each / sum(drawn) for each in drawn]


@given(CORPORA, st.floats(1e-3, 1e6))
def test_shares_are_proportional_to_size_to_the_inverse_temperature(corpora, t):
    found = shares(corpora, t)
    sizes, weights = zip(*corpora, strict=True)
    assert tempered(sizes, weights, 1.0) == weights  # exactly: plans depend on them
    for (n, w), share in zip(corpora, found, strict=True):
        for (m, v), other in zip(corpora, found, strict=True):
            if share > 1e-200 and other > 1e-200:
                wanted = math.log(w / v) + math.log(n / m) / t
                assert math.log(share / other) == pytest.approx(wanted, abs=1e-6)


def test_a_run_finds_the_weights_that_it_was_prepared_with(tmp_path, monkeypatch):
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    for name, count in (("large", 64), ("little", 4)):
        for language in ("en", "de"):
            lines = "".join(f"{name} line {i} {language}\n" for i in range(count))
            (tmp_path / f"{name}.{language}").write_text(lines)

    def made(places, temperature):
        corpora = open_corpora(places, "en", "de", str(tmp_path), weights=True)
        config = DataConfig(vocab_size=320, temperature=temperature, batch_tokens=512)
        return prepare.training_pairs(corpora, make_tokenizer(corpora, config), config)

    plain, weighted, mixed = (
        made(*options)
        for options in (
            ("large,little", 1),
            ("large,little@2", 1),
            ("large,little@2", 2),
        )
    )
    assert (plain.weights, weighted.weights) == ((1, 1), (1, 2))
    # sqrt(64) : 2 * sqrt(4) = 2 : 1, of 72 pairs.
    assert mixed.weights == pytest.approx((48 / 64, 24 / 4))
    assert plain.folder == weighted.folder == mixed.folder  # the arrays are shared
    summaries = [prepare.text_summary(p, []) for p in (plain, weighted, mixed)]
    assert len({summary["prepared"] for summary in summaries}) == 3
    assert prepare.find_prepared(summaries[2]).weights == mixed.weights
    assert prepare.report_lines(mixed)[-1] == "an epoch draws 64 x 0.75 + 4 x 6"


def test_no_share_and_no_temperature():
    """A corpus that cleaning emptied takes no share."""
    assert tempered((100, 0), (1.0, 1.0), 5.0) == (1.0, 1.0)
    with pytest.raises(UserError, match="data.temperature.* at least 0.001"):
        from_config_dict({"data": {"temperature": 0.0}})
