"""The formats: what `import` reads and what `export` writes. Add yours here."""

from t2t_jax.bridges import to_safetensors
from t2t_jax.bridges.formats import ExportFormat, ImportFormat
from t2t_jax.bridges.to_ctranslate2 import write as write_ctranslate2

# The first format that recognizes a path reads it.
        "CTranslate2",
        "an export of t2t_jax to safetensors",
        "ctranslate2_peer",
        "safetensors with t2t_jax's names",
        "safetensors",
        checks=("values",),
        options=("quantization",),
        peer=None,
        to_safetensors.read,
        to_safetensors.recognize,
        to_safetensors.write,
        write_ctranslate2,
    "ctranslate2": ExportFormat(
    "safetensors": ExportFormat(
    ),
    to_safetensors.FORMAT: ImportFormat(
EXPORTS: dict[str, ExportFormat] = {
IMPORTS: dict[str, ImportFormat] = {
IMPORTS: dict[str, ImportFormat] = {}
}
    ),
}
