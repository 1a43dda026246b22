"""The interface of a tokenizer, and the table of those that exist.

A tokenizer is stored as one file, `tokenizer.model` of a workdir: a SentencePiece
model, or a JSON object whose `"tokenizer"` names an entry of `TOKENIZERS`.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any, Protocol

from t2t_jax.data.tokenizers.sentencepieces import (
    FairseqSentencePieces,
    FastSentencePieces,
    MappedSentencePieces,
    Marian,
    SentencePieces,
)
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.sections import Table


class Tokenizer(Protocol):
    """Text of one language to token ids, and back.

    Attributes:
      pad: pads rows.
      bos: starts the decoder. It may be `eos` or `pad`.
      eos: ends a sentence; -1 if a target is complete without it, such as a label.
      unknown: stands for what the tokenizer cannot spell; -1 if there is none.
      first: tokens that every sentence begins with, such as that of its language.
      never: tokens that no translation contains, besides `pad` and `bos`.
      free_spaces: True if `decode` decides the spaces next to punctuation.
      source: the tokenizer of the source text if it encodes text otherwise with the
        same ids; None if this one does.
    """

    pad: int
    bos: int
    eos: int
    unknown: int
    first: tuple[int, ...]
    never: tuple[int, ...]
    free_spaces: bool
    source: "Tokenizer | None"

    def __len__(self) -> int:
        """Returns the number of ids."""

    def encode(self, lines: Sequence[str], threads: int) -> list[list[int]]:
        """Encodes lines without `first` and `eos`; `threads` may be -1: one a core."""

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decodes rows of ids without `pad`, `bos` and `eos`."""

    def spelled(self, text: str) -> str:
        """Returns the text in the characters that `spelling` uses."""

    def spelling(self, token: int) -> str | bytes:
        """Returns the text that a token adds: characters, or one byte of a character.

        A space comes with the token after it, or always with the one before it. Empty
        for a token that adds no text.
        """

    def piece(self, token: int) -> str:
        """Returns the name of a token, for a person to read."""

    def id_of(self, piece: str) -> int:
        """Returns the id of a name; `unknown` if there is none."""


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
        """Returns a row with the id of each label; raises UserError if unknown."""
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


# A tokenizer is a class made from (its JSON object as a dict, its name for error
# messages), and a line here: it, or its address.
TOKENIZERS = Table(
    {
        "bpe": "extensions.data.tokenizers.bpe.BytePairs",
        "fairseq": FairseqSentencePieces,
        "labels": Labels,
        "m2m100": MappedSentencePieces,
        "marian": Marian,
        "nllb": FastSentencePieces,
        "pegasus": FastSentencePieces,
    }
)


def pack(kind: str, **fields: Any) -> bytes:
    """Stores a tokenizer of the table as one file; `bytes` become base64."""
    return json.dumps(
        {"tokenizer": kind, **fields},
        ensure_ascii=False,
        default=lambda content: base64.b64encode(content).decode(),
    ).encode()


def parse(content: bytes, name: str) -> Tokenizer:
    """Reads a stored tokenizer: of `pack`, or a SentencePiece model.

    Raises:
      UserError: damaged, or of a kind that is not in the table; names the file.
    """
    if not content.startswith(b"{"):
        return SentencePieces(content, name)
    try:
        fields = dict(json.loads(content))
        kind = fields.pop("tokenizer")
    except (ValueError, TypeError, LookupError) as e:
        raise UserError(f"{name} is not a tokenizer: {e}") from None
    if kind not in TOKENIZERS:
        raise UserError(
            f"{name} is a tokenizer of kind {kind!r}, which this version does not have"
            f"{did_you_mean(str(kind), TOKENIZERS)}"
        )
    return TOKENIZERS[kind](fields, name)
