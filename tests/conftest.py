"""Set-up of all tests: their devices, their compiler, and the folders they share."""

import contextlib
import functools
import gc
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

# Where Python stores no bytecode (PYTHONDONTWRITEBYTECODE, usual in containers), every
# command that a test starts would compile JAX again. It is stored outside of all trees.
if sys.dont_write_bytecode:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ.setdefault(
        "PYTHONPYCACHEPREFIX", f"{tempfile.gettempdir()}/bytecode-{os.getuid()}"
    )

import hypothesis
import hypothesis.configuration
import jax
import jaxlib
import pytest

# No test asserts a time, and none writes into the repository.
hypothesis.configuration.set_hypothesis_home_dir(
    Path(tempfile.gettempdir()) / f"hypothesis-{os.getuid()}"
)
hypothesis.settings.register_profile("ours", deadline=None, database=None)
hypothesis.settings.load_profile("ours")
# XLA's fusion emitters take half of the time in which small programs are compiled. JAX
# 0.11 has no other way: with it all programs are those that users have.
if jaxlib.version.__version_info__ < (0, 11):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
os.environ["JAX_PLATFORMS"] = "cpu"  # of the commands that tests start
DEVICES = jax.devices()
HERE = Path(__file__).parent


# Files that take longest, begun first: or a worker would end alone with one of them.
LONG = [
    "model/test_laws_of_variants.py",
    "faults/test_kills.py",
    "test_end_to_end.py",
    "faults/test_signals.py",
    "processes/test_training.py",
    "decoding/test_bits.py",
    "faults/test_damage.py",
    "test_translate_command.py",
    "test_runs.py",
    "test_workdir_paths.py",
    "decoding/test_devices.py",
    "faults/test_disks.py",
    "faults/test_numbers.py",
    "test_old_workdirs.py",
    "training/test_checkpoint.py",
    "faults/test_two_runs.py",
    "decoding/test_translator_options.py",
    "decoding/test_search.py",
    "decoding/test_rules.py",
    "decoding/test_sampling.py",
    "decoding/explaining/test_beam_tree.py",
    "decoding/explaining/test_explain.py",
    "decoding/explaining/test_attribution.py",
    # These have slow tests only, or hardly any others.
    "test_notebooks.py",
    "test_docs_run.py",
    "parallel/test_mesh.py",
]


def pytest_addoption(parser):
    parser.addoption(
        "--ideas",
        action="append",
        default=[],
        help="a module that adds entries to the tables, over which the laws run",
    )


def pytest_configure(config):
    from t2t_jax.io import errors, ideas

    if config.getoption("--ideas"):
        from tests.model import cases  # noqa: F401  (notes the package's own entries)

        config.option.reportchars += "s"  # says why a law does not apply to the idea
    for module in config.getoption("--ideas"):
        try:
            ideas.load(module)
        except errors.UserError as e:
            raise pytest.UsageError(str(e)) from None


def pytest_collection_modifyitems(items):
    def place(item):
        name = item.path.relative_to(HERE).as_posix()
        return LONG.index(name) if name in LONG else len(LONG)

    items.sort(key=place)


# Words of the reason why a test is skipped, where that is a package.
PACKAGE = re.compile(r"could not import|\[peers\]|is missing|not installed|pip\b")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """A normal test needs no package that the extra `[test]` does not bring."""
    report = yield
    normal = not any(map(item.get_closest_marker, ("slow", "browser")))
    if report.skipped and normal and PACKAGE.search(str(report.longrepr)):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} is skipped: {report.longrepr[2]}. Run pip install -e "
            "'.[test]'; if the package is not in it, add it in setup.py, or mark the "
            "test slow."
        )
    return report


def pytest_collection_finish():
    gc.freeze()  # what is imported by now stays, and is not looked through again
    gc.set_threshold(20_000, 20, 20)  # tracing makes much that is no garbage


# ----------------------------------------------------------------------------- devices


