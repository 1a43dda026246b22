"""`metrics.jsonl`: the metrics of a run, one JSON object a line."""

import functools
import json
import math

from etils import epath

from t2t_jax.files.growing import BucketFile, append
from t2t_jax.files.locations import is_local
from t2t_jax.parallel import processes
from t2t_jax.terminal.messages import say


class MetricsLog:
    """Appends objects to a file, each once.

    A run that was killed makes some steps again: an object whose step and kind the file
    already holds is not written twice. Half a line left by a crash is cut off. After an
    object of kind `rollback` the steps after its own are other ones, and written anew.

    The file is the first process's; the others know and remember the same.

    Attributes:
      entries: the objects that count, in order.
    """

    def __init__(self, path: epath.PathLike):
        self._last: dict[str, int] = {}  # kind -> last step
        self.entries: list[dict] = []
        self.rollbacks = 0
        self._file = None
        opened = functools.partial(self._open, epath.Path(path))
        for entry in processes.from_first("metrics", opened):
            self._remember(entry)

    def _open(self, path: epath.Path) -> list[dict]:
        """The objects of the file, which is then open for more."""
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if not content[len(whole) :].startswith(
            b'{"step": '[: len(content) - len(whole)]
        ):
            whole = content + b"\n"  # not half a line of ours: it stays, and is told
        entries = []
        for number, line in enumerate(whole.splitlines(), 1):
            if entry := _parsed(line):
                entries.append(entry)
            else:
                say(f"warning: {path}, line {number} is damaged; left as it is, unused")
        if not is_local(path):
            self._file = BucketFile(path, whole)
            return entries
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        if len(whole) > len(content):
            append(self._file, b"\n")
        elif len(whole) < len(content):
            self._file.truncate(len(whole))
        return entries

    def write(self, step: int, kind: str, values: dict[str, float]) -> bool:
        """Writes one object; False if this step of this kind is there already."""
        if self.has(step, kind):
            return False
        # JSON has no nan or infinity: null.
        finite = {
            n: None if isinstance(v, float) and not math.isfinite(v) else v
            for n, v in values.items()
        }
        entry = {"step": step, "kind": kind, **finite}
        line = json.dumps(entry).encode() + b"\n"
        if isinstance(self._file, BucketFile):
            self._file.write(line)
            self._file.flush()
        elif self._file:
            append(self._file, line)
        self._remember(entry)
        return True

    def _remember(self, entry: dict) -> None:
        kind, step = entry["kind"], entry["step"]
        if kind == "rollback":
            self.rollbacks += 1
            self._last = {k: min(last, step) for k, last in self._last.items()}
            self.entries = [e for e in self.entries if e["step"] <= step]
        else:
            self._last[kind] = max(self._last.get(kind, -1), step)
            self.entries.append(entry)

    def has(self, step: int, kind: str) -> bool:
        """True if this step of this kind, or a later one, is there."""
        return kind != "rollback" and step <= self._last.get(kind, -1)

    def close(self) -> None:
        if self._file:
            self._file.close()


def _parsed(line: bytes) -> dict | None:
    """An object of the file, if that is what a line is."""
    try:
        entry = json.loads(line)
        whole = type(entry["step"]) is int and isinstance(entry["kind"], str)
    except (ValueError, LookupError, TypeError):
        return None
    return entry if whole else None
