"""What a person sees of a run, and what is kept of it.

A live progress bar in a terminal and plain lines elsewhere; `metrics.jsonl`, one object
a line; TensorBoard files, written without TensorFlow.
"""

import json
import math
import sys
from pathlib import Path

import tensorboardX
import tqdm

from t2t_jax.screen import say


class JsonLines:
    """Appends objects to a file, each once.

    A run that was killed makes some steps again: an object whose step and kind the file
    already holds is not written twice. Half a line left by a crash is cut off.
    """

    def __init__(self, path: Path):
        self._last: dict[str, int] = {}  # kind -> last step
        self.dev: list[dict] = []  # the entries of kind `dev`, in order
        whole = 0
        if path.exists():
            with open(path, "rb") as f:
                for line in f:
                    if not line.endswith(b"\n"):
                        break
                    whole += len(line)
                    entry = json.loads(line)
                    self._remember(entry)
        self._file = path.open("ab")
        if self._file.tell() != whole:
            self._file.truncate(whole)

    def write(self, step: int, kind: str, values: dict[str, float]) -> bool:
        """Writes one object; False if this step of this kind is there already."""
        if self.has(step, kind):
            return False
        # JSON has no nan or infinity: null.
        finite = {n: v if math.isfinite(v) else None for n, v in values.items()}
        entry = {"step": step, "kind": kind, **finite}
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        self._remember(entry)
        return True

    def _remember(self, entry: dict) -> None:
        kind = entry.get("kind", "")
        self._last[kind] = max(self._last.get(kind, -1), entry["step"])
        if kind == "dev":
            self.dev.append(entry)

    def has(self, step: int, kind: str) -> bool:
        """True if this step of this kind, or a later one, is there."""
        return step <= self._last.get(kind, -1)

    def close(self) -> None:
        self._file.close()


class Watch:
    """Tells of a run on the screen and in the workdir's files."""

    def __init__(self, workdir: Path, first_step: int, steps: int):
        self._lines = JsonLines(workdir / "metrics.jsonl")
        self._board = tensorboardX.SummaryWriter(
            str(workdir / "tensorboard"), purge_step=first_step + 1, flush_secs=30
        )
        self._bar = tqdm.tqdm(
            total=steps,
            initial=first_step,
            unit="step",
            desc="train",
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
        )
        self._steps = steps

    def record(self, step: int, kind: str, values: dict[str, float]) -> None:
        """Keeps metrics of a step; `kind` is `train` or `dev`."""
        if self._lines.write(step, kind, values):
            for name, value in values.items():
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def bleu(self) -> dict[int, float]:
        """The BLEU of each evaluation so far, by step."""
        return {e["step"]: e["bleu"] for e in self._lines.dev if "bleu" in e}

    def has(self, step: int, kind: str) -> bool:
        """True if metrics of this kind are kept of this step already."""
        return self._lines.has(step, kind)

    def progress(
        self, step: int, values: dict[str, float], seconds_left: float
    ) -> None:
        """Shows where training is: the bar in a terminal, a line elsewhere."""
        shown = {
            "loss": f"{values['loss']:.3f}",
            "tokens/s": f"{values['tokens_per_second']:,.0f}",
        }
        if values["skipped"]:
            shown["skipped"] = f"{values['skipped']:.0f}"
        if not self._bar.disable:
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update(step - self._bar.n)
        else:
            told = "  ".join(f"{name} {value}" for name, value in shown.items())
            left = tqdm.tqdm.format_interval(seconds_left)
            say(f"step {step:,}/{self._steps:,}  {told}  left {left}")

    def close(self) -> None:
        """Ends the bar and the files."""
        self._bar.close()
        self._board.close()
        self._lines.close()
