"""M2M100 and NLLB of Hugging Face, which are one class with two tokenizers."""

from t2t_jax.tools.bridges.families import huggingface
from t2t_jax.tools.bridges.families.configs import languages
from t2t_jax.tools.bridges.formats import Imported, ImportFormat, Request
from t2t_jax.tools.bridges.huggingface_files import Folder, open_folder, recognizer
from t2t_jax.tools.bridges.vocabularies.huggingface import (
    m2m100_vocabulary,
    nllb_vocabulary,
)

# Their classes of tokenizers; "Fast" ones have the same files.
_TOKENIZERS = {"M2M100Tokenizer": m2m100_vocabulary, "NllbTokenizer": nllb_vocabulary}


def read(request: Request) -> Imported:
    """Reads a folder; raises UserError for all that has no exact counterpart."""
    folder = open_folder(request.path)
    config = folder.config
    config.only(
        normalize_before=True,
        normalize_embedding=False,
        add_final_layer_norm=True,
        static_position_embeddings=True,
    )
    size = config.size("vocab_size")
    model = huggingface.model_fields(
        config,
        scaled=True,
        norm="pre",
        tied="all" if config.flag("tie_word_embeddings", True) else "none",
        options={
            "sinusoid_layout": "half",
            "sinusoid_spacing": "tensor2tensor",
            "position_offset": config.token("pad_token_id", size, 1) + 1,
        },
    )
    between = languages(request, huggingface.languages(folder), several=True)
    vocabulary = _reader(folder)(request.path, folder.merged(), *between)
    # The language of the target decides, whatever the folder was saved with.
    folder.generation.get("forced_bos_token_id")
    return huggingface.finish(request, folder, model, vocabulary, between)


def _reader(folder: Folder):
    """Returns the function that reads the folder's tokenizer."""
    settings = folder.tokenizer
    # NLLB's pieces are in the SentencePiece model alone.
    joined = (folder.path / "vocab.json").is_file()
    default = "M2M100Tokenizer" if joined else "NllbTokenizer"
    kind = settings.get("tokenizer_class", default).removesuffix("Fast")
    if kind not in _TOKENIZERS:
        raise settings.error("tokenizer_class", " or ".join(_TOKENIZERS))
    settings.only(legacy_behaviour=False)  # true puts the language after the end
    return _TOKENIZERS[kind]


IMPORT = ImportFormat(
    *("M2M100 or NLLB of Hugging Face", recognizer("m2m_100"), read), peer="huggingface"
)
