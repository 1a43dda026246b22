"""Labels of a classifier as a `Tokenizer`: one token for each label."""

from collections.abc import Sequence
from typing import Any

from t2t_jax.io.errors import UserError, did_you_mean


class Labels:
    """The labels in the order of their ids, from 0.

    There is no padding, begin or end: every row of the output layer is a label, so
    probabilities and label smoothing are over labels alone.

    Args:
      fields: `labels`, a list of at least two strings.
      name: the tokenizer as error messages call it.

    Raises:
      UserError: not such a list.
    """

    pad = bos = eos = unknown = -1
    source = None
    first: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    free_spaces = False

    def __init__(self, fields: dict[str, Any], name: str):
        labels = fields.get("labels")
        strings = isinstance(labels, list) and all(isinstance(x, str) for x in labels)
        if not strings or not len(labels) == len({*labels}) >= 2:
            raise UserError(
                f"{name} is damaged: got the labels {labels!r}; want a list of two or "
                "more different strings. Copy the file again, or train again"
            )
        self._labels = tuple(labels)
        self._ids = {label: i for i, label in enumerate(labels)}

    def __len__(self) -> int:
        return len(self._labels)

    def encode(self, lines: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Returns the id of each label, in a row of its own.

        Raises:
          UserError: a line is not one of the labels.
        """
        for line in lines:
            if line not in self._ids:
                raise UserError(
                    f"unknown label {line!r}" + did_you_mean(line, self._ids)
                )
        return [[self._ids[line]] for line in lines]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(self._labels[i] for i in row) for row in rows]

    def spelled(self, text: str) -> str:
        return text

    def spelling(self, token: int) -> str:
        return self._labels[token]

    def piece(self, token: int) -> str:
        return self._labels[token]

    def id_of(self, piece: str) -> int:
        return self._ids.get(piece, self.unknown)