@contextlib.contextmanager
def only(devices):
    """Whoever asks JAX for its devices is told of these."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("devices", "local_devices"):
            patch.setattr(jax, name, lambda *_, **__: devices)
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_device():
    """As a user of a CPU has it; and so as the commands that tests start have it."""
    with only(DEVICES[:1]):
        yield


@pytest.fixture(scope="session")
def all_devices():
    """For a test that says which of them it means."""
    return DEVICES


@pytest.fixture(scope="module")
def eight_devices(_one_device):
    """The tests of a file see all virtual devices."""
    with only(DEVICES):
        yield


# ---------------------------------------------------------------------------- compiler


@pytest.fixture(autouse=True, scope="session")
def _quick_compiler():
    """XLA spends little time on programs, here and in the commands that tests start.

    For what holds whoever compiles. A law about bits is one about the programs that
    users have: its file uses `users_compiler`.
    """
    from tests.compiler import optimizations

    with optimizations(False):
        yield


@pytest.fixture(scope="module")
def users_compiler(_quick_compiler):
    """Programs of a file's tests are compiled as users have them."""
    from tests.compiler import optimizations

    with optimizations(True):
        yield


# ------------------------------------------------------------- what the workers share


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder of all workers of this run of the tests."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(autouse=True, scope="session")
def _own_cache(shared):
    """What is compiled and prepared is kept for all tests, and for no others.

    Commands that tests start find it by their environment.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("T2T_JAX_CACHE", str(shared / "cache"))
        for name, value in (
            ("jax_compilation_cache_dir", str(shared / "xla")),
            ("jax_persistent_cache_min_compile_time_secs", 0),
        ):
            jax.config.update(name, value)
            patch.setenv(name.upper(), str(value))
        yield


@pytest.fixture(scope="session")
def text(shared):
    """Three small sets of text files; what is translated is short.

    Its lines go to blocks of one length, for which search is compiled but once.
    """
    from t2t_jax.extensions.grammar import corpus
    from tests.small_run import made_once, write_pairs

    def write(folder):
        lines = corpus.pairs("dev")
        short = [pair for pair in lines[300:] if max(map(len, pair)) <= 40]
        write_pairs(folder, train=lines[:300], dev=short[:20], test=short[20:30])

    return made_once(shared / "text", write)


@pytest.fixture(scope="session")
def trained(text, shared, _own_cache, _quick_compiler, tmp_path_factory):
    """A workdir, trained as if TensorFlow were not installed, that no test changes."""
    from t2t_jax import train
    from tests.small_run import config_for, contents, made_once

    def run(folder):
        with pytest.MonkeyPatch.context() as patch, only(DEVICES[:1]):
            patch.setitem(sys.modules, "tensorflow", None)
            scores = train(config_for(text), folder / "work")
        (folder / "scores").write_bytes(pickle.dumps(scores))

    folder_made = made_once(shared / "run", run)
    workdir = tmp_path_factory.mktemp("run") / "work"  # of this worker alone
    shutil.copytree(folder_made / "work", workdir)
    before = contents(workdir)
    yield workdir, pickle.loads((folder_made / "scores").read_bytes())
    assert contents(workdir) == before, "a test changed the workdir of all tests"


@pytest.fixture
def finished(trained, tmp_path):
    """A copy of that workdir, for a test to change."""
    return shutil.copytree(trained[0], tmp_path / "work")


@pytest.fixture(scope="module")
def compiled_once(_own_cache):
    """Runs in this process share what is compiled of their steps."""
    from tests import compiler

    with compiler.compiled_once():
        yield


@pytest.fixture
def signals_as_ever():
    """Where the tests run with a signal ignored (nohup), their runs would have it so.

    After a test everything is as it was.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {signum: signal.signal(signum, usual[signum]) for signum in usual}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.fixture
def start(tmp_path):
    """`start(2, *flags)` starts a command in two processes; see `tests/children.py`."""
    from tests import children

    with contextlib.ExitStack() as stack:
        yield functools.partial(children.start, stack, tmp_path)


@pytest.fixture(scope="session")
def commands():
    """Runs commands of the package; see `tests/commands.py`."""
    from tests.commands import Commands

    server = Commands()
    yield server
    server.close()
