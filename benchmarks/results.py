"""Results of a measurement as JSON: rows, and the conditions that they depend on."""

import datetime
import json
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import jax

from t2t_jax import __version__
from t2t_jax.evaluation.provenance import code_version
from t2t_jax.io import atomic
from t2t_jax.io.errors import UserError
from t2t_jax.io.threads import core_count
from t2t_jax.parallel.machine import memory_here, processor_name

OURS = ("jax", "jaxlib", "flax", "optax", "numpy")
# The distributions of peers, which are listed where the process has imported them.
PEERS = ("torch", "transformers", "ctranslate2", "sentencepiece", "orbax-checkpoint")
# Instruction sets that matrix libraries choose their kernels by, as Linux names them.
INSTRUCTIONS = (
    *("avx2", "avx512f", "avx512_vnni", "avx512_bf16"),
    *("amx_tile", "amx_bf16", "amx_int8", "asimd", "sve"),
)


def conditions(**measured) -> dict:
    """Describes what a measurement depends on: code, command, machine and versions.

    Call it after the peers were imported: only their versions are listed, and
    PyTorch's choice of instructions.

    Args:
      measured: further facts, such as `matrix_peak`.
    """
    code = code_version()
    imported = [name for name in PEERS if _module(name) in sys.modules]
    torch = sys.modules.get("torch")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command(),
        **code,
        "machine": {
            "processor": processor_name(),
            "cores": core_count(),
            "memory_gigabytes": round(memory_here() / 1e9, 1),
            "instructions": instructions(),
            "torch_capability": torch and torch.backends.cpu.get_cpu_capability(),
            "device": jax.devices()[0].device_kind,
            "devices": jax.device_count(),
            "load": round(os.getloadavg()[0], 2),
        },
        "versions": {
            "python": sys.version.split()[0],
            "t2t_jax": __version__,
            **{name: metadata.version(name) for name in (*OURS, *imported)},
        },
        **measured,
    }


def _module(distribution: str) -> str:
    """The module that a distribution's import is recognised by."""
    return {"orbax-checkpoint": "orbax.checkpoint"}.get(distribution, distribution)


def command() -> str:
    """The command line of this process, without the path of the interpreter."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = ["-m", spec.name.removesuffix(".__main__")] if spec else sys.argv[:1]
    return shlex.join(["python", *name, *sys.argv[1:]])


def instructions() -> list[str]:
    """The instruction sets of this machine's processor; empty where unknown."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.is_file():
        return []
    words = {*cpuinfo.read_text(errors="replace").split()}
    return [name for name in INSTRUCTIONS if name in words]


def describe(environment: dict) -> str:
    """The conditions in a line, to be printed with a table."""
    machine, versions = environment["machine"], environment["versions"]
    processor = f"{machine['processor']}, {machine['cores']} cores"
    if machine["device"] != "cpu":
        processor = f"{machine['devices']} x {machine['device']}; {processor}"
    parts = [processor, " ".join(machine["instructions"]) or "unknown instructions"]
    if machine["torch_capability"]:
        parts.append(f"PyTorch uses {machine['torch_capability']}")
    # Printed in every table of ratios: it explains more of them than the programs do.
    for name, peak in environment.get("matrix_peak", {}).items():
        parts.append(f"matrix peak of {name} {peak / 1e9:,.0f} GFLOP/s")
    packages = ("jax", *(name for name in PEERS if name in versions))
    return "; ".join(
        [*parts, ", ".join(f"{name} {versions[name]}" for name in packages)]
    )


def check_new(path: str | None, flag: str = "output") -> None:
    """Refuses a file that already exists, before hours are spent on measuring."""
    if path is not None and os.path.lexists(path):
        raise UserError(
            f"--{flag}={path} is there already; name another file, or move it away: "
            "measurements are not overwritten"
        )


def write(
    path: str | None, rows: Sequence[dict], environment: dict | None = None
) -> None:
    """Writes rows and their conditions to a new file, atomically, if one is named.

    Args:
      path: such as `docs/results/NAME.json`; None writes nothing.
      rows: dicts that JSON can hold.
      environment: the `conditions`; by default those of now.
    """
    if path is None:
        return
    check_new(path)
    content = {**(environment or conditions()), "rows": [*rows]}
    atomic.write_atomically(path, f"{json.dumps(content, indent=2)}\n".encode())
