"""Splits text into the pieces of an exported model, and joins them.

Needs sentencepiece alone. An export has a copy of this file, which its README.md and
its check both run.
"""

import re
from pathlib import Path

import sentencepiece

SPACE = "\u2581"
FAST = "nllb", "pegasus"  # kinds that Hugging Face's `tokenizers` splits


class Pieces:
    """Text to pieces of the source, and pieces of the target to text.

    Args:
      folder: has the SentencePiece models.
      described: the tokenizer; `kind` is that of our own SentencePiece models, or of a
        published one, whose special pieces and spaces have rules of their own.
    """

    def __init__(self, folder, described):
        self.source, self.target = (
            sentencepiece.SentencePieceProcessor(str(Path(folder) / described[side]))
            for side in ("source", "target")
        )
        self.kind, self.special = described["kind"], described["special"]
        self.first = described["source_prefix"]
        patterns = [
            r"\s*" * (piece == "<mask>") + re.escape(piece)
            for piece in sorted(self.special, key=len, reverse=True)
        ]
        self.split = re.compile(f"({'|'.join(patterns) or '(?!)'})").split

    def encode(self, line):
        if self.kind == "sentencepiece":
            line = line.replace("\uf8fe", "\uf8fe\uf8fe")
            line = line.replace(SPACE, "\uf8fe\uf8fd")
        if self.kind == "fairseq":  # text never spells a special piece
            pieces = self.source.encode(line, out_type=str)
            # Pieces with white space in them are split at it.
            return [*self.first, *" ".join(pieces).split()]
        pieces = list(self.first)
        for number, part in enumerate(self.split(line)):
            # Special pieces are every second of the parts.
            pieces += [part.lstrip()] if number % 2 else self.encode_part(part)
        return pieces

    def encode_part(self, text):
        tag, processor = "", self.source
        if self.kind == "marian" and (match := re.match(">>.*?<<", text, re.DOTALL)):
            tag = match[0]
        pieces = processor.encode(text[len(tag) :], out_type=str)
        if self.kind in FAST and text:
            if processor.normalize(text + "x").endswith(SPACE + "x"):
                pieces.append(SPACE)
        return [tag, *pieces] if tag else pieces

    def decode(self, pieces):
        kept = [piece for piece in pieces if piece not in self.special]
        if self.kind in FAST:
            begin = [piece.replace(SPACE, "") for piece in kept[:1]]
            return "".join(begin + kept[1:]).replace(SPACE, " ")
        if self.kind == "fairseq":
            return "".join(kept).replace(" ", "").replace(SPACE, " ").strip()
        text = self.target.decode_pieces(kept)
        if self.kind != "sentencepiece":
            return text.replace(SPACE, " ").strip()
        originals = {"\uf8fe\uf8fe": "\uf8fe", "\uf8fe\uf8fd": SPACE}
        return re.sub("|".join(originals), lambda match: originals[match[0]], text)
