"""Set-up of a process: its platform, its memory, and what is kept of compilation."""

import importlib.util
import os
import platform
import subprocess
import sys
import zlib
from pathlib import Path

import jax
import pytest
from jax._src.clusters import ClusterEnv

from t2t_jax.io.errors import UserError
from t2t_jax.parallel import nondeterminism, process_setup, rendezvous
from tests.small_run import ROOT

# A GPU's plugin, here with the client of a CPU, and a TPU that says when it is started.
PLATFORMS = """
import importlib.util, sys
from jax._src import xla_bridge
from jax.extend import backend
from t2t_jax.parallel import process_setup

def tpu():
    print("a TPU is started")
    raise RuntimeError

find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: name == "libtpu" or find_spec(name)
process_setup.has_tpu = lambda: sys.argv[1] == "True"
backend.register_backend_factory("tpu", tpu, priority=300)
backend.register_backend_factory("rocm", xla_bridge.make_cpu_client, priority=200)
process_setup.skip_absent_tpu()
print(*sorted(backend.backends()))
"""


@pytest.mark.parametrize(
    ("attached", "platforms", "expected"),
    [
        (False, "", "cpu rocm"),
        (True, "", "a TPU is started\ncpu rocm"),
        (False, "cpu", "cpu"),  # what the user chose stays
    ],
    ids=["absent", "attached", "chosen"],
)
def test_jax_chooses_among_all_platforms_but_an_absent_tpu(
    attached, platforms, expected
):
    """`libtpu` is installed; what is in /dev decides nothing."""
    output = subprocess.check_output(
        [sys.executable, "-c", PLATFORMS, str(attached)],
        env=os.environ | {"JAX_PLATFORMS": platforms},
        cwd=ROOT,
        text=True,
    )
    assert output.strip() == expected


def test_a_jax_that_lacks_an_argument_is_named(monkeypatch):
    def initialize(coordinator_address=None, num_processes=None):
        raise AssertionError

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    monkeypatch.setattr(jax, "__version__", "0.8.0")
    with pytest.raises(UserError, match=r"JAX 0\.8\.0 does not work.*pip install"):
        rendezvous.initialize()


