"""MarianMT of Hugging Face: OPUS-MT and its tc-big models."""

import re

from t2t_jax.tools.bridges.families import huggingface
from t2t_jax.tools.bridges.families.configs import languages
from t2t_jax.tools.bridges.formats import Imported, ImportFormat, Request
from t2t_jax.tools.bridges.huggingface_files import open_folder, recognizer
from t2t_jax.tools.bridges.vocabularies.huggingface import marian_vocabulary, tags


def read(request: Request) -> Imported:
    """Reads a folder; raises UserError for all that has no exact counterpart."""
    folder = open_folder(request.path)
    config = folder.config
    # Of versions before 4, in which Marian was a BART with these values.
    config.only(
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        add_bias_logits=False,
        static_position_embeddings=True,
    )
    folder.generation.only(forced_bos_token_id=None)
    shared = config.flag("share_encoder_decoder_embeddings", True)
    size = config.size("vocab_size")
    target_size = config.get("decoder_vocab_size", size)
    if shared and target_size != size:
        raise config.error("decoder_vocab_size", f"vocab_size={size}")
    if not config.flag("tie_word_embeddings", True):
        tied = "none"
    else:
        tied = "all" if shared else "target"
    model = huggingface.model_fields(
        config,
        scaled=False,
        norm="post",
        tied=tied,
        output_bias=True,
        options={"sinusoid_layout": "half"},
    )
    own = huggingface.own_vocabulary(folder)
    vocabulary = own or marian_vocabulary(
        request.path, folder.merged(), request.source, request.target
    )
    source = vocabulary.source
    pieces = map(source.piece, range(len(source)))
    between = languages(
        request,
        huggingface.languages(folder),
        _languages_of(request.path.name),
        # A tokenizer of ours already begins lines with the tag of its language.
        several=not own and bool(tags(pieces)),
    )
    # Marian itself has no padding token: the port's, which starts the decoder, would
    # get a part of the probability.
    pad = vocabulary.pad
    return huggingface.finish(
        *(request, folder, model, vocabulary, between),
        stored_positions=True,
        silent=(pad,) if pad == vocabulary.bos else (),
    )


def _languages_of(name: str) -> tuple[str, str]:
    """The languages in the name of a folder, such as `opus-mt-en-de`."""
    found = re.fullmatch(r"opus-mt-(?:tc-\w+-)?(\w+)-(\w+)", name)
    return (found[1], found[2]) if found else ("", "")


IMPORT = ImportFormat(
    *("MarianMT of Hugging Face", recognizer("marian"), read), peer="huggingface"
)
