"""The formats: what `import` reads and what `export` writes. Add yours here."""

from t2t_jax.tools.bridges.exports import (
    to_argos,
    to_ctranslate2,
    to_huggingface,
    to_safetensors,
    to_stablehlo,
)
from t2t_jax.tools.bridges.families import (
    fairseq,
    huggingface,
    marian,
)

# The first format that recognizes a path reads it.
IMPORTS = {
    "marian": marian.MARIAN_MT,
    "m2m100": huggingface.M2M100,
    "pegasus": huggingface.PEGASUS,
    "fsmt": fairseq.FSMT,
    "t2t_jax-safetensors": to_safetensors.IMPORT,
    "fairseq": fairseq.FAIRSEQ,
    "marian-npz": marian.NPZ,
}
EXPORTS = {
    "ctranslate2": to_ctranslate2.EXPORT,
    "huggingface": to_huggingface.EXPORT,
    "safetensors": to_safetensors.EXPORT,
    "stablehlo": to_stablehlo.EXPORT,
    "argos": to_argos.EXPORT,
}