def test_every_cluster_that_jax_knows_is_recognized_without_jax(monkeypatch):
    clusters = {cluster.__name__ for cluster in ClusterEnv._cluster_types}
    tpus = {"BaseTpuCluster", "GceTpuCluster", "GkeTpuCluster"}  # those need libtpu
    named = {"SlurmCluster", "OmpiCluster", "K8sCluster", "Mpi4pyCluster"}  # on request
    assert clusters <= tpus | named
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.setattr(rendezvous.os, "environ", {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert not rendezvous.may_have_others()
    for name in ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.setattr(rendezvous.os, "environ", {name: "1"})
        assert rendezvous.may_have_others()


FAULTS = """
import resource
import numpy as np
from t2t_jax.parallel.process_setup import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(50 << 20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults(), keep_freed_memory(), faults(), faults(), faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept_for_the_next_allocation():
    output = subprocess.check_output([sys.executable, "-c", FAULTS], text=True).split()
    assert output[1] == "True"
    assert int(output[-1]) < 50 < int(output[0])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder; JAX is configured as it is without a user's wishes."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    switches = (
        "jax_enable_compilation_cache",
        "jax_persistent_cache_enable_xla_caches",
    )
    previous = {name: getattr(jax.config, name) for name in (*names, *switches)}
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path))
    monkeypatch.delenv(names[1].upper(), raising=False)
    jax.config.update(names[0], None)
    yield tmp_path / "xla"
    for name, value in previous.items():
        jax.config.update(name, value)


def used():
    """The folder of compiled programs that is used."""
    process_setup.use_compilation_cache()
    return jax.config.jax_compilation_cache_dir


def test_it_is_the_users_alone_and_what_a_user_has_said_stays(cache):
    folder = Path(used())
    assert folder.parent == cache
    assert folder.stat().st_mode & 0o077 == 0
    jax.config.update("jax_compilation_cache_dir", "/their/folder")
    assert used() == "/their/folder"


def test_another_processor_or_jaxlib_has_another_folder(cache, monkeypatch):
    folders = set()
    for processor, version in (("A", "1"), ("B", "1"), ("A", "2"), ("A", "1")):
        with monkeypatch.context() as patch:
            patch.setattr(process_setup, "processor_name", lambda p=processor: p)
            patch.setattr(process_setup.metadata, "version", lambda _, v=version: v)
            jax.config.update("jax_compilation_cache_dir", None)
            folders.add(used())
    assert len(folders) == 3


def test_a_folder_that_cannot_be_used_is_only_told(cache, capsys):
    cache.write_text("a file")
    assert used() is None
    assert "warning: cannot use the compilation cache" in capsys.readouterr().err


def test_the_oldest_make_way(cache, monkeypatch):
    monkeypatch.setattr(process_setup, "CACHE_LIMIT", 250)
    folder = cache / "of an older jaxlib"
    folder.mkdir(parents=True)
    for age, name in enumerate("abcd"):
        (folder / name).write_bytes(b"x" * 100)
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    choice = folder / nondeterminism.AUTOTUNING / "of a kernel"
    choice.parent.mkdir()
    choice.write_bytes(b"x" * 100)
    os.utime(choice, (1, 1))
    used()
    assert sorted(f.name for f in folder.iterdir() if f.is_file()) == ["a", "b"]
    assert choice.exists()


def test_choices_of_kernels_may_grow_but_not_change(cache):
    assert nondeterminism.kernel_choices() == ""
    folder = Path(used()) / nondeterminism.AUTOTUNING
    folder.mkdir()
    for name in "ca":
        (folder / name).write_bytes(name.encode())
    choices = nondeterminism.kernel_choices()
    assert len(choices.split()) == 2
    (folder / "b").write_bytes(b"new")
    os.utime(folder / "a", (1, 1))  # a copy has other times
    assert nondeterminism.keeps_kernel_choices(choices)
    assert nondeterminism.keeps_kernel_choices("")
    (folder / "a").write_bytes(b"other")
    assert not nondeterminism.keeps_kernel_choices(choices)
    jax.config.update("jax_enable_compilation_cache", False)
    assert nondeterminism.kernel_choices() == ""


@pytest.mark.parametrize(
    ("flags", "folder", "message"),
    [
        ("", "/a", "add to XLA_FLAGS '--xla_gpu_exclude_nondeterministic_ops=true'"),
        (nondeterminism.GPU_FLAGS, "", "nothing keeps its choices"),
        (f"{nondeterminism.GPU_FLAGS} -off", "/a", "nothing keeps its choices"),
        ("--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0", "", None),
        (f"{nondeterminism.GPU_FLAGS} --xla_gpu_autotune_level=0", "", None),
        (nondeterminism.GPU_FLAGS, "/a", None),
    ],
)
def test_what_makes_two_runs_on_a_gpu_differ(
    flags, folder, message, cache, monkeypatch
):
    assert nondeterminism.nondeterminism() == ""  # of a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setenv("XLA_FLAGS", flags)
    jax.config.update("jax_compilation_cache_dir", folder or None)
    if "-off" in flags:
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    reason = nondeterminism.nondeterminism()
    assert message in reason if message else not reason


COMPILED = """
import jax, jax.numpy as jnp
from t2t_jax.parallel import process_setup
process_setup.set_up_process()
names, x = [], jnp.ones((7, 7))
jax.monitoring.register_event_listener(lambda name, **_: names.append(name))
def intact(x):
    return jnp.sort(jnp.sin(x) @ x)
def damaged(x):
    return jnp.sort(jnp.cos(x) @ x)
for function in (intact, damaged):
    names.clear()
    y = jax.jit(function)(x)
    print(y.tobytes().hex(), "/jax/compilation_cache/cache_hits" in names)
"""


def test_a_second_process_reads_it_and_survives_what_is_damaged(tmp_path):
    variables = (
        "JAX_COMPILATION_CACHE_DIR",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
    )
    clean = {name: value for name, value in os.environ.items() if name not in variables}
    paths = {"T2T_JAX_CACHE": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment = {**clean, **paths, "JAX_PLATFORMS": "cpu", variables[1]: "0"}

    def output():
        command = [sys.executable, "-c", COMPILED]
        return subprocess.check_output(command, env=environment, text=True).split()

    output1 = output()
    assert output1[1::2] == ["False", "False"]
    (file,) = (tmp_path / "xla").glob("*/jit_damaged-*-cache")
    file.write_bytes(zlib.compress(b"not an executable"))
    half = file.with_name("half-cache")
    half.write_bytes(zlib.compress(os.urandom(1000))[:500])
    output2 = output()
    assert output2[1::2] == ["True", "False"]
    assert output2[::2] == output1[::2]
    assert not half.exists()
