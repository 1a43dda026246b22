"""The formats: what `import` reads and what `export` writes. Add yours here."""

from t2t_jax.tools.bridges import (
    fairseq,
    fsmt,
    m2m100,
    marian,
    marian_npz,
    pegasus,
    to_ctranslate2,
    to_huggingface,
    to_onnx,
    to_safetensors,
    to_stablehlo,
    torch_transformer,
)

# The first format that recognizes a path reads it.
IMPORTS = {
    "marian": marian.IMPORT,
    "m2m100": m2m100.IMPORT,
    "pegasus": pegasus.IMPORT,
    "fsmt": fsmt.IMPORT,
    "t2t_jax-safetensors": to_safetensors.IMPORT,
    "fairseq": fairseq.IMPORT,
    "marian-npz": marian_npz.IMPORT,
    "torch": torch_transformer.IMPORT,
}
EXPORTS = {
    "ctranslate2": to_ctranslate2.EXPORT,
    "huggingface": to_huggingface.EXPORT,
    "safetensors": to_safetensors.EXPORT,
    "stablehlo": to_stablehlo.EXPORT,
    "onnx": to_onnx.EXPORT,
}
