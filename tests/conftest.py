"""Set-up of all tests: eight virtual devices, and a cache folder of their own."""

import os

import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("xla")))
    before = os.environ.get("T2T_JAX_CACHE")
    os.environ["T2T_JAX_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["T2T_JAX_CACHE"]
    else:
        os.environ["T2T_JAX_CACHE"] = before
