"""Collectives of a compiled step: what devices send each other, and why.

`parse_collectives` finds them in a program, `explain` gives the reason of one, and
`table` summarises them all.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Collection, Mapping

import numpy as np

from t2t_jax.tools.plan.hlo import Array, Operation, Program, size

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
Shapes = Collection[tuple[int, ...]]

SMALL = 4096  # elements; activations of a batch have more
# The reasons that `explain` gives.
SCALARS = "token counts, sums of the loss, the gradient norm"
GRADIENTS = "gradients, summed over the rows of the batch"
PARTS = "gradients, summed; each device keeps its shard"
WEIGHTS = "weights, gathered before use"
PARTIAL = "partial sums of products with sharded weights"
SOFTMAX = "softmax over a sharded vocabulary"
ACTIVATIONS = "activations"
OTHER = "edges of arrays that do not divide evenly, and other transfers"


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective operation."""

    kind: str  # one of KINDS
    axes: tuple[str, ...]  # the mesh axes along which devices take part
    devices: int  # in one group
    # The unsharded arrays: the result of an all-gather, the operand of a
    # reduce-scatter, on one device.
    arrays: tuple[Array, ...]
    times: int  # executions per step; more than one inside a loop
    name: str  # JAX's, of the operation of the program that needs it

    @property
    def bytes(self) -> int:
        """Size of `arrays`, for one execution."""
        return sum(map(size, self.arrays))

    @property
    def sent(self) -> float:
        """Bytes that a device sends in a step, with ring algorithms."""
        # In a ring of n, each of n parts travels n - 1 hops: once for an all-gather or
        # a reduce-scatter. An all-reduce is one of each.
        share = (self.devices - 1) / self.devices
        factor = {"all-reduce": 2 * share, "collective-permute": 1.0}
        return self.times * self.bytes * factor.get(self.kind, share)

    @property
    def largest(self) -> int:
        """Elements of the largest array."""
        return max((math.prod(shape) for _, shape in self.arrays), default=0)


def parse_collectives(program: Program, mesh: Mapping[str, int]) -> list[Collective]:
    """Lists the collectives of a step, compiled for any device."""
    collectives = []
    for operation, times, inside, caller in program.executed(_enters):
        kind = operation.kind.removesuffix("-start")
        if kind not in KINDS:
            continue
        group = _group(operation.attributes, mesh)
        if len(group) < 2:  # nothing leaves the device
            continue
        arrays = _arrays(operation, kind, len(group))
        # The TPU compiler writes a reduce-scatter as an all-reduce inside a
        # computation of this name.
        if kind == "all-reduce" and inside.startswith("all-reduce-scatter"):
            kind = "reduce-scatter"
        name = operation.op_name or (caller.op_name if caller else "")
        axes = _axes(group, mesh)
        collectives.append(Collective(kind, axes, len(group), arrays, times, name))
    return collectives


def _enters(operation: Operation) -> list[str]:
    """The computations of an operation whose collectives count."""
    # The TPU compiler splits an asynchronous collective into start, fused work and
    # done, each of which calls a computation that names the collective again. Only one
    # of them may count.
    if operation.name.startswith("async-collective-done"):
        return []
    called = operation.called
    return [name for name in called if not name.startswith("async_collective_fusion")]


def _arrays(operation: Operation, kind: str, devices: int) -> tuple[Array, ...]:
    """Element types and shapes of the unsharded arrays."""
    arrays = operation.arrays
    # The start of an asynchronous one returns (operands, results, u32[] counters).
    if operation.kind in ("all-gather-start", "collective-permute-start"):
        arrays = [a for a in arrays if a[0] != "u32" or a[1]]
        arrays = arrays[len(arrays) // 2 :]
    if kind == "reduce-scatter":  # the result is one device's shard
        arrays = [(name, (devices, *shape)) for name, shape in arrays]
    return tuple(arrays)


def _group(text: str, mesh: Mapping[str, int]) -> list[int]:
    """The devices of one group, as row-major indices into the mesh.

    HLO writes groups in three forms: by mesh axes, as a reshaped iota, or as lists.
    Without groups, all devices take part.
    """
    if named := re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^{]*)\))? \{([^}]*)\}",
        text,
    ):
        return _mesh_group(*named.groups())
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=(\S+?),? ", text + " "):
        return _iota(iota[3]).reshape(int(iota[1]), int(iota[2]))[0].tolist()
    if listed := re.search(
        r"(?:replica_groups|source_target_pairs)=\{\{([\d,]+)\}", text
    ):
        return _numbers(listed[1])
    return [*range(math.prod(mesh.values()))]


