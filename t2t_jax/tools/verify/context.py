"""What all checks of one call of `verify` share: folders, and fixtures made once."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclasses.dataclass
class Context:
    """Where checks work, and what they share.

    Attributes:
      scratch: an empty folder, deleted at the end.
      workdir: the workdir of --workdir, or None.
      full: True with --full: a check may then measure more, or longer.
      began: when it was created, in seconds of `time.monotonic`.
    """

    scratch: Path
    workdir: str | None = None
    full: bool = False
    began: float = dataclasses.field(default_factory=time.monotonic)
    _shared: dict[str, object] = dataclasses.field(default_factory=dict)

    def folder(self, name: str) -> Path:
        """Returns a folder in the scratch folder, made if it does not exist."""
        folder = self.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """Returns what `make` returned at the first call with this name.

        For what several checks need and is dear: a small trained run, a compiled
        function. If `make` raises, the next check tries again.
        """
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]
