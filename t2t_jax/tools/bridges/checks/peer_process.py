"""Runs another system in a process of its own, which knows nothing of t2t_jax.

Besides giving an independent answer, this keeps libraries apart that abort a process
which loads both, such as TensorFlow and the Triton that PyTorch brings.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax.io.errors import UserError

SCRIPTS = Path(__file__).parent / "peers"
_RUNNER = Path(__file__).with_name("peer_job.py")
# Script -> the packages that it imports.
NEEDS = {
    "argos": ("ctranslate2", "sentencepiece"),
    "ctranslate2_peer": ("ctranslate2", "sentencepiece"),
    "huggingface": ("torch", "transformers", "sentencepiece"),
    "safetensors": ("safetensors",),
    "stablehlo": ("jax",),
    "torch_files": ("torch",),
}


def missing_packages(script: str) -> list[str]:
    """The packages that a peer script needs and that are not installed."""
    return [name for name in NEEDS[script] if importlib.util.find_spec(name) is None]


def run(script: str, task: str, **job: Any) -> dict[str, Any]:
    """Runs a script of `peers/`; returns its JSON object, of `logits` a dict of arrays.

    Raises UserError with the last lines of its output if it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / ("result.npz" if task == "logits" else "result.json")
        file = Path(folder) / "job.json"
        file.write_text(json.dumps({"task": task, "output": str(output), **job}))
        # Not in the current folder, whose modules could shadow installed ones.
        process = subprocess.run(
            [sys.executable, "-P", _RUNNER, SCRIPTS / f"{script}.py", file],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            # This process may hold the accelerator, which others then cannot open.
            env=os.environ
            | {"JAX_PLATFORMS": "cpu", "TOKENIZERS_PARALLELISM": "false"},
        )
        if process.returncode or not output.exists():
            lines = (process.stderr or process.stdout).strip().splitlines()
            last_lines = "\n  ".join(lines[-12:])
            raise UserError(
                f"the other system could not compute {task!r} (exit status "
                f"{process.returncode}):\n  {last_lines}"
            )
        if task == "logits":
            with np.load(output) as arrays:
                return dict(arrays)
        return json.loads(output.read_text())
