"""The formats: what `import` reads and what `export` writes. Add yours here."""

from t2t_jax.tools.bridges import fsmt, m2m100, pegasus
from t2t_jax.tools.bridges import marian as marian_mt
from t2t_jax.tools.bridges.exports import (
    to_ctranslate2,
    to_huggingface,
    to_onnx,
    to_safetensors,
    to_stablehlo,
)
from t2t_jax.tools.bridges.families import fairseq, marian, torch_transformer

# The first format that recognizes a path reads it.
IMPORTS = {
    "marian": marian_mt.IMPORT,
    "m2m100": m2m100.IMPORT,
    "pegasus": pegasus.IMPORT,
    "fsmt": fsmt.IMPORT,
    "t2t_jax-safetensors": to_safetensors.IMPORT,
    "fairseq": fairseq.IMPORT,
    "marian-npz": marian.IMPORT,
    "torch": torch_transformer.IMPORT,
}
EXPORTS = {
    "ctranslate2": to_ctranslate2.EXPORT,
    "huggingface": to_huggingface.EXPORT,
    "safetensors": to_safetensors.EXPORT,
    "stablehlo": to_stablehlo.EXPORT,
    "onnx": to_onnx.EXPORT,
}
