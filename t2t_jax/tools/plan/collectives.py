"""Collectives of a compiled step: what devices send each other, and why.

`read` lists the operations, `why` explains one, `table` summarises them all.
"""

import collections
import math
from collections.abc import Collection

from t2t_jax.tools.plan.hlo import KINDS, Collective, parse_collectives

__all__ = ["KINDS", "Collective", "explain", "parse_collectives", "table"]

Shapes = Collection[tuple[int, ...]]

SMALL = 4096  # elements; activations of a batch have more
# The reasons that `why` gives.
SCALARS = "token counts, sums of the loss, the gradient norm"
GRADIENTS = "gradients, summed over the rows of the batch"
PARTS = "gradients, summed; each device keeps its shard"
WEIGHTS = "weights, gathered before use"
PARTIAL = "partial sums of products with sharded weights"
SOFTMAX = "softmax over a sharded vocabulary"
ACTIVATIONS = "activations"
OTHER = "edges of arrays that do not divide evenly, and other transfers"


def explain(collective: Collective, length: int, weights: Shapes = ()) -> str:
    """Explains a collective, by rules on its kind, mesh axes and shapes.

    Args:
      collective: the collective.
      length: tokens in a row of the batch. An array with at least three axes, the
        second of this length, counts as activations.
      weights: shapes of parameters. An array that could be a shard of one does not
        count as activations.
    """
    shapes = [shape for _, shape in collective.arrays]
    activations = any(
        len(shape) > 2 and shape[1] == length and not _part_of(shape, weights)
        for shape in shapes
    )
    if collective.kind == "collective-permute":
        return OTHER
    if all(not shape for shape in shapes):
        return SCALARS
    if collective.axes == ("tensor",) and collective.kind == "all-reduce":
        # One number per token, [rows, length]: the softmax's maxima and sums.
        rows = all(len(shape) == 2 and shape[1] == length for shape in shapes if shape)
        return SOFTMAX if rows else PARTIAL
    if collective.kind == "all-gather":
        return WEIGHTS if "fsdp" in collective.axes else ACTIVATIONS
    if collective.kind == "reduce-scatter":
        return PARTS
    if collective.kind == "all-to-all" or (activations and collective.largest > SMALL):
        return ACTIVATIONS
    return GRADIENTS


def _part_of(shape: tuple[int, ...], weights: Shapes) -> bool:
    """True if an array of this shape could be a shard of a weight."""
    return any(
        len(weight) == len(shape)
        and all(n % part == 0 for n, part in zip(weight, shape, strict=True))
        for weight in weights
    )


def table(
    operations: list[Collective], length: int, weights: Shapes = ()
) -> list[dict]:
    """Groups collectives by kind, mesh axes and reason; one row for each group.

    Args:
      operations: of `read`.
      length, weights: as for `why`.

    Returns:
      Rows with `kind`, `axes`, `devices`, `types`, `count` (executions in a step),
      `bytes` (of the unsharded arrays, per device), `sent`, `why`, `largest` (the
      largest array); most bytes first.
    """
    rows: dict[tuple, dict] = collections.OrderedDict()
    for one in operations:
        reason = explain(one, length, weights)
        key = (one.kind, one.axes, reason)
        row = rows.setdefault(
            key,
            {
                "kind": one.kind,
                "axes": list(one.axes),
                "devices": one.devices,
                "types": [],
                "count": 0,
                "bytes": 0,
                "sent": 0.0,
                "why": reason,
                "largest": "",
                "_size": -1,  # elements of `largest`; removed below
            },
        )
        row["count"] += one.times
        row["bytes"] += one.times * one.bytes
        row["sent"] += one.sent
        for kind, shape in one.arrays:
            if kind not in row["types"]:
                row["types"].append(kind)
            if math.prod(shape) > row["_size"]:
                row["_size"] = math.prod(shape)
                row["largest"] = f"{kind}[{','.join(map(str, shape))}]"
    for row in rows.values():
        del row["_size"]
        row["types"].sort()
    return sorted(rows.values(), key=lambda row: -row["bytes"])
