"""Pegasus of Hugging Face: summaries, and models of ours with normalization first."""

from t2t_jax.tools.bridges.families import huggingface
from t2t_jax.tools.bridges.families.configs import languages
from t2t_jax.tools.bridges.formats import Imported, ImportFormat, Request
from t2t_jax.tools.bridges.huggingface_files import open_folder, recognizer
from t2t_jax.tools.bridges.vocabularies.huggingface import pegasus_vocabulary


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
    folder.generation.only(forced_bos_token_id=None)
    config.size("vocab_size")
    model = huggingface.model_fields(
        config,
        scaled=False,
        norm="pre",
        tied="all" if config.flag("tie_word_embeddings", True) else "none",
        output_bias=True,
        options={"sinusoid_layout": "half"},
    )
    # A summary has the language of its document.
    guessed = ("document", "summary")
    between = languages(request, huggingface.languages(folder), guessed)
    vocabulary = huggingface.own_vocabulary(folder) or pegasus_vocabulary(
        request.path, folder.merged()
    )
    return huggingface.finish(
        *(request, folder, model, vocabulary, between), stored_positions=True
    )


IMPORT = ImportFormat(
    *("Pegasus of Hugging Face", recognizer("pegasus"), read), peer="huggingface"
)
