"""On what machine each start of a run was: `starts.jsonl`, an object a line."""

import json
import time

from t2t_jax.files import atomic
from t2t_jax.terminal.messages import say
from t2t_jax.workdir.workdir import Workdir


def record_start(workdir: Workdir, step: int, machine: dict[str, str | int]) -> None:
    """Adds a start after a step, and says what is another machine than the last's.

    The same machine and libraries, the same bytes: where they differ the run goes on,
    but not to the bytes of one that was left alone.
    """
    file = workdir / "starts.jsonl"
    content = file.read_bytes() if file.exists() else b""
    if step and (last := _last(content)) is None:
        say(
            f"warning: {file} is damaged or gone: where the run was before is not "
            "known; only on the same machine does it go on to the same bytes"
        )
    elif step and (changed := _changed(last, machine)):
        say(
            f"warning: this is not where the run was before ({changed}); it goes on, "
            "but not to the same bytes"
        )
    start = {"step": step, "time": int(time.time()), "machine": machine}
    if content and not content.endswith(b"\n"):
        content += b"\n"
    atomic.write_atomically(file, content + json.dumps(start).encode() + b"\n")


def _last(content: bytes) -> dict | None:
    """The machine of the last start, if that can be read."""
    try:
        return dict(json.loads(content.splitlines()[-1])["machine"])
    except (ValueError, LookupError, TypeError):
        return None


def _changed(last: dict, machine: dict) -> str:
    """What differs."""
    return ", ".join(
        f"{name} {last.get(name)} -> {machine.get(name)}"
        for name in {**last, **machine}
        if last.get(name) != machine.get(name)
    )
