"""The names and forms of fairseq's parameters, of its versions since 2018."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.weights import FAIRSEQ, SAME, Rule

SOURCE, TARGET, OUTPUT = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "decoder.output_projection.weight",
)
# Positions are numbered from 2, after padding, which is 1. A learned table has a row
# for each number.
FIRST_POSITION = 2

# Tables that are one, by `config.model.tied`; the first name stays.
_COPIES = {"all": (SOURCE, TARGET, OUTPUT), "target": (TARGET, OUTPUT), "none": ()}
# Counters and devices, which are buffers of PyTorch.
_BUFFERS = r"(en|de)coder\.(version|embed_positions\._float_tensor)"
# Before version 0.6.1, the norms of a layer had numbers.
_NUMBERED = {
    "encoder.0": "self_attn",
    "encoder.1": "final",
    "decoder.0": "self_attn",
    "decoder.1": "encoder_attn",
    "decoder.2": "final",
}


def newest_names(stored: Mapping[str, Any], tied: str, name: str) -> dict[str, Any]:
    """Returns the arrays of a checkpoint under the names of fairseq's newest version.

    Args:
      tied: as `config.model.tied`; copies of a table are left out.
      name: the file, for error messages.

    Raises:
      UserError: copies of a tied table differ, or an entry is not an array.
    """
    found: dict[str, Any] = {}
    for key, array in stored.items():
        if not isinstance(array, np.ndarray):
            raise UserError(f"{name} is damaged: model.{key} is not a tensor")
        if re.fullmatch(_BUFFERS, str(key)):
            continue
        if packed := re.fullmatch(r"(.*\.)in_proj_(weight|bias)", key):
            parts = np.array_split(np.atleast_1d(array), 3)
            for part, each in zip("qkv", parts, strict=True):
                found[f"{packed[1]}{part}_proj.{packed[2]}"] = each
        else:
            found[_newest_name(key)] = array
    copies = [copy for copy in _COPIES[tied] if copy in found]
    for copy in copies[1:]:
        if not np.array_equal(found[copies[0]], found.pop(copy)):
            raise UserError(
                f"{name}: {copies[0]} and {copy} differ, but its options say that they "
                "are one table; is the file damaged?"
            )
    return found


def _newest_name(key: str) -> str:
    if key == "decoder.embed_out":
        return OUTPUT
    norm = re.fullmatch(r"((\w+)\.layers\.\d+)\.layer_norms\.(\d)\.(\w+)", key)
    if norm and (part := _NUMBERED.get(f"{norm[2]}.{norm[3]}")):
        return f"{norm[1]}.{part}_layer_norm.{norm[4]}"
    return key


def weight_rules(config: ModelConfig) -> Iterator[Rule]:
    """Yields the rules of a model."""
    first = SOURCE if config.tied == "all" else TARGET
    yield Rule(first, ("embedding.tokens",), SAME)
    if config.tied != "all":
        yield Rule(SOURCE, ("embedding.source_tokens",), SAME)
    if config.tied == "none":
        yield Rule(OUTPUT, ("embedding.output",), SAME)
    yield from weights.layer_rules(config, FAIRSEQ)
    for side in ("encoder", "decoder"):
        if config.norm == "pre":
            yield from weights.norm_rules(f"{side}.layer_norm", f"{side}_norm")
        if config.positions == "learned":
            table = f"{side}_positions.0.table"
            yield Rule(f"{side}.embed_positions.weight", (table,), SAME)


def shorten_positions(tensors: dict[str, Any], name: str) -> int:
    """Cuts the learned tables to the length of the shorter one; returns its positions.

    Ours have as many positions for the source as for the target.

    Raises:
      UserError: a table is missing.
    """
    names = [f"{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    for table in names:
        if table not in tensors:
            raise UserError(f"{name} lacks {table}, its learned positions")
    rows = min(len(tensors[table]) for table in names)
    for table in names:
        tensors[table] = tensors[table][:rows]
    return rows - FIRST_POSITION
