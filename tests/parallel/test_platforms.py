"""A TPU compiler that is installed is not taken for a TPU."""

import importlib.util

import jax
import pytest

from t2t_jax.parallel import process_setup


@pytest.fixture
def undecided(monkeypatch):
    """JAX may choose its platforms, and libtpu is installed."""
    chosen = []
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(process_setup.jax.config, "update", lambda *a: chosen.append(a))
    before = jax.config.jax_platforms
    monkeypatch.setattr(
        type(jax.config), "jax_platforms", property(lambda _: None), raising=False
    )
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: True if name == "libtpu" else None
    )
    yield chosen
    assert before == "cpu"


def test_without_a_tpu_jax_is_not_sent_to_look_for_one(undecided, monkeypatch):
    monkeypatch.setattr(process_setup, "_has_tpu", lambda: False)
    monkeypatch.setattr(process_setup.Path, "exists", lambda _: False)
    process_setup.skip_absent_tpu()
    assert undecided == [("jax_platforms", "cpu")]


def test_with_a_tpu_nothing_is_decided(undecided, monkeypatch):
    monkeypatch.setattr(process_setup, "_has_tpu", lambda: True)
    process_setup.skip_absent_tpu()
    assert not undecided


def test_what_the_user_chose_stays(undecided, monkeypatch):
    monkeypatch.setattr(process_setup, "_has_tpu", lambda: False)
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    process_setup.skip_absent_tpu()
    assert not undecided
