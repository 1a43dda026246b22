"""Reads what `torch.save` wrote, and runs nothing of it; needs torch.

A pickle calls whatever it names. `torch.load(weights_only=True)` calls only what makes
tensors and plain containers, and what `ALLOWED` names.
"""

import re

import numpy as np
import torch

# Files could run code in earlier versions: CVE-2025-32434 and CVE-2026-24747.
SAFE = (2, 10)


class Record(dict):
    """An object of which only the attributes are read: they are its items."""

    def __init__(self, *arguments):
        super().__init__({"arguments": arguments} if arguments else {})

    def __setstate__(self, state):
        self.update(state if isinstance(state, dict) else {"state": state})


# Types and objects of these are read as records.
RECORDS = (
    "argparse.Namespace",
    "builtins.dict",
    "builtins.float",
    "builtins.int",
    "builtins.list",
    "builtins.str",
    "fairseq.meters.AverageMeter",
    "fairseq.meters.StopwatchMeter",
    "fairseq.meters.TimeMeter",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy.dtype",
    "numpy.ndarray",
    "pathlib.PosixPath",
)


def _default_dict(*_) -> dict:
    """A dict instead of one that calls a function for its missing keys."""
    return {}


ALLOWED = [
    *((Record, name) for name in RECORDS),
    (_default_dict, "collections.defaultdict"),
    (frozenset, "builtins.frozenset"),
]


def tensors(job):
    """Stores the state dict of a file as .npz, its arrays numbered.

    Args:
      job: `model`, the file; `mmap`, true for an archive; `keys` that may hold the
        state dict, if it is not the file's whole content; `arrays`, the .npz to write.

    Returns:
      `names` of the arrays; the `key` that holds them, or ""; all other `values`, as
      JSON has them. Or `refused`: why the file is not read.
    """
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < SAFE:
        return {
            "refused": f"is not read with torch {torch.__version__}, in which a file "
            "can run code; pip install 'torch>=2.10'"
        }
    try:
        with torch.serialization.safe_globals(ALLOWED):
            content = torch.load(
                job["model"], map_location="cpu", weights_only=True, mmap=job["mmap"]
            )
        key = _key(content, job["keys"])
        if key is None:
            return {"refused": _no_state(content)}
        state = content[key] if key else content
        arrays = {str(i): _array(name, state[name]) for i, name in enumerate(state)}
        values = {name: x for name, x in content.items() if name != key} if key else {}
        result = {"names": [*state], "key": key, "values": _plain(values)}
    except Exception as e:  # of any kind: the file may be damaged anywhere
        return {"refused": _reason(e)}
    np.savez(job["arrays"], **arrays)
    return result


def _key(content, keys):
    """The key of the dict of tensors: "" if it is the content, None without one."""
    if not isinstance(content, dict):
        return None
    for key in ("", *keys):
        state = content.get(key) if key else content
        if isinstance(state, dict) and state:
            if all(isinstance(name, str) for name in state) and all(
                isinstance(x, torch.Tensor) for x in state.values()
            ):
                return key
    return None


def _no_state(content) -> str:
    keys = [str(key) for key in content] if isinstance(content, dict) else []
    return (
        "is not a dict of tensors"
        + (f"; its keys are {', '.join(keys[:8])}" if keys else "")
        + "; save the model's state_dict() alone"
    )


def _array(name: str, x: torch.Tensor) -> np.ndarray:
    """A tensor as NumPy has it: float32 for bfloat16 and other types that it lacks."""
    # A view may repeat elements; one with more than its storage has is a bomb.
    if x.numel() * x.element_size() > x.untyped_storage().nbytes():
        raise ValueError(f"{name} has more elements than are stored")
    numpy_types = (torch.float64, torch.float32, torch.float16)
    if x.is_floating_point() and x.dtype not in numpy_types:
        x = x.float()
    return x.detach().numpy()


def _plain(x):
    """The values that JSON has: tensors are left out, all else is text."""
    if isinstance(x, dict):
        return {str(key): _plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple | set | frozenset):
        return [_plain(item) for item in x]
    if x is None or isinstance(x, bool | int | float | str):
        return x
    return None if isinstance(x, torch.Tensor) else str(x)


def _reason(error: Exception) -> str:
    """Says why `torch.load` does not read a file, without its advice to trust it."""
    text = str(error)
    if name := re.search(r"GLOBAL (\S+) (?:was not|whose module)", text):
        return (
            f"holds an object of {name[1]}. A file from elsewhere could run any "
            "program through it, so only tensors and plain containers are read, and "
            "nothing was run; save its state_dict alone, or use safetensors"
        )
    text = text.partition("WeightsUnpickler error:")[2] or text
    line = (text.strip().splitlines() or [""])[0].partition(". ")[0]
    return (
        "is damaged or truncated, or holds more than tensors and plain containers "
        f"(torch.load says {type(error).__name__}: {line}); download it again, or "
        "save its state_dict alone"
    )


TASKS = {"tensors": tensors}
