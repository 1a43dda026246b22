"""A JAX that cannot connect processes as we ask is named, not taken for the network."""

import jax
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.parallel import rendezvous


def test_a_jax_that_lacks_an_argument_is_named(monkeypatch):
    def older(coordinator_address=None, num_processes=None):
        raise AssertionError

    monkeypatch.setattr(jax.distributed, "initialize", older)
    monkeypatch.setattr(jax, "__version__", "0.8.0")
    with pytest.raises(UserError, match=r"JAX 0\.8\.0 does not work.*pip install"):
        rendezvous.initialize()
