"""Vocabularies of Marian models: Hugging Face's MarianMT, and Marian's own.

Both split text with SentencePiece; the ids of the pieces may be in tables of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.formats import ImportRequest
from t2t_jax.tools.bridges.model_files import read_pieces, read_sentencepiece
from t2t_jax.tools.bridges.vocabularies.huggingface import (
    filled,
    forbidden,
    language_tokens,
    pack_vocabulary,
    settings,
)

EOS, UNKNOWN, PAD = SPECIAL = ("</s>", "<unk>", "<pad>")


def marian_vocabulary(
    folder: Path, config: dict[str, Any], target: str = ""
) -> Vocabulary:
    """Reads source.spm, target.spm, vocab.json and target_vocab.json of a MarianMT.

    Of a model of several target languages, every source line begins with the tag
    `>>xx<<` of `target`; if that is empty, the lines have tags.
    """
    joint = config.get("share_encoder_decoder_embeddings", True)
    separate = settings(folder).get(
        "separate_vocabs", (folder / "target_vocab.json").is_file()
    )
    if separate and joint:
        raise UserError(
            f"{folder} has a vocabulary of the target, target_vocab.json, and its "
            "config.json says share_encoder_decoder_embeddings=true: a model with one "
            "table of embeddings has one vocabulary; is a file of another model?"
        )
    size = config["vocab_size"]
    pieces = source_pieces = _table(folder / "vocab.json", size)
    if separate:
        size = config.get("decoder_vocab_size") or size
        pieces = _table(folder / "target_vocab.json", size)
    target_file, source_file = folder / "target.spm", folder / "source.spm"
    models = [read_sentencepiece(file)[0] for file in (target_file, source_file)]
    tag, never = _tag(source_pieces, target), forbidden(config)

    checked = {"config": config, "never": never}
    if joint:
        return _pack(
            "marian", target_file, pieces, models, prefixes=[[], tag], **checked
        )
    source = _pack(
        "marian", source_file, source_pieces, models[1:], prefixes=[tag, tag]
    )
    return _pack("marian", target_file, pieces, models[:1], source, **checked)


def _table(path: Path, size: int) -> list[str]:
    return filled(read_pieces(path, SPECIAL), size, path, rounded_to=1)


def _tag(pieces: Iterable[str], target: str) -> list[str]:
    """The token of the target language; none for a model of one language."""
    symbols = tags(pieces)
    if not target or not symbols:
        return []
    return language_tokens(symbols, ">>{}<<", target, symbols[0][2:-2])[0]


def tags(pieces: Iterable[str]) -> list[str]:
    """The tags of target languages, `>>xx<<`, among the pieces of a MarianMT."""
    return [p for p in pieces if p.startswith(">>") and p.endswith("<<")]


# --------------------------------------------------------------------- of Marian itself


def settings_beside(path: Path) -> dict[str, Any]:
    """The settings of decoding, a .yml file with `vocabs`; empty if there is none."""
    names = f"{path.name}.decoder.yml", "decoder.yml"
    files = [path.with_name(name) for name in names]
    for file in (*files, *sorted(path.parent.glob("*.yml"))):
        # Larger files are vocabularies.
        if not file.is_file() or file.stat().st_size > 1 << 16:
            continue
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, ValueError, RecursionError):
            continue
        if isinstance(content, dict) and isinstance(content.get("vocabs"), list):
            return content
    return {}


def npz_vocabulary(request: ImportRequest, path: Path, joint: bool) -> Vocabulary:
    """Reads the vocabularies of a model, with a token of padding added at the end.

    Tokenizers of the request replace those of the model's folder.
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
        return _pack(kind, files["target"], target, models)
    source_vocabulary = _pack(source_kind, files["source"], source, [source_model])
    return _pack(kind, files["target"], target, [model], source_vocabulary)


def _files(request: ImportRequest, path: Path) -> dict[str, Path]:
    """The vocabulary files of source and target."""
    folder = path.parent
    if request.source_tokenizer and not request.tokenizer:
        raise UserError("--source_tokenizer is given alone; add --tokenizer=FILE.spm")
    if request.tokenizer:
        files = [request.source_tokenizer or request.tokenizer, request.tokenizer]
    elif vocabs := settings_beside(path).get("vocabs"):
        # Paths in it are those of another machine.
        files = [folder / Path(str(vocab)).name for vocab in vocabs]
    else:
        tables = [*folder.glob("*vocab*.yml"), *folder.glob("*vocab*.json")]
        candidates = tables or [*folder.glob("*.spm")]
        if len(candidates) != 1:
            raise UserError(
                f"{folder} does not say which vocabularies it has; want one file .spm "
                "or vocab.yml, a decoder.yml with `vocabs`, or --tokenizer=FILE.spm "
                "(and --source_tokenizer)"
            )
        files = candidates * 2
    if len(files) != 2:
        raise UserError(
            f"{folder} names {len(files)} vocabularies; want those of a source and of "
            "a target"
        )
    return dict(zip(("source", "target"), files, strict=True))


def _read(file: Path, folder: Path, side: str) -> tuple[str, list[str], bytes]:
    """Returns a kind of tokenizer, the pieces and the SentencePiece model of a side."""
    if not file.is_file():
        raise UserError(f"{file} does not exist; it is the vocabulary of the {side}")
    if file.suffix not in (".yml", ".yaml", ".json"):
        content, pieces = read_sentencepiece(file)
        return "m2m100", _padded(pieces, file), content
    model = folder / f"{side}.spm"
    if not model.is_file():
        raise UserError(
            f"{model} does not exist; {file.name} has pieces, and only with "
            "source.spm and target.spm is it known how text is split into them"
        )
    pieces = read_pieces(file, gaps=True)
    return "marian", _padded(pieces, file), read_sentencepiece(model)[0]


def _padded(pieces: list[str], file: Path) -> list[str]:
    """Adds the token of padding, which Marian does not have."""
    if not {EOS, UNKNOWN} <= {*pieces}:
        raise UserError(f"{file} lacks {EOS} or {UNKNOWN}; Marian's vocabularies have")
    return [*("" if piece == PAD else piece for piece in pieces), PAD]


def _pack(
    kind: str,
    file: Path,
    pieces: list[str],
    models: list[bytes],
    source: Vocabulary | None = None,
    *,
    config: Mapping[str, Any] = MappingProxyType({}),
    prefixes: Sequence[list[str]] = ([], []),
    never: Sequence[int] = (),
) -> Vocabulary:
    return pack_vocabulary(
        kind,
        str(file),
        config,
        source,
        pieces=pieces,
        models=models,
        special=[*SPECIAL],
        first=[*prefixes],
        bos=PAD,
        never=[*never],
    )
