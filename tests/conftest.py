"""Set-up of all tests: eight virtual devices, and a cache folder of their own."""

import os
import sys

import hypothesis
import jax
import pytest

hypothesis.settings.register_profile(
    "no clock", deadline=None
)  # no test asserts a time
hypothesis.settings.load_profile("no clock")
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)


# Files of few tests that take long: begun first, or a worker would end alone with them.
LONG = {
    *("test_kills.py", "test_training.py", "test_notebooks.py", "test_damage.py"),
    *("test_wmt_through_tfds.py", "test_mesh.py", "test_signals.py"),
    *("test_starts_and_stops.py", "test_main_job.py"),
}


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    compiled = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # shared by the workers
        compiled = compiled.parent
    jax.config.update("jax_compilation_cache_dir", str(compiled / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    before = os.environ.get("T2T_JAX_CACHE")
    os.environ["T2T_JAX_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["T2T_JAX_CACHE"]
    else:
        os.environ["T2T_JAX_CACHE"] = before


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Three small sets of text files."""
    from t2t_jax.grammar import corpus

    folder = tmp_path_factory.mktemp("text")
    lines = corpus.pairs("dev")
    for name, part in (
        ("train", lines[:300]),
        ("dev", lines[300:320]),
        ("test", lines[320:330]),
    ):
        for side, language in enumerate(("en", "de")):
            content = "".join(pair[side] + "\n" for pair in part)
            (folder / f"{name}.{language}").write_text(content, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def trained(text, _own_cache, tmp_path_factory):
    """A workdir, trained as if TensorFlow were not installed, that no test changes."""
    from t2t_jax import train
    from tests.small_run import config_for, contents

    workdir = tmp_path_factory.mktemp("run") / "work"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tensorflow", None)
        scores = train(config_for(text), workdir)
    before = contents(workdir)
    yield workdir, scores
    assert contents(workdir) == before, "a test changed the workdir of all tests"
