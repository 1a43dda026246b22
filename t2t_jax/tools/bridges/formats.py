"""Formats: models that `import` reads, and folders that `export` writes.

A format is one file with a function, and a line in `table.py`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from t2t_jax.config import Config
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.model.layers import Parameters


class Request(NamedTuple):
    """The user's description of a model to import; empty or None if not given.

    Attributes:
      path: the model: a folder or a file.
      source, target: languages, as the model names them (`eng_Latn`, `de`).
      tokenizer, source_tokenizer: SentencePiece models, for formats without a
        tokenizer of their own.
      model: fields of `config.model` that the file does not tell, such as heads.
    """

    path: Path
    source: str = ""
    target: str = ""
    tokenizer: Path | None = None
    source_tokenizer: Path | None = None
    model: Mapping[str, Any] = MappingProxyType({})


class Imported(NamedTuple):
    """A model that was read.

    Attributes:
      config: its `model`, languages, `data.joint_vocabulary`, vocabulary sizes, and
        search options (`decode.beam`, `decode.alpha`, `decode.penalty`).
      parameters: float32 NumPy arrays.
      peer: the arguments of the format's peer script, JSON-serializable.
      notes: sentences for the user about what differs from the original.
    """

    config: Config
    vocabulary: Vocabulary
    parameters: Parameters
    peer: dict[str, Any]
    notes: tuple[str, ...] = ()


class ImportFormat(NamedTuple):
    """A format that `import` reads.

    Attributes:
      name: as users know it.
      recognize: True if a path looks like it; reads file names and a config at most.
      read: raises UserError for all that it cannot read exactly.
      peer: a script in bridges/peers/ that runs the original; None if none exists.
      reads: the fields of a request that it uses besides the path.
    """

    name: str
    recognize: Callable[[Path], bool]
    read: Callable[[Request], Imported]
    peer: str | None
    reads: tuple[str, ...] = ("source", "target", "model")


class ExportFormat(NamedTuple):
    """A format that `export` writes.

    Attributes:
      name: as users know it.
      write: (translator, folder, options) -> JSON for the peer; the folder exists and
        is empty. Raises UserError for a model that the format cannot hold.
      peer: a script in bridges/peers/ that loads the result, in a process without
        t2t_jax.
      checks: the tasks of the peer script: `greedy` and `beam` for translations,
        `logits` for a format without a search, `values` for one of weights alone.
      options: names of the command's options that it uses, such as `quantization`.
    """

    name: str
    write: Callable[[Translator, Path, dict[str, Any]], dict[str, Any]]
    peer: str
    checks: tuple[str, ...] = ("greedy", "beam")
    options: tuple[str, ...] = ()

    @property
    def holds_weights(self) -> bool:
        """True if it holds weights alone, which those of any model can be."""
        return self.checks == ("values",)
