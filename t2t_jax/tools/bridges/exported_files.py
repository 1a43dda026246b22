"""Files that several exports have: tokenizers, and JSON about the model."""

import hashlib
import json
from pathlib import Path
from typing import Any

from t2t_jax import __version__
from t2t_jax.config import TaskConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.workdir import TOKENIZERS


def write_tokenizers(vocabulary: Vocabulary, folder: Path) -> None:
    """Copies `tokenizer.model` and, if there is one, `source_tokenizer.model`."""
    for name, side in zip(TOKENIZERS, vocabulary.sides, strict=False):
        (folder / name).write_bytes(side.model)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Writes a JSON object for people and programs."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")


def vocabulary_sha256(vocabulary: Vocabulary) -> list[str]:
    """The SHA-256 of the tokenizer files, as `sha256sum` prints them."""
    return [hashlib.sha256(side.model).hexdigest() for side in vocabulary.sides]


def origin(translator: Translator) -> dict[str, Any]:
    """The provenance of an exported model."""
    return {
        "t2t_jax": __version__,
        "vocabulary_sha256": vocabulary_sha256(translator.vocabulary),
        "provenance": translator.provenance(),
    }


def direction(translator: Translator) -> str:
    """The languages for a heading, such as `en to de`; of other tasks, the name."""
    data = translator.config.data
    if not translates(translator):
        return translator.config.task.kind
    return f"{data.source} to {data.target}"


def translates(translator: Translator) -> bool:
    """True if its task is translation from one language into another."""
    return translator.config.task.kind == TaskConfig().kind
