"""A TPU compiler that is installed is not taken for a TPU."""

import importlib.util

import jax
import pytest

from t2t_jax.parallel import process_setup


@pytest.mark.parametrize(
    ("has_tpu", "chosen", "decided"),
    [
        (False, None, [("jax_platforms", "cpu")]),
        (True, None, []),
        (False, "tpu", []),  # what the user chose stays
    ],
)
def test_without_a_tpu_jax_is_not_sent_to_look_for_one(
    has_tpu, chosen, decided, monkeypatch
):
    """JAX may choose its platforms, and libtpu is installed."""
    updates = []
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    if chosen:
        monkeypatch.setenv("JAX_PLATFORMS", chosen)
    monkeypatch.setattr(jax.config, "update", lambda *a: updates.append(a))
    undecided = property(lambda _: None)
    monkeypatch.setattr(type(jax.config), "jax_platforms", undecided, raising=False)
    installed = {"libtpu": True}
    monkeypatch.setattr(importlib.util, "find_spec", installed.get)
    monkeypatch.setattr(process_setup, "_has_tpu", lambda: has_tpu)
    monkeypatch.setattr(process_setup.Path, "exists", lambda _: False)
    process_setup.skip_absent_tpu()
    assert updates == decided
