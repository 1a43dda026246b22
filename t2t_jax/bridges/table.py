"""The formats: what `import` reads and what `export` writes. Add yours here."""

    fsmt,
    m2m100,
    marian,
    pegasus,
    to_ctranslate2,
    to_safetensors,
)
from t2t_jax.bridges import (
from t2t_jax.bridges import to_safetensors, to_stablehlo
from t2t_jax.bridges.formats import ExportFormat, ImportFormat

# The first format that recognizes a path reads it.
IMPORTS = {
    "marian": marian.IMPORT,
    "m2m100": m2m100.IMPORT,
    "pegasus": pegasus.IMPORT,
    "fsmt": fsmt.IMPORT,
    "t2t_jax-safetensors": to_safetensors.IMPORT,
}
        "safetensors with t2t_jax's names",
        "safetensors",
        "stablehlo",
        "the search as programs of JAX for CPU, GPU and TPU",
        checks=("values",),
        options=("beam", "alpha"),
        to_safetensors.write,
        to_stablehlo.write,
    "ctranslate2": to_ctranslate2.EXPORT,
    "safetensors": ExportFormat(
    "safetensors": to_safetensors.EXPORT,
    "stablehlo": ExportFormat(
    ),
EXPORTS = {
EXPORTS: dict[str, ExportFormat] = {
}
