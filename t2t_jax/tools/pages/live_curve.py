"""Progress of a run in a notebook: one line that changes, and the curves so far."""

import contextlib
import sys
import time
from base64 import b64encode

from etils import epath


def live_curve(workdir: epath.PathLike) -> "LiveCurve | None":
    """Returns a curve if messages of this program appear in a notebook, else None."""
    shown = type(sys.stderr).__module__ == "ipykernel.iostream"
    return LiveCurve(workdir) if shown else None


class LiveCurve:
    """One output of a cell, replaced as training goes on; a line without matplotlib."""

    def __init__(self, workdir: epath.PathLike):
        self._workdir, self._line, self._picture = workdir, "", ""
        self._next, self._handle = 0.0, None  # the time of the next picture

    def show(self, line: str) -> None:
        """Replaces the line, and the picture if drawing takes little of the time."""
        from IPython.display import display

        self._line, began = line, time.monotonic()
        if began >= self._next:
            with contextlib.suppress(Exception):  # a picture ends no run
                self._picture = _picture(self._workdir)
            ended = time.monotonic()
            self._next = ended + 20 * (ended - began)
        data = {"text/plain": line, "text/html": f"<pre>{line}</pre>{self._picture}"}
        if self._handle:
            self._handle.update(data, raw=True)
        else:
            self._handle = display(data, raw=True, display_id=True)

    def close(self) -> None:
        """Shows all points."""
        self._next = 0.0
        if self._line:
            self.show(self._line)


def _picture(workdir: epath.PathLike) -> str:
    from t2t_jax.tools.pages.run_plots import figure

    source = b64encode(figure(workdir)._repr_png_()).decode()
    return f'<img alt="metrics by step" src="data:image/png;base64,{source}">'
