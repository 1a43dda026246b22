"""`starts.jsonl`: machine, libraries and ideas of every start, one object per line."""

import json
import time
from collections.abc import Sequence

from t2t_jax.io import atomic, ideas
from t2t_jax.io.messages import say
from t2t_jax.parallel.machine import machine_differences
from t2t_jax.parallel.nondeterminism import AUTOTUNING, keeps_kernel_choices
from t2t_jax.workdir import STARTS, Start, Workdir


def read_starts(workdir: Workdir) -> list[Start]:
    """The starts of a run, oldest first; leaves out those that are damaged."""
    return [start for start in workdir.starts() if start]


def starts_of_steps(
    starts: Sequence[Start], first_step: int, last_step: int, rolled_back: bool = False
) -> list[Start]:
    """The starts that executed some steps, as far as they are kept.

    A later start repeats what an earlier one had trained without saving it.

    Args:
      rolled_back: True if the run returned to an earlier checkpoint. It is not recorded
        which start did, so the later ones may have executed the steps, too.
    """

    def executed_by(step: int) -> int:
        return max(i for i, start in enumerate(starts) if start.step < step)

    if not any(start.step < first_step for start in starts):
        return list(starts)  # the first line is damaged: any of them
    # The start of a step changes only behind the steps that starts continued after.
    borders = {
        first_step,
        last_step,
        *(s.step + 1 for s in starts if first_step < s.step + 1 <= last_step),
    }
    numbers = {executed_by(step) for step in borders}
    if rolled_back:
        numbers = {*range(min(numbers), len(starts))}
    return [starts[i] for i in sorted(numbers)]


def record_start(workdir: Workdir, step: int, machine: dict[str, str | int]) -> None:
    """Records a start after `step`; warns if machine or ideas differ from the last.

    On the same machine with the same libraries a run is reproducible to the byte.
    Elsewhere it continues, but its results differ in their last bits.
    """
    file = workdir / STARTS
    content = file.read_bytes() if file.exists() else b""
    start = {"step": step, "time": int(time.time()), "machine": machine}
    if ideas.imported:
        start["ideas"] = dict(ideas.imported)
    # At step 0 nothing is trained yet, so an earlier machine does not matter.
    previous = workdir.last_start()
    if step and previous is None:
        say(
            f"warning: {file} is damaged or missing, so the machine of the last start "
            "is unknown; only the same machine continues to identical bytes"
        )
    elif step:
        _warn_if_changed("machine is", previous.machine, machine)
        ideas_before, ideas_now = previous.ideas, ideas.imported
        # Only what they contain matters, and not from where it was imported.
        if {*ideas_before.values()} != {*ideas_now.values()}:
            _warn_if_changed(
                "code of --ideas is", _short(ideas_before), _short(ideas_now)
            )
    if content and not content.endswith(b"\n"):
        content += b"\n"  # a damaged last line must not swallow the new one
    atomic.write_atomically(file, content + json.dumps(start).encode() + b"\n")


def check_kernel_choices(choices: str) -> None:
    """Warns if XLA may choose other kernels than `choices`, those of the last start."""
    if not keeps_kernel_choices(choices):
        say(
            "warning: the kernels that XLA chose for the last start are no longer all "
            f"in {AUTOTUNING} of the cache, so it may choose others; the run "
            "continues, but not to identical bytes"
        )


def _warn_if_changed(subject: str, recorded: dict, current: dict) -> None:
    """Warns with the fields that differ, such as `cores 2 -> 1`."""
    changed = ", ".join(
        f"{name} {old} -> {new}"
        for name, (old, new) in machine_differences(recorded, current).items()
    )
    if changed:
        say(
            f"warning: the {subject} not that of the last start ({changed}); the run "
            "continues, but not to identical bytes"
        )


def _short(hashes: dict[str, str]) -> dict[str, str]:
    return {name: f"SHA-256 {sha256[:12]}" for name, sha256 in hashes.items()}
