"""Documents: consecutive lines of a one-sided text, up to an empty line."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator

from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.terminal.errors import UserError


@dataclasses.dataclass(frozen=True)
class Documents:
    """The documents of a text; an example is ("", lines joined by line feeds).

    Lines of white space alone separate documents; how many does not matter. Examples
    are numbered as documents, from 1.
    """

    lines: Corpus
    source: str = ""
    target: str = "documents"

    @property
    def place(self) -> str:
        """The place of the text."""
        return self.lines.place

    @property
    def name(self) -> str:
        """The name of the text."""
        return self.lines.name

    @property
    def weight(self) -> float:
        """How many times an epoch of training reads it."""
        return self.lines.weight

    def pairs(self) -> Iterator[Pair]:
        """Yields ("", document).

        Raises:
          UserError: The text has no document, or cannot be read.
        """
        text = (line for _, line in self.lines.pairs())
        none = True
        for has_text, lines in itertools.groupby(text, lambda line: bool(line.strip())):
            if has_text:
                none = False
                yield "", "\n".join(lines)
        if none:
            raise UserError(
                f"{self.place} has no document: all its lines are empty; want text, "
                "with an empty line between two documents"
            )

    def fingerprint(self) -> str:
        """A hash of that of the text."""
        of_lines = self.lines.fingerprint()
        return hashlib.sha256(f"documents {of_lines}".encode()).hexdigest()
