"""Vocabularies of Marian's own models: SentencePiece models, or tables in YAML."""

import json
from pathlib import Path
from typing import Any

import yaml

from t2t_jax.data.tokenizers.sentencepieces import own_pieces
from t2t_jax.data.tokenizers.table import pack
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.formats import Request

EOS, UNKNOWN, PAD = SPECIAL = ("</s>", "<unk>", "<pad>")


def settings_beside(path: Path) -> dict[str, Any]:
    """The settings of decoding, a .yml file with `vocabs`; empty if there is none."""
    named = (path.with_name(f"{path.name}.decoder.yml"), path.with_name("decoder.yml"))
    for file in (*named, *sorted(path.parent.glob("*.yml"))):
        # Larger files are vocabularies.
        if not file.is_file() or file.stat().st_size > 1 << 16:
            continue
        try:
            found = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("vocabs"), list):
            return found
    return {}


def read_vocabulary(request: Request, path: Path, joint: bool) -> Vocabulary:
    """Reads the vocabularies of a model, with a token of padding added at the end.

    Args:
      request: its tokenizers, if it has any, replace those of the model's folder.
      path: the model.
      joint: True if source and target share a table of embeddings.

    Raises:
      UserError: they are not found, or are damaged.
    """
    files = _files(request, path)
    sides = [_read(file, path.parent, side) for side, file in files.items()]
    (source_kind, source, source_model), (kind, target, model) = sides
    if joint:
        if source != target:
            raise UserError(
                f"{path} has one table of embeddings for both languages, but its "
                f"vocabularies {files['source']} and {files['target']} differ"
            )
        models = [model] if model == source_model else [model, source_model]
        return _pack(kind, target, models, files["target"])
    other = _pack(source_kind, source, [source_model], files["source"])
    return _pack(kind, target, [model], files["target"], other)


def _files(request: Request, path: Path) -> dict[str, Path]:
    """The vocabulary files of source and target."""
    folder = path.parent
    if request.source_tokenizer and not request.tokenizer:
        raise UserError("--source_tokenizer is given alone; add --tokenizer=FILE.spm")
    if request.tokenizer:
        chosen = [request.source_tokenizer or request.tokenizer, request.tokenizer]
    elif vocabs := settings_beside(path).get("vocabs"):
        # Paths in it are those of another machine.
        chosen = [folder / Path(str(vocab)).name for vocab in vocabs]
    else:
        tables = [*folder.glob("*vocab*.yml"), *folder.glob("*vocab*.json")]
        found = tables or [*folder.glob("*.spm")]
        if len(found) != 1:
            raise UserError(
                f"{folder} does not say which vocabularies it has; want one file .spm "
                "or vocab.yml, a decoder.yml with `vocabs`, or --tokenizer=FILE.spm "
                "(and --source_tokenizer)"
            )
        chosen = found * 2
    if len(chosen) != 2:
        raise UserError(
            f"{folder} names {len(chosen)} vocabularies; want those of a source and of "
            "a target"
        )
    return dict(zip(("source", "target"), chosen, strict=True))


def _read(file: Path, folder: Path, side: str) -> tuple[str, list[str], bytes]:
    """Returns a kind of tokenizer, the pieces and the SentencePiece model of a side."""
    if not file.is_file():
        raise UserError(f"{file} does not exist; it is the vocabulary of the {side}")
    if file.suffix not in (".yml", ".yaml", ".json"):
        content = file.read_bytes()
        return "m2m100", _padded(own_pieces(content, file), file), content
    model = folder / f"{side}.spm"
    if not model.is_file():
        raise UserError(
            f"{model} does not exist; {file.name} has pieces, and only with "
            "source.spm and target.spm is it known how text is split into them"
        )
    content = model.read_bytes()
    own_pieces(content, model)
    return "marian", _padded(_table(file), file), content


def _table(file: Path) -> list[str]:
    """Reads a file of pieces and their ids; a missing id has an empty piece."""
    try:
        text = file.read_text(encoding="utf-8")
        # All values are text: YAML would read the pieces `no` and `1e3` otherwise.
        loaded = (
            json.loads(text)
            if file.suffix == ".json"
            else yaml.load(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        )
        ids = {str(piece): int(number) for piece, number in loaded.items()}
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as e:
        raise UserError(f"{file} is not a vocabulary: {e}") from None
    by_id = {number: piece for piece, number in ids.items()}
    if not ids or min(by_id) < 0 or max(by_id) > 2 * len(ids) or len(by_id) < len(ids):
        raise UserError(f"{file} is damaged: ids occur twice or are far apart")
    return [by_id.get(i, "") for i in range(max(by_id) + 1)]


def _padded(pieces: list[str], file: Path) -> list[str]:
    """Adds the token of padding, which Marian does not have."""
    if not {EOS, UNKNOWN} <= {*pieces}:
        raise UserError(f"{file} lacks {EOS} or {UNKNOWN}; Marian's vocabularies have")
    return [*("" if piece == PAD else piece for piece in pieces), PAD]


def _pack(
    kind: str,
    pieces: list[str],
    models: list[bytes],
    file: Path,
    source: Vocabulary | None = None,
) -> Vocabulary:
    content = pack(
        kind,
        pieces=pieces,
        models=models,
        special=[*SPECIAL],
        first=[[], []],
        bos=PAD,
        never=[],
    )
    return Vocabulary(content, str(file), source)
