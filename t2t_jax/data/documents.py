"""Documents: consecutive lines of a one-sided text, up to an empty line."""

import hashlib
import itertools
from collections.abc import Iterator

from t2t_jax.data.corpus import Pair
from t2t_jax.data.wrapped_corpus import WrappedCorpus
from t2t_jax.io.errors import UserError


class Documents(WrappedCorpus):
    """The documents of a text; an example is ("", lines joined by line feeds).

    Lines of white space alone separate documents; how many does not matter. Examples
    are numbered as documents, from 1.
    """

    source, target = "", "documents"

    def pairs(self) -> Iterator[Pair]:
        """Yields ("", document).

        Raises:
          UserError: The text has no document, or cannot be read.
        """
        text = (line for _, line in self.corpus.pairs())
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
        of_lines = self.corpus.fingerprint()
        return hashlib.sha256(f"documents {of_lines}".encode()).hexdigest()
