"""The formats: what `import` reads and what `export` writes. Add yours here."""

from t2t_jax.bridges.formats import ExportFormat, ImportFormat
from t2t_jax.bridges.to_ctranslate2 import write as write_ctranslate2

# The first format that recognizes a path reads it.
IMPORTS: dict[str, ImportFormat] = {}
EXPORTS: dict[str, ExportFormat] = {
    "ctranslate2": ExportFormat(
        "CTranslate2",
        write_ctranslate2,
        "ctranslate2_peer",
        options=("quantization",),
    ),
}
