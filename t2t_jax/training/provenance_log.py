"""`starts.jsonl`: machine, libraries and ideas of every start, one object per line."""

import json
import time

from t2t_jax.files import atomic
from t2t_jax.terminal import ideas
from t2t_jax.terminal.messages import say
from t2t_jax.workdir.workdir import STARTS, Workdir


def record_start(workdir: Workdir, step: int, machine: dict[str, str | int]) -> None:
    """Records a start after `step`; warns if machine or ideas differ from the last.

    On the same machine with the same libraries a run is reproducible to the byte.
    Elsewhere it continues, but its results differ in their last bits.

    Args:
      machine: as `describe_machine` returns it.
    """
    file = workdir / STARTS
    content = file.read_bytes() if file.exists() else b""
    start = {"step": step, "time": int(time.time()), "machine": machine}
    if ideas.imported:
        start["ideas"] = dict(ideas.imported)
    # At step 0 nothing is trained yet, so an earlier machine does not matter.
    if step and (last := workdir.last_start()) is None:
        say(
            f"warning: {file} is damaged or missing, so the machine of the last start "
            "is unknown; only the same machine continues to identical bytes"
        )
    elif step:
        _warn_if_changed("machine is", last["machine"], machine)
        before, now = last["ideas"], ideas.imported
        # Only what they contain matters, and not from where it was imported.
        if {*before.values()} != {*now.values()}:
            _warn_if_changed("code of --ideas is", _short(before), _short(now))
    if content and not content.endswith(b"\n"):
        content += b"\n"  # a damaged last line must not swallow the new one
    atomic.write_atomically(file, content + json.dumps(start).encode() + b"\n")


def _warn_if_changed(what: str, last: dict, now: dict) -> None:
    """Warns with the fields that differ, such as `cores 2 -> 1`."""
    changed = ", ".join(
        f"{name} {last.get(name)} -> {now.get(name)}"
        for name in {**last, **now}
        if last.get(name) != now.get(name)
    )
    if changed:
        say(
            f"warning: the {what} not that of the last start ({changed}); the run "
            "continues, but not to identical bytes"
        )


def _short(hashes: dict[str, str]) -> dict[str, str]:
    return {name: f"SHA-256 {sha256[:12]}" for name, sha256 in hashes.items()}
