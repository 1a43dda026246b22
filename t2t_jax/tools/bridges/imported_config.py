"""The config of an imported model, from what its file and the user say."""

from collections.abc import Mapping
from typing import Any

from t2t_jax.config import Config, DataConfig, DecodeConfig, from_config_dict
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.formats import Request
from t2t_jax.tools.bridges.weights import Tensors


def languages(
    request: Request,
    found: tuple[str, str] = ("", ""),
    guessed: tuple[str, str] = ("", ""),
    several: bool = False,
) -> tuple[str, str]:
    """Returns source and target: the user's, the files', or else those guessed.

    Args:
      found: in the files; empty where they do not say.
      guessed: such as from the folder's name; the user may say others.
      several: True for a model of several languages, whose files name one pair of them.

    Raises:
      UserError: nobody says one of them, or the user contradicts the files.
    """
    chosen = []
    for side, own, guess in zip(("source", "target"), found, guessed, strict=True):
        wish = getattr(request, side)
        if wish and own and wish != own and not several:
            raise UserError(
                f"--{side}={wish}, but {request.path} says {own}; leave --{side} out"
            )
        if not (language := wish or own or guess):
            raise UserError(
                f"{request.path} does not say its {side} language; add --{side}=, such "
                f"as --{side}=en"
            )
        chosen.append(language)
    return chosen[0], chosen[1]


def imported_config(
    request: Request,
    name: str,
    model: Mapping[str, Any],
    vocabulary: Vocabulary,
    between: tuple[str, str],
    decode: Mapping[str, Any],
) -> Config:
    """Puts the config together.

    Args:
      name: what says `model`, for error messages.
      model: fields of `config.model`.
      between: the languages.
      decode: fields of `config.decode`.

    Raises:
      UserError: the user's fields contradict the model, or a field is impossible.
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
                "source": between[0],
                "target": between[1],
                "joint_vocabulary": vocabulary.joint,
                "vocab_size": len(vocabulary),
                "source_vocab_size": 0 if vocabulary.joint else len(vocabulary.source),
                "max_length": min(DataConfig.max_length, longest),
            },
            "decode": {"average": 1, "max_source": longest, **decode},
        }
    )


def check_size(name: str, tensors: Tensors, table: str, vocabulary: Vocabulary):
    """Checks that a table of embeddings has a row for each piece.

    Raises:
      UserError: the sizes differ, so the tokenizer is of another model.
    """
    rows = len(tensors[table]) if table in tensors else len(vocabulary)
    if rows != len(vocabulary):
        raise UserError(
            f"{name}: {table} has {rows:,} rows, and {vocabulary.name} has "
            f"{len(vocabulary):,} pieces; want the tokenizer that the model was "
            "trained with"
        )
