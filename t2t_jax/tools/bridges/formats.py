"""Formats: models that `import` reads, and folders that `export` writes.

A format is a function in a file of `families/` or `exports/`, and a line in `table.py`.
Formats that are read share the functions here, which make a config of ours.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from t2t_jax.config import (
    Config,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    from_config_dict,
)
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.model.layers import Parameters
from t2t_jax.text.languages import same_language
from t2t_jax.tools.bridges.model_files import Fields
from t2t_jax.tools.bridges.weights import Tensors


class Request(NamedTuple):
    """The user's description of a model to import; empty or None if not given.

    Attributes:
      path: the model: a folder or a file.
      source, target: languages, as the model names them (`eng_Latn`, `de`).
      tokenizer, source_tokenizer: SentencePiece models, for formats without a
        tokenizer of their own.
      model: fields of `config.model` that the file does not state, such as heads.
    """

    path: Path
    source: str = ""
    target: str = ""
    tokenizer: Path | None = None
    source_tokenizer: Path | None = None
    model: Mapping[str, Any] = MappingProxyType({})

    def located(self) -> "Request":
        """The same with paths in place of strings; in them, `~` is home."""
        files = {
            name: Path(file).expanduser()
            for name in ("path", "tokenizer", "source_tokenizer")
            if (file := getattr(self, name))
        }
        return self._replace(**files)


class Imported(NamedTuple):
    """A model that was read."""

    # Its `model`, languages, `data.joint_vocabulary`, vocabulary sizes, and search
    # options (`decode.beam`, `decode.alpha`, `decode.penalty`).
    config: Config
    vocabulary: Vocabulary
    parameters: Parameters  # float32 NumPy arrays
    peer: dict[str, Any]  # arguments of the format's peer script, JSON-serializable
    notes: tuple[str, ...] = ()  # for the user: what differs from the original


class ImportFormat(NamedTuple):
    """A format that `import` reads."""

    name: str  # as users know it
    # True if a path looks like it; reads file names and a config at most.
    recognize: Callable[[Path], bool]
    # Raises UserError for all that it cannot read exactly.
    read: Callable[[Request], Imported]
    peer: str | None  # a script in checks/peers/ that runs the original, if one exists
    # The fields of a request that it uses besides the path.
    reads: tuple[str, ...] = ("source", "target", "model")
    checked: str = ""  # how `read` compares all values itself, in words


class ExportFormat(NamedTuple):
    """A format that `export` writes."""

    name: str  # as users know it
    # (translator, empty folder, options) -> JSON for the peer. Raises UserError for a
    # model that the format cannot hold.
    write: Callable[[Translator, Path, dict[str, Any]], dict[str, Any]]
    # A script in checks/peers/ that loads the result, in a process without t2t_jax.
    peer: str
    # Its tasks: `greedy` and `beam` for translations, `values` for weights alone.
    checks: tuple[str, ...] = ("greedy", "beam")
    options: tuple[str, ...] = ()  # of the command, such as `quantization`

    @property
    def holds_weights(self) -> bool:
        """True if it holds weights alone, which those of any model can be."""
        return self.checks == ("values",)


def load_vocabulary(target_file: Path, source_file: Path | None = None) -> Vocabulary:
    """Loads a tokenizer of ours or of SentencePiece; the source may have its own."""
    source = Vocabulary.load(source_file) if source_file else None
    return Vocabulary(Vocabulary.load(target_file).model, str(target_file), source)


# ------------------------------------------------------ the config of an imported model

# Options of sinusoids as Tensor2Tensor computes them, and others after it: all sines
# before all cosines, and frequencies whose last is 1/10000 exactly.
TENSOR2TENSOR = {"sinusoid_layout": "half", "sinusoid_spacing": "tensor2tensor"}


def languages(
    request: Request,
    stated: tuple[str, str] = ("", ""),
    guessed: tuple[str, str] = ("", ""),
    several: bool = False,
) -> tuple[str, str]:
    """Returns source and target: the user's, those in the files, or those guessed.

    A model of `several` languages may have others than its files name.
    """
    pair = []
    for side, in_files, guess in zip(
        ("source", "target"), stated, guessed, strict=True
    ):
        choice = getattr(request, side)
        if choice and in_files and not (several or same_language(choice, in_files)):
            raise UserError(
                f"--{side}={choice}, but {request.path} says {in_files}; leave "
                f"--{side} out"
            )
        if not (language := choice or in_files or guess):
            raise UserError(
                f"{request.path} does not say its {side} language; add --{side}=, such "
                f"as --{side}=en"
            )
        pair.append(language)
    return pair[0], pair[1]


# Options of the search against repetitions -> their names in Hugging Face and
# CTranslate2. Hugging Face changes log-probabilities in a beam, and not logits, so
# models are compared without: `NO_CHANGE`.
REPETITION = {
    "no_repeat_ngram": "no_repeat_ngram_size",
    "repetition_penalty": "repetition_penalty",
}
NO_CHANGE = {name: getattr(DecodeConfig, name) for name in REPETITION}


def repetition_fields(decode: DecodeConfig) -> dict[str, Any]:
    """Returns the options against repetitions that have an effect, by their names."""
    values = {name: getattr(decode, name) for name in REPETITION}
    return {REPETITION[n]: x for n, x in values.items() if x != NO_CHANGE[n]}


def imported_config(
    request: Request,
    name: str,
    model: Mapping[str, Any],
    vocabulary: Vocabulary,
    pair: tuple[str, str],
    decode: Mapping[str, Any],
) -> Config:
    """Puts the config together from fields of `model` and of `decode`.

    Raises UserError if the user's fields contradict `model`, which `name` states.
    """
    for field, value in request.model.items():
        if model.get(field, value) != value:
            raise UserError(
                f"--config.model.{field}={value}, but {name} says {model[field]}; "
                "leave it out"
            )
    longest = model.get("max_positions", DecodeConfig.max_source)
    return from_config_dict(
        {
            "model": {**request.model, **model},
            "data": {
                "source": pair[0],
                "target": pair[1],
                "joint_vocabulary": vocabulary.joint,
                "vocab_size": len(vocabulary),
                "source_vocab_size": 0 if vocabulary.joint else len(vocabulary.source),
                "max_length": min(DataConfig.max_length, longest),
            },
            "decode": {"average": 1, "max_source": longest, **decode},
        }
    )


def check_size(name: str, tensors: Tensors, table: str, vocabulary: Vocabulary):
    """Checks that a table of embeddings has a row for each piece."""
    rows = len(tensors[table]) if table in tensors else len(vocabulary)
    if rows != len(vocabulary):
        raise UserError(
            f"{name}: {table} has {rows:,} rows, and {vocabulary.name} has "
            f"{len(vocabulary):,} tokens; want the tokenizer that the model was "
            "trained with"
        )


def layerdrop_notes(options: Fields) -> list[str]:
    """Notes on layers that the original drops."""
    return [
        f"{name}={rate}: training here does not drop whole layers"
        for name in ("encoder_layerdrop", "decoder_layerdrop")
        if (rate := options.rate(name))
    ]


def check_choices(
    config: ModelConfig, choices: Mapping[str, Sequence], system: str, hint: str
) -> None:
    """Refuses a model with another value of a field than a system computes."""
    for name, values in choices.items():
        if (value := getattr(config, name)) not in values:
            raise UserError(
                f"config.model.{name}={value!r} has no counterpart in {system}: want "
                f"{' or '.join(map(repr, values))}{hint}"
            )


def find_format(flag: str, name: str, formats: Mapping[str, Any]) -> Any:
    """The format of a name."""
    if name not in formats:
        raise UserError(
            f"--{flag}={name}: no such format{did_you_mean(name, formats)} (formats: "
            f"{', '.join(formats)})"
        )
    return formats[name]
