"""`starts.jsonl`: machine and library versions of every start, one object per line."""

import json
import time

from t2t_jax.files import atomic
from t2t_jax.terminal.messages import say
from t2t_jax.workdir.workdir import Workdir


def record_start(workdir: Workdir, step: int, machine: dict[str, str | int]) -> None:
    """Records a start after `step`, and warns if the machine differs from the last.

    On the same machine with the same libraries a run is reproducible to the byte.
    Elsewhere it continues, but its results differ in their last bits.

    Args:
      machine: as `describe_machine` returns it.
    """
    file = workdir / "starts.jsonl"
    content = file.read_bytes() if file.exists() else b""
    # At step 0 nothing is trained yet, so an earlier machine does not matter.
    if step and (last := _last(content)) is None:
        say(
            f"warning: {file} is damaged or missing, so the machine of the last start "
            "is unknown; only the same machine continues to identical bytes"
        )
    elif step and (changed := _changed(last, machine)):
        say(
            f"warning: the machine is not that of the last start ({changed}); the run "
            "continues, but not to identical bytes"
        )
    start = {"step": step, "time": int(time.time()), "machine": machine}
    if content and not content.endswith(b"\n"):
        content += b"\n"  # a damaged last line must not swallow the new one
    atomic.write_atomically(file, content + json.dumps(start).encode() + b"\n")


def _last(content: bytes) -> dict | None:
    """The machine of the last start, or None if it is unreadable."""
    try:
        return dict(json.loads(content.splitlines()[-1])["machine"])
    except (ValueError, LookupError, TypeError):
        return None


def _changed(last: dict, machine: dict) -> str:
    """The fields that differ, such as `cores 2 -> 1`."""
    return ", ".join(
        f"{name} {last.get(name)} -> {machine.get(name)}"
        for name in {**last, **machine}
        if last.get(name) != machine.get(name)
    )
