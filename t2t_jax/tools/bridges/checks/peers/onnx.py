"""Computes logits of an exported graph in ONNX Runtime.

python -P onnx.py JOB.json
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime


def logits(job: dict) -> dict[str, np.ndarray]:
    """Returns `logits_0`, `logits_1`, ... of the pairs, [target, vocabulary]."""
    session = onnxruntime.InferenceSession(Path(job["model"]) / "model.onnx")

    def padded(rows: list) -> np.ndarray:
        ids = np.zeros((len(rows), job["length"]), np.int32)
        for place, row in zip(ids, rows, strict=True):
            place[: len(row)] = row
        return ids

    inputs = {
        "source": padded(job["sources"]),
        "source_length": np.array([len(row) for row in job["sources"]], np.int32),
        "target": padded(job["targets"]),
    }
    began = time.perf_counter()
    (found,) = session.run(None, inputs)
    seconds = time.perf_counter() - began
    of_rows = {
        f"logits_{row}": found[row, : len(target)]
        for row, target in enumerate(job["targets"])
    }
    return of_rows | {"seconds": np.array(seconds)}


TASKS = {"logits": logits}

if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_bytes())
    np.savez(job["output"], **TASKS[job["task"]](job))
