"""Finds the embeddings, the output layer and the positions in a module of PyTorch."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_jax.io.errors import UserError
from t2t_jax.model.positions import sinusoids
from t2t_jax.tools.bridges.weights import Tensors, listed

# Words in names by which a table belongs to a side, or is of something else.
SOURCE_WORDS = ("src", "source", "enc")
TARGET_WORDS = ("tgt", "trg", "target", "dec")
OUTPUT_WORDS = ("out", "generator", "proj", "head", "fc", "linear")

RENAME = (
    "rename them in the state dict: source_embedding.weight, target_embedding.weight "
    "(or embedding.weight for both), output.weight and output.bias, and "
    "positions.weight"
)


class Tables(NamedTuple):
    """Names of the arrays around the layers.

    Attributes:
      source, target: embeddings; the same name if both are one.
      output: the matrix of the output layer; empty if it is the target's embedding.
      bias: of the output layer; empty if there is none.
      positions: the table of position encodings of `encoder` and `decoder`; or none.
    """

    source: str
    target: str
    output: str
    bias: str
    positions: dict[str, str]

    def tied(self, tensors: Tensors) -> str:
        """Says which tables are equal, as `config.model.tied`."""

        def equal(one: str, other: str) -> bool:
            return one == other or np.array_equal(tensors[one], tensors[other])

        if self.output and not equal(self.target, self.output):
            return "none"
        return "all" if equal(self.source, self.target) else "target"

    def copies(self, tied: str) -> list[str]:
        """Names of tables that repeat the target's embedding."""
        copies = {"all": [self.source, self.output], "target": [self.output]}
        return [name for name in copies.get(tied, []) if name and name != self.target]


def find_tables(around: Tensors, width: int, name: str) -> Tables:
    """Finds the tables by their shapes, their biases and words in their names.

    Args:
      around: the arrays of the module outside of its layers.
      name: the file, for error messages.

    Raises:
      UserError: a table is missing, or it is not clear which is which.
    """
    positions, matrices = [], []
    for key, x in around.items():
        if x.ndim >= 2 and x.shape[-1] == width:
            lonely = x.size == max(x.shape[:-1]) * width  # other axes have length 1
            if lonely and _is_positions(key):
                positions.append(key)
            elif x.ndim == 2:
                matrices.append(key)
    outputs = [key for key in matrices if _bias(key, around)] or [
        key for key in matrices if _has(key, OUTPUT_WORDS)
    ]
    embeddings = [key for key in matrices if key not in outputs]
    if len(outputs) > 1 or not embeddings:
        raise UserError(
            f"{name}: {listed(matrices) or 'no array'} could be embeddings or the "
            f"output layer (width {width}), and it is not clear which is which; "
            f"{RENAME}"
        )
    output = outputs[0] if outputs else ""
    source, target = _by_side(embeddings, name)
    found = dict(
        zip(("encoder", "decoder"), _by_side(positions, name), strict=True)
        if positions
        else ()
    )
    return Tables(source, target, output, _bias(output, around), found)


def _bias(key: str, around: Tensors) -> str:
    """The name of the bias beside a matrix; empty if there is none."""
    bias = key.removesuffix("weight") + "bias"
    return bias if key.endswith("weight") and bias in around else ""


def _is_positions(key: str) -> bool:
    return "pos" in key.lower() or key.split(".")[-1] == "pe"


def _has(key: str, words: Sequence[str]) -> bool:
    return any(word in key.lower() for word in words)


def _by_side(tables: Sequence[str], name: str) -> tuple[str, str]:
    """The tables of source and target; one table is of both."""
    if len(tables) == 1:
        return tables[0], tables[0]
    for source, target in itertools.permutations(tables, 2):
        words = (
            (source, SOURCE_WORDS, TARGET_WORDS),
            (target, TARGET_WORDS, SOURCE_WORDS),
        )
        if len(tables) == 2 and all(
            _has(key, own) and not _has(key, other) for key, own, other in words
        ):
            return source, target
    raise UserError(
        f"{name}: it is not clear which of {listed(tables)} is of the source and which "
        f"of the target; {RENAME}"
    )


def known_sinusoids(table: np.ndarray) -> Mapping[str, Any] | None:
    """The options of `Sinusoid` that compute a table; None if none do."""
    length, width = table.shape
    if width % 2:
        return None
    for layout, spacing in itertools.product(
        ("interleaved", "half"), ("paper", "tensor2tensor")
    ):
        # float32 exponents are off by 1e-4 at far positions; other tables by 1.
        ours = sinusoids(length, width, layout, spacing)
        if np.allclose(ours, np.asarray(table, np.float32), rtol=0, atol=1e-2):
            return {"sinusoid_layout": layout, "sinusoid_spacing": spacing}
    return None
