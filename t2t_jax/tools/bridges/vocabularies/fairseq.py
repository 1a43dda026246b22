"""Reads the dictionaries and byte-pair codes of fairseq and FSMT as a `Vocabulary`."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax.data.tokenizers.table import pack
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.extensions.data.tokenizers.bpe import END, INSIDE
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.model_files import read_lines, read_pieces
from t2t_jax.tools.bridges.vocabularies.huggingface import settings

BOS, PAD, EOS, UNKNOWN = SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
# fairseq's decoder starts with the end of sentence.
_TOKENS = {"pad": PAD, "bos": EOS, "eos": EOS, "unknown": UNKNOWN}

# File names of byte-pair codes, in the models that fairseq published.
CODES = ("bpecodes", "code", "codes", "bpe.codes", "bpe.code")

# And of SentencePiece models.
SENTENCEPIECE = ("sentencepiece.bpe.model", "spm.model")

_KINDS = ("subword_nmt", "fastbpe", "sentencepiece")


def fairseq_vocabulary(
    folder: Path, options: Mapping[str, Any]
) -> tuple[Vocabulary, tuple[str, ...]]:
    """Reads the tokenizer of a fairseq model, and notes for the user.

    The folder has `dict.LANGUAGE.txt` of both languages, and codes or a SentencePiece
    model; the options are fairseq's arguments.
    """
    notes: list[str] = []
    source, target = (_option(options, f"{side}_lang") for side in ("source", "target"))
    if not source or not target:
        raise UserError(
            f"{folder}: the languages are unknown; give --source=en --target=de"
        )
    joint = bool(options.get("share_all_embeddings"))
    kind = _bpe_kind(folder, options)
    tables = [
        read_dictionary(folder / f"dict.{language}.txt")
        for language in (target, source)
    ]
    codes = model = None
    if kind != "sentencepiece":
        codes = _find(folder, options, "bpe_codes", CODES, kind)
    if codes is None and kind in ("", "sentencepiece"):
        model = _find(folder, options, "sentencepiece_model", SENTENCEPIECE, kind)
    moses = _moses(options, codes is not None, source, target, notes)
    if model is not None:
        if moses[0] is not None:
            raise UserError(
                f"{folder}: tokenizer=moses before SentencePiece is not supported"
            )
        fields = {
            "models": [model.read_bytes()],
            "special": [BOS],
            "first": [[], []],
            "bos": EOS,
            "never": [],
        }
        vocabulary = _vocabulary("fairseq", [fields, fields], tables, joint, folder)
        return vocabulary, tuple(notes)
    fields = {
        "merges": None,
        "separate_end": False,
        "style": "",
        **_TOKENS,
        "silent": [BOS],
        "special": [],
        "lowercase": False,
    }
    if codes is not None:
        fields |= {"style": INSIDE, **read_codes(codes)}
    elif any(piece.endswith(INSIDE) for piece in tables[1]):
        raise UserError(
            f"{folder}/dict.{source}.txt has parts of words ({INSIDE}), but no file "
            f"says how to split words; want byte-pair codes, named {' or '.join(CODES)}"
        )
    else:
        notes.append(f"{folder} has no byte-pair codes, so each word is one piece")
    sides = _with_moses(fields, moses, joint)
    return _vocabulary("bpe", sides, tables, joint, folder), tuple(notes)


def _option(options: Mapping[str, Any], name: str) -> str:
    return str(options.get(name) or "")


def _bpe_kind(folder: Path, options: Mapping[str, Any]) -> str:
    """The way of splitting words that the model names; empty if none."""
    kind = _option(options, "bpe")
    if kind and kind not in _KINDS:
        raise UserError(
            f"{folder}: bpe={kind} is not supported; want one of {', '.join(_KINDS)}"
        )
    separator = options.get("bpe_separator") or INSIDE
    if separator != INSIDE:
        raise UserError(
            f"{folder}: bpe_separator={separator!r} is not supported; want {INSIDE!r}"
        )
    return kind


def _find(
    folder: Path, options: Mapping[str, Any], option: str, names: tuple[str, ...], kind
) -> Path | None:
    """The file that splits words; None if there is none, and the model names none."""
    # A path in the arguments is one of the machine that trained the model.
    named_files = (Path(_option(options, option)).name,) if options.get(option) else ()
    for name in (*named_files, *names):
        if (folder / name).is_file():
            return folder / name
    if kind:
        raise UserError(
            f"{folder} has no file for bpe={kind}; want one named "
            + " or ".join(dict.fromkeys((*named_files, *names)))
        )
    return None


def _moses(
    options: Mapping[str, Any],
    has_codes: bool,
    source: str,
    target: str,
    notes: list[str],
) -> list[dict[str, Any] | None]:
    """Returns the arguments of `Moses` of the target and of the source."""
    kind = _option(options, "tokenizer")
    if not kind and has_codes:
        kind = "moses"
        notes.append(
            "the model does not say how text is split into words; assumed Moses, as in "
            "the models that fairseq published"
        )
    if kind in ("", "space"):
        return [None, None]
    if kind != "moses":
        raise UserError(f"tokenizer={kind} is not supported; want moses or space")
    return [
        {
            "language": _option(options, f"moses_{side}_lang") or language,
            "split_dashes": not options.get("moses_no_dash_splits"),
            "escape": not options.get("moses_no_escape"),
            "normalize": False,
        }
        for side, language in (("target", target), ("source", source))
    ]


def _with_moses(
    fields: dict[str, Any], moses: Sequence[dict[str, Any] | None], joint: bool
) -> list[dict[str, Any]]:
    """Adds Moses to the fields of the target and of the source."""
    # One tokenizer of both languages has the source's Moses besides.
    source_moses = moses[1] if joint and moses[0] != moses[1] else None
    return [
        fields | {"moses": side_moses, "source": source_moses} for side_moses in moses
    ]


def _vocabulary(
    kind: str,
    sides: Sequence[dict[str, Any]],
    tables: Sequence[list[str]],
    joint: bool,
    folder: Path,
) -> Vocabulary:
    """Packs the tokenizers of target and source, as one if they share a table."""
    if joint and tables[0] != tables[1]:
        raise UserError(
            f"{folder}: the model has one table of embeddings for both languages, but "
            "their dictionaries differ; want the dictionaries that it was trained with"
        )
    target, source = (
        pack(kind, pieces=table, **fields)
        for table, fields in zip(tables, sides, strict=True)
    )
    if joint:
        return Vocabulary(target, str(folder))
    return Vocabulary(target, str(folder), Vocabulary(source, str(folder)))


def read_dictionary(path: Path) -> list[str]:
    """Reads a fairseq dictionary, lines of `PIECE COUNT`; special pieces come first."""
    numbers = dict.fromkeys(SPECIAL, 0)
    for number, line in enumerate(read_lines(path), 1):
        piece, _, count = line.rstrip().rpartition(" ")
        # fairseq's mark of a piece that takes the place of an earlier one.
        if count == "#fairseq:overwrite":
            raise UserError(f"{path}, line {number}: {count} is not supported")
        if not piece or not re.fullmatch(r"[+-]?\d+", count):
            raise UserError(
                f"{path}, line {number}: got {line[:80]!r}; want a piece, a space and "
                "its count"
            )
        if piece in numbers:
            raise UserError(
                f"{path}, line {number}: {piece!r} is in it twice; first in "
                + (f"line {numbers[piece]}" if numbers[piece] else "every dictionary")
            )
        numbers[piece] = number
    return [*numbers]


def read_codes(path: Path) -> dict[str, Any]:
    """Reads byte-pair codes of subword-nmt or fastBPE: `merges` and `separate_end`.

    A line has two symbols; in fastBPE's also their count. Codes of subword-nmt begin
    with their version, except those before 0.2.
    """
    lines = read_lines(path)
    header = lines[0].startswith("#version:")
    version = header and re.fullmatch(r"#version: *0\.([12])(\.0+)*\s*", lines[0])
    if header and not version:
        raise UserError(
            f"{path}, line 1: got {lines[0][:80]!r}; want #version: 0.1 or 0.2"
        )
    merges: dict[str, None] = {}
    columns = 0
    for number, line in enumerate(lines[header:], 1 + header):
        symbols = line.strip("\r\n ").split(" ")
        # The first line says which of the two programs wrote the file.
        columns = columns or (3 if len(symbols) == 3 and not header else 2)
        if len(symbols) != columns or not all(symbols):
            raise UserError(
                f"{path}, line {number}: got {line[:80]!r}; want two symbols with a "
                "space between them" + (", then their count" if columns == 3 else "")
            )
        merges.setdefault(" ".join(symbols[:2]))  # of duplicates, the first counts
    old = columns == 2 and (not version or version[1] == "1")
    return {"merges": [*merges], "separate_end": old}


def fsmt_vocabulary(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    """Reads vocab-src.json, vocab-tgt.json and merges.txt of a FSMT."""
    options = settings(folder)
    languages = options.get("langs") or config.get("langs")
    if not isinstance(languages, list) or len(languages) != 2:
        file = folder / "tokenizer_config.json"
        raise UserError(f"{file} has langs={languages!r}; want two, ['en', 'de']")
    fields = {
        "merges": _fsmt_merges(folder / "merges.txt"),
        "separate_end": False,
        "style": END,
        **_TOKENS,
        "silent": [*SPECIAL],
        "special": [*SPECIAL],
        "lowercase": bool(options.get("do_lower_case")),
    }
    tables = [
        read_pieces(folder / f"vocab-{side}.json", SPECIAL) for side in ("tgt", "src")
    ]
    moses = [
        {"language": language, "split_dashes": True, "escape": True, "normalize": True}
        for language in reversed(languages)
    ]
    # A FSMT model has a table of embeddings for each side, equal or not.
    sides = _with_moses(fields, moses, False)
    return _vocabulary("bpe", sides, tables, False, folder)


def _fsmt_merges(path: Path) -> list[str]:
    """Reads `merges.txt`: two symbols a line, and whatever follows them."""
    merges: dict[str, None] = {}
    for number, line in enumerate(read_lines(path, ended=True), 1):
        symbols = line.split()[:2]
        if len(symbols) < 2:
            raise UserError(f"{path}, line {number}: got {line[:80]!r}; want 2 symbols")
        pair = " ".join(symbols)
        merges.pop(pair, None)  # of duplicates, the last counts
        merges[pair] = None
    return [*merges]
