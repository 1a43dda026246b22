"""FSMT of Hugging Face: fairseq's models of WMT19."""

from t2t_jax.tools.bridges.families import huggingface
from t2t_jax.tools.bridges.families.configs import languages
from t2t_jax.tools.bridges.formats import Imported, ImportFormat, Request
from t2t_jax.tools.bridges.huggingface_files import open_folder, recognizer
from t2t_jax.tools.bridges.vocabularies.fairseq import read_fsmt

HEAD = "model.decoder.output_projection.weight"


def read(request: Request) -> Imported:
    """Reads a folder; raises UserError for all that has no exact counterpart."""
    folder = open_folder(request.path)
    config = folder.config
    folder.generation.only(forced_bos_token_id=None)
    config.get("decoder")  # the same sizes once more
    size = config.size("src_vocab_size")
    # Its two vocabularies have a table each; no published model shares them.
    config.only(tie_word_embeddings=False)
    model = huggingface.model_fields(
        config,
        scaled=True,
        norm="post",
        tied="none",
        options={
            "sinusoid_layout": "half",
            "sinusoid_spacing": "tensor2tensor",
            "position_offset": config.token("pad_token_id", size, 1) + 1,
        },
    )
    langs = config.get("langs", ["", ""])
    if not isinstance(langs, list) or len(langs) != 2:
        raise config.error("langs", "two languages")
    between = languages(request, (langs[0], langs[1]))
    vocabulary, notes = read_fsmt(request.path, folder.merged())
    return huggingface.finish(
        *(request, folder, model, vocabulary, between), head=HEAD, more_notes=notes
    )


IMPORT = ImportFormat(
    *("FSMT of Hugging Face", recognizer("fsmt"), read), peer="huggingface"
)
