"""Vocabularies of Hugging Face model folders, from their SentencePiece files.

Each function takes the folder, its configuration (the dict of config.json, with that of
generation_config.json over it) and the languages that the user named. All raise
UserError: a file is missing or damaged, or the model has no such language.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from t2t_jax.data.tokenizers.sentencepieces import own_pieces
from t2t_jax.data.tokenizers.table import pack
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.tools.bridges.languages import M2M100, NLLB, WMT21

# Tables of embeddings are rounded up to a multiple of this at most.
ROUNDED_TO = 64


def marian_vocabulary(
    folder: Path, config: dict[str, Any], source: str = "", target: str = ""
) -> Vocabulary:
    """Reads source.spm, target.spm, vocab.json and target_vocab.json of a MarianMT.

    Args:
      source: not used: a Marian model has no tokens of source languages.
      target: of a model of several target languages, the language `xx` of the tag
        `>>xx<<` that every source line begins with; if empty, the lines have tags.
    """
    joint = config.get("share_encoder_decoder_embeddings", True)
    own_file = _settings(folder).get(
        "separate_vocabs", (folder / "target_vocab.json").is_file()
    )
    if own_file and joint:
        raise UserError(
            f"{folder} has a vocabulary of the target, target_vocab.json, and its "
            "config.json says share_encoder_decoder_embeddings=true: a model with one "
            "table of embeddings has one vocabulary; is a file of another model?"
        )
    size = config["vocab_size"]
    pieces = theirs = _table(folder / "vocab.json", size)
    if own_file:
        size = config.get("decoder_vocab_size") or size
        pieces = _table(folder / "target_vocab.json", size)
    models = [_model(folder / f"{side}.spm") for side in ("target", "source")]
    tag = _marian_tag(theirs, target)
    fields = {"bos": "<pad>", "special": ["</s>", "<unk>", "<pad>"]}
    name, never = str(folder / "target.spm"), _never(config)
    if joint:
        fields |= {"first": [[], tag], "models": models, "never": never}
        return _vocabulary("marian", name, config, pieces=pieces, **fields)
    of_source = fields | {"first": [tag, tag], "models": models[1:], "never": []}
    fields |= {"first": [[], []], "models": models[:1], "never": never}
    return _vocabulary(
        *("marian", name, config),
        _vocabulary(
            *("marian", str(folder / "source.spm"), {}), pieces=theirs, **of_source
        ),
        pieces=pieces,
        **fields,
    )


def m2m100_vocabulary(
    folder: Path, config: dict[str, Any], source: str, target: str
) -> Vocabulary:
    """Reads vocab.json and sentencepiece.bpe.model of an M2M100.

    Args:
      source, target: languages, such as `de`.
    """
    model = _model(folder / "sentencepiece.bpe.model")
    pieces = _table(folder / "vocab.json")
    wmt21 = _settings(folder).get("language_codes") == "wmt21"
    tokens = [f"__{language}__" for language in (WMT21 if wmt21 else M2M100).split()]
    tokens = _added(folder, len(pieces)) or tokens
    return _vocabulary(
        *("m2m100", str(folder / "sentencepiece.bpe.model"), config),
        models=[model],
        pieces=_filled(pieces + tokens, config["vocab_size"], folder),
        special=["<s>", "</s>", "<pad>", "<unk>", *tokens],
        bos="</s>",
        first=_languages(tokens, "__{}__", target, source),
        never=_never(config),
    )


def nllb_vocabulary(
    folder: Path, config: dict[str, Any], source: str, target: str
) -> Vocabulary:
    """Reads sentencepiece.bpe.model of an NLLB.

    Args:
      source, target: languages, such as `deu_Latn`.
    """
    model = _model(folder / "sentencepiece.bpe.model")
    own = own_pieces(model, folder)[3:]  # after <unk>, <s> and </s>
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokens = _added(folder, len(special + own)) or [*NLLB.split(), "<mask>"]
    return _vocabulary(
        *("nllb", str(folder / "sentencepiece.bpe.model"), config),
        models=[model],
        pieces=_filled(special + own + tokens, config["vocab_size"], folder),
        special=special + tokens,
        bos="</s>",
        first=_languages([t for t in tokens if "_" in t], "{}", target, source),
        never=_never(config),
    )


def pegasus_vocabulary(
    folder: Path, config: dict[str, Any], source: str = "", target: str = ""
) -> Vocabulary:
    """Reads spiece.model of a Pegasus; `source` and `target` are not used."""
    model = _model(folder / "spiece.model")
    offset = _settings(folder).get("offset", 103)
    unused = [f"<unk_{i}>" for i in range(2, offset)]
    special = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *unused]
    pieces = special + own_pieces(model, folder)[2:]  # after <pad> and </s>
    return _vocabulary(
        *("pegasus", str(folder / "spiece.model"), config),
        models=[model],
        pieces=_filled(pieces, config["vocab_size"], folder),
        special=[*special, "<unk>"],
        bos="<pad>",
        first=[[], []],
        never=_never(config),
    )


def _vocabulary(
    kind: str,
    name: str,
    config: dict[str, Any],
    source: Vocabulary | None = None,
    **fields: Any,
) -> Vocabulary:
    """Packs a tokenizer; checks its special tokens against the configuration."""
    ids = {piece: i for i, piece in enumerate(fields["pieces"])}
    for key, piece in (
        ("pad_token_id", "<pad>"),
        ("eos_token_id", "</s>"),
        ("decoder_start_token_id", fields["bos"]),
    ):
        if config.get(key, ids[piece]) != ids[piece]:
            raise UserError(
                f"{name}: {piece} has the id {ids[piece]}, and config.json says {key}="
                f"{config[key]}; are the tokenizer's files of another model?"
            )
    return Vocabulary(pack(kind, **fields), name, source)


def _content(path: Path) -> bytes:
    if path.is_file():
        return path.read_bytes()
    fast = (path.parent / "tokenizer.json").is_file()
    raise UserError(
        f"{path} does not exist"
        + "; tokenizer.json alone, of a fast tokenizer, cannot be read: copy "
        f"{path.name} from the original model" * fast
    )


def _model(path: Path) -> bytes:
    content = _content(path)
    own_pieces(content, path)
    return content


def _json(path: Path) -> dict[str, Any]:
    content = _content(path)
    try:
        found = json.loads(content)
    except ValueError as e:
        raise UserError(f"{path} is not JSON: {e}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} has a {type(found).__name__}; want a JSON object")
    return found


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return _json(path) if path.is_file() else {}


def _table(path: Path, size: int | None = None) -> list[str]:
    """Reads a file of pieces with their ids; returns the pieces in order.

    Args:
      size: the number of embeddings of the model, if it must be that of the pieces.
    """
    ids = _json(path)
    if size is not None and len(ids) != size:
        raise UserError(
            f"{path} has {len(ids):,} pieces, and config.json says vocab_size={size:,};"
            " one of them is of another model"
        )
    by_id: dict[int, str] = {}
    for piece, i in ids.items():
        if type(i) is not int or not 0 <= i < len(ids):
            raise UserError(
                f"{path}: {piece!r} has the id {i!r}; want 0 to {len(ids) - 1:,}, as "
                f"it has {len(ids):,} pieces"
            )
        if i in by_id:
            raise UserError(f"{path}: {piece!r} and {by_id[i]!r} have the same id {i}")
        by_id[i] = piece
    if absent := [p for p in ("</s>", "<unk>", "<pad>") if p not in ids]:
        raise UserError(f"{path} lacks {', '.join(absent)}")
    return [by_id[i] for i in range(len(ids))]


def _filled(pieces: list[str], size: int, folder: Path) -> list[str]:
    """Appends empty pieces: tables of embeddings are rounded up."""
    if not len(pieces) <= size < len(pieces) + ROUNDED_TO:
        raise UserError(
            f"the tokenizer in {folder} has {len(pieces):,} pieces, and config.json "
            f"says vocab_size={size:,}; one of them is of another model"
        )
    return pieces + [""] * (size - len(pieces))


def _never(config: dict[str, Any]) -> list[int]:
    """The tokens that the search is not to generate."""
    banned = config.get("bad_words_ids") or []
    if not isinstance(banned, list) or not all(
        isinstance(word, list) and all(type(token) is int for token in word)
        for word in banned
    ):
        raise UserError(
            f"generation_config.json has bad_words_ids={json.dumps(banned)}; want a "
            "list of lists of token ids"
        )
    if any(len(word) != 1 for word in banned):
        raise UserError(
            "generation_config.json: bad_words_ids has a word of several tokens; only "
            "single tokens can be forbidden: remove it, and use must_not"
        )
    return [word[0] for word in banned]


def _added(folder: Path, first: int) -> list[str]:
    """The tokens that the folder adds to its vocabulary, with ids from `first` on."""
    settings = _settings(folder).get("added_tokens_decoder", {})
    try:
        added = {int(i): str(token["content"]) for i, token in settings.items()}
        if not added and (folder / "tokenizer.json").is_file():
            tokens = _json(folder / "tokenizer.json").get("added_tokens", ())
            added = {int(token["id"]): str(token["content"]) for token in tokens}
    except (AttributeError, LookupError, TypeError, ValueError):
        raise UserError(
            f"the tokenizer in {folder} is damaged: want ids of added tokens, each "
            "with its `content`, in added_tokens_decoder or tokenizer.json"
        ) from None
    added = {i: added[i] for i in sorted(added) if i >= first}
    if [*added] != [*range(first, first + len(added))]:
        raise UserError(
            f"the tokenizer in {folder} has added tokens with the ids {[*added]}; want "
            f"all from {first}, the end of its vocabulary"
        )
    return [*added.values()]


def _languages(
    tokens: Sequence[str], form: str, target: str, source: str
) -> list[list[str]]:
    """The tokens that target and source lines begin with; `form` has a language."""
    before, after = form.split("{}")
    languages = [t.removeprefix(before).removesuffix(after) for t in tokens]
    chosen = {"target": target, "source": source}
    for flag, language in chosen.items():
        if language not in languages:
            raise UserError(
                f"--{flag}={language} is not a language of this model"
                f"{did_you_mean(language, languages)}"
            )
    return [[form.format(language)] for language in chosen.values()]


def _marian_tag(pieces: Sequence[str], target: str) -> list[str]:
    """The token of the target language; none for a model of one language."""
    found = tags(pieces)
    if not target or not found:
        return []
    return _languages(found, ">>{}<<", target, found[0][2:-2])[0]


def tags(pieces: Iterable[str]) -> list[str]:
    """The tags of target languages, `>>xx<<`, among the pieces of a MarianMT."""
    return [p for p in pieces if p.startswith(">>") and p.endswith("<<")]