def _iota(text: str) -> np.ndarray:
    """Device numbers of an iota: `[2,4]T(1,0)` is `arange(8)` as 2 x 4, transposed."""
    sizes = _numbers(re.search(r"\[([\d,]+)\]", text)[1])
    devices = np.arange(math.prod(sizes)).reshape(sizes)
    if order := re.search(r"T\(([\d,]+)\)", text):
        devices = devices.transpose(_numbers(order[1]))
    return devices.ravel()


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]


def _mesh_group(axes: str, ids: str | None, factors: str) -> list[int]:
    """The first group of `mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a','b':(1)2}`.

    `'b':(1)2` is a factor of axis `b`: of size 2, with factors of product 1 before it.
    """
    sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", axes)}
    devices = _iota(ids) if ids else np.arange(math.prod(sizes.values()))
    parts = re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", factors)
    # Split every axis into its factors. The first group keeps the factors it is taken
    # along, and has index 0 in all others.
    shape, index = [], []
    for name, n in sizes.items():
        cuts = [(int(a or 1), int(b or n)) for part, a, b in parts if part == name]
        product = 1  # product of the factors so far
        for product_before, within in sorted(cuts):
            shape += [product_before // product, within]
            index += [0, slice(None)]
            product = product_before * within
        shape.append(n // product)
        index.append(0)
    return devices.reshape(shape)[tuple(index)].ravel().tolist()


def _axes(group: list[int], mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The mesh axes along which the devices of a group differ."""
    coordinates = np.unravel_index(group, tuple(mesh.values()))
    return tuple(
        name
        for name, index in zip(mesh, coordinates, strict=True)
        if len(set(index)) > 1
    )


def explain(collective: Collective, length: int, weights: Shapes = ()) -> str:
    """Explains a collective, by rules on its kind, mesh axes and shapes.

    An array with at least three axes, the second as long as a row of the batch, counts
    as activations, unless it could be a shard of one of the weights.
    """
    shapes = [shape for _, shape in collective.arrays]
    if collective.kind == "collective-permute":
        return OTHER
    if not any(shapes):
        return SCALARS
    if collective.axes == ("tensor",) and collective.kind == "all-reduce":
        # One number per token, [rows, length]: the softmax's maxima and sums.
        rows = all(len(shape) == 2 and shape[1] == length for shape in shapes if shape)
        return SOFTMAX if rows else PARTIAL
    if collective.kind == "all-gather":
        return WEIGHTS if "fsdp" in collective.axes else ACTIVATIONS
    if collective.kind == "reduce-scatter":
        return PARTS
    activations = collective.largest > SMALL and any(
        len(shape) > 2 and shape[1] == length and not _part_of(shape, weights)
        for shape in shapes
    )
    if collective.kind == "all-to-all" or activations:
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
      operations: of `parse_collectives`.
      length, weights: as for `explain`.

    Returns:
      Rows with `kind`, `axes`, `devices`, `types`, `count` (executions in a step),
      `bytes` (of the unsharded arrays, per device), `sent`, `why`, `largest` (the
      largest array); most bytes first.
    """
    groups = collections.defaultdict(list)
    for collective in operations:
        groups[
            collective.kind, collective.axes, explain(collective, length, weights)
        ].append(collective)
    rows = []
    for (kind, axes, reason), alike in groups.items():
        arrays = [array for collective in alike for array in collective.arrays]
        name, shape = max(arrays, key=lambda array: math.prod(array[1]))
        rows.append(
            {
                "kind": kind,
                "axes": list(axes),
                "devices": alike[0].devices,
                "types": sorted({name for name, _ in arrays}),
                "count": sum(collective.times for collective in alike),
                "bytes": sum(
                    collective.times * collective.bytes for collective in alike
                ),
                "sent": sum(collective.sent for collective in alike),
                "why": reason,
                "largest": f"{name}[{','.join(map(str, shape))}]",
            }
        )
    return sorted(rows, key=lambda row: -row["bytes"])
