"""Computes logits of an exported graph in ONNX Runtime."""

from pathlib import Path

import numpy as np
import onnxruntime


def logits(job: dict) -> list[np.ndarray]:
    """Returns the logits of each pair, [target, vocabulary]."""
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
    (outputs,) = session.run(None, inputs)
    return [outputs[row, : len(target)] for row, target in enumerate(job["targets"])]


TASKS = {"logits": logits}
