"""The engine of a translation server: lines of all clients share batches of fixed shape.

`Engine.translate` is called by the event loop; worker threads own the searches. An
answer does not depend on the load: it is to the bit what `Translator.translate` gives
for that line alone with the same options.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from t2t_jax.decoding.results import Alignment, Score, Translation
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError


@dataclasses.dataclass(frozen=True)
class Options:
    """What the answer to a line depends on besides its text.

    Attributes:
      beam: one of `Engine.limits.beams`; None: the first of them.
      nbest: hypotheses to return, at most the beam.
      prefix: the text that the translation begins with.
      must, must_not: phrases that it contains, or does not contain.
    """

    beam: int | None = None
    nbest: int = 1
    prefix: str = ""
    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Limits:
    """What is compiled before the server is ready; anything else is refused.

    Attributes:
      beams: the first is the default.
      longest: tokens of a source, with its end.
      phrases: of a line: those in `must`, and one for all of `must_not`.
      states: of the automata of all phrases that are being searched with.
    """

    beams: tuple[int, ...] = (4,)
    longest: int = 128
    phrases: int = 4
    states: int = 1024


class Overloaded(Exception):
    """The deadline cannot be met: `retry_after` is in seconds."""

    def __init__(self, retry_after: float):
        super().__init__(f"the queue is too long; retry after {retry_after:.0f} s")
        self.retry_after = retry_after


class Late(Exception):
    """The deadline has passed; the lines were removed from the queue."""


class Stopping(Exception):
    """The server takes no more lines, and answers those that it has."""


@dataclasses.dataclass(frozen=True)
class Direction:
    """A translator that is served.

    Attributes:
      name: such as `en-de`.
      source, target: the languages' codes, such as `en` and `de`.
    """

    name: str
    source: str
    target: str
    translator: Translator


@dataclasses.dataclass(frozen=True)
class Details:
    """More about one translation: of each target token its text and log-probability
    (with the end), and the links of source to target words."""

    score: Score
    alignment: Alignment | None  # None: the model has no attention to the source


class Engine:
    """Translates lines of many clients at once.

    Attributes:
      directions: by name, in the order of the command line; the first is the default.
      limits: what is compiled.
      ready: everything is compiled.
      compilations: programs compiled since it is ready; 0 unless something is wrong.

    Args:
      translators: by name.
    """

    directions: Mapping[str, Direction]
    limits: Limits
    ready: bool
    compilations: int

    def warm_up(self, report: Callable[[str], None]) -> None:
        """Compiles all programs; blocks. `report` gets lines about progress."""

    def queued(self) -> int:
        """The number of lines that wait or are being searched."""

    async def translate(
        self,
        direction: str,
        lines: Sequence[str],
        options: Sequence[Options],
        *,
        client: str,
        deadline: float,
    ) -> list[Translation | UserError]:
        """Translates lines; in order. A line that is refused has its error instead.

        If the task is cancelled, its lines leave the queue and the batches.

        Args:
          options: of each line.
          client: lines of all clients take turns, and so do the calls of a client.
          deadline: of `time.monotonic()`.

        Raises:
          Overloaded, Late, Stopping: for all lines together.
        """

    async def details(
        self,
        direction: str,
        pairs: Sequence[tuple[str, Translation]],
        *,
        client: str,
        deadline: float,
    ) -> list[Details]:
        """Scores tokens and aligns words of translations. Raises as `translate`."""

    async def close(self) -> None:
        """Takes no more lines, waits for those that it has, and ends the threads."""

    def reload(self, direction: str, translator: Translator) -> None:
        """Takes over new parameters of the same shapes for lines that come from now on.

        Raises:
          UserError: the model has another config or vocabulary.
        """
