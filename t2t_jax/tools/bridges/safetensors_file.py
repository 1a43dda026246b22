"""Writes arrays as a .safetensors file.

The format: the header's length in 8 bytes, the header as JSON, then all arrays without
gaps. The header gives each array's type, shape and place.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

# The format's names of the types that this project stores, all little-endian.
TYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64"}
_ALIGNMENT = 8  # readers may map an array into memory where it starts


def write_safetensors(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes arrays under their names.

    Args:
      metadata: texts about the file. Transformers wants `{"format": "pt"}` of a file
        for PyTorch.
    """
    header: dict = {"__metadata__": dict(metadata)} if metadata else {}
    start = 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": TYPES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [start, start + tensor.nbytes],
        }
        start += tensor.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            # tobytes: C order, whatever the order in memory; scalars too.
            file.write(tensor.astype(tensor.dtype.newbyteorder("<")).tobytes())
