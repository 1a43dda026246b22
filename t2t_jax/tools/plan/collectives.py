"""Collectives of a compiled step: what devices send each other, and why.

XLA has no stable interface for this, so `parse_collectives` parses the HLO text of the
program; `explain` gives the reason of one, and `table` summarises them all.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np

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
# Bits of an element; other types name theirs, as f32 does.
_BITS = {"pred": 8, "bf16": 16}
# `%x = f32[8,16]{1,0} all-reduce-start(...)`: (result type, kind, "-start").
_OP = re.compile(rf" = (.*?) ({'|'.join(KINDS)})(-start)?\(")
_ARRAY = re.compile(r"([a-z]+[0-9]*)\[([\d,]*)\]")  # f32[8,16]
# Other computations that a line runs: fusions, loop bodies, reductions, calls.
_CALLS = re.compile(r"(?:calls|body|to_apply|computation)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")  # of a conditional
_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')  # from metadata={...}


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective operation."""

    kind: str  # one of KINDS
    axes: tuple[str, ...]  # the mesh axes along which devices take part
    devices: int  # in one group
    # (type, shape) of the unsharded arrays: the result of an all-gather, the operand of
    # a reduce-scatter, on one device.
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    times: int  # executions per step; more than one inside a loop
    name: str  # JAX's, of the operation of the program that needs it

    @property
    def bytes(self) -> int:
        """Size of `arrays`, for one execution."""
        return sum(_size(kind, shape) for kind, shape in self.arrays)

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


def _size(kind: str, shape: tuple[int, ...]) -> int:
    """Bytes of an array; `kind` is an HLO type such as `f32` or `f8e4m3fn`."""
    # The bits are the digits before an `e`: f8e4m3fn has 8.
    bits = _BITS.get(kind) or int(re.sub(r"\D", "", kind.partition("e")[0]) or 8)
    return math.prod(shape) * bits // 8


def parse_collectives(hlo: str, mesh: Mapping[str, int]) -> list[Collective]:
    """Lists the collectives of a step, of `compiled.as_text()` for any device."""
    entry, bodies = _computations(hlo)
    collectives = []
    for line, times, inside, caller in _lines(entry, bodies):
        if not (op := _OP.search(line)):
            continue
        kind = op[2]
        group = _group(line, mesh)
        if len(group) < 2:  # nothing leaves the device
            continue
        arrays = _arrays(op[1], kind, bool(op[3]), len(group))
        # The TPU compiler writes a reduce-scatter as an all-reduce inside a
        # computation of this name.
        if kind == "all-reduce" and inside.startswith("all-reduce-scatter"):
            kind = "reduce-scatter"
        named = _NAME.search(line) or _NAME.search(caller)
        name, axes = named[1] if named else "", _axes(group, mesh)
        collectives.append(Collective(kind, axes, len(group), arrays, times, name))
    return collectives


def _computations(hlo: str) -> tuple[str, dict[str, list[str]]]:
    """Splits HLO into computations: (name of the entry, lines by computation)."""
    entry, bodies, current = "", {}, []
    for line in hlo.splitlines():
        # A computation starts in column 0 with `[ENTRY] %name (...) -> ... {`.
        if line and not line[0].isspace() and line.rstrip().endswith("{"):
            words = line.split()
            name = words[words[0] == "ENTRY"].lstrip("%")
            if words[0] == "ENTRY":
                entry = name
            current = bodies.setdefault(name, [])
        elif " = " in line:
            current.append(line)
    return entry, bodies


def _lines(
    name: str, bodies: dict, times: int = 1, caller: str = ""
) -> Iterator[tuple[str, int, str, str]]:
    """Yields (line, executions, its computation, the calling line), recursively."""
    for line in bodies.get(name, ()):
        yield line, times, name, caller
        # The TPU compiler splits an asynchronous collective into start, fused work and
        # done, each of which calls a computation that names the collective again.
        # Only one of them may count.
        if line.lstrip().startswith("%async-collective-done"):
            continue
        executions = times * (_trips(line, bodies) if " while(" in line else 1)
        called = _CALLS.findall(line)
        for branches in _BRANCHES.findall(line):
            called += [branch.strip().lstrip("%") for branch in branches.split(",")]
        for body in called:
            if not body.startswith("async_collective_fusion"):
                yield from _lines(body, bodies, executions, line)


def _trips(line: str, bodies: dict) -> int:
    """Number of iterations of a loop: XLA's own count, or the condition's bound."""
    if count := re.search(r"known_trip_count\W+n\W+(\d+)", line):
        return int(count[1])
    condition = re.search(r"condition=%?([\w.-]+)", line)
    # `i < N` compares with a constant; the largest one in the condition is the bound.
    bounds = [
        int(n)
        for body in bodies.get(condition[1] if condition else "", ())
        for n in re.findall(r"s32\[\]\S* constant\((\d+)\)", body)
    ]
    return max(bounds, default=1)


def _arrays(text: str, kind: str, start: bool, devices: int):
    """Parses a result type into (type, shape) pairs of unsharded arrays."""
    arrays = [(name, tuple(_numbers(sizes))) for name, sizes in _ARRAY.findall(text)]
    # The start of an asynchronous one returns (operands, results, u32[] counters).
    if start and kind in ("all-gather", "collective-permute"):
        arrays = [a for a in arrays if a[0] != "u32" or a[1]]
        arrays = arrays[len(arrays) // 2 :]
    if kind == "reduce-scatter":  # the result is one device's shard
        arrays = [(name, (devices, *shape)) for name, shape in arrays]
    return tuple(arrays)


def _group(line: str, mesh: Mapping[str, int]) -> list[int]:
    """The devices of one group, as row-major indices into the mesh.

    HLO writes groups in three forms: by mesh axes, as a reshaped iota, or as lists.
    Without groups, all devices take part.
    """
    if named := re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^{]*)\))? \{([^}]*)\}",
        line,
    ):
        return _mesh_group(*named.groups())
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=(\S+?),? ", line + " "):
        return _iota(iota[3]).reshape(int(iota[1]), int(iota[2]))[0].tolist()
    if listed := re.search(
        r"(?:replica_groups|source_target_pairs)=\{\{([\d,]+)\}", line
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


def _mesh_group(axes: str, ids: str | None, taken: str) -> list[int]:
    """The first group of `mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a','b':(1)2}`.

    `'b':(1)2` is a factor of axis `b`: of size 2, with factors of product 1 before it.
    """
    sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", axes)}
    devices = _iota(ids) if ids else np.arange(math.prod(sizes.values()))
    parts = re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", taken)
    # Split every axis into its factors. The first group keeps the factors it is taken
    # along, and has index 0 in all others.
    shape, index = [], []
    for name, n in sizes.items():
        cuts = [(int(a or 1), int(b or n)) for part, a, b in parts if part == name]
        at = 1  # product of the factors so far
        for before, size in sorted(cuts):
            shape += [before // at, size]
            index += [0, slice(None)]
            at = before * size
        shape.append(n // at)
        index.append(0)
    return devices.reshape(shape)[tuple(index)].ravel().tolist()


def _axes(group: list[int], mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The mesh axes along which the devices of a group differ."""
    coordinates = np.unravel_index(group, tuple(mesh.values()))
    return tuple(
        name for name, at in zip(mesh, coordinates, strict=True) if len(set(at)) > 1
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
    for one in operations:
        groups[one.kind, one.axes, explain(one, length, weights)].append(one)
    rows = []
    for (kind, axes, reason), alike in groups.items():
        arrays = [array for one in alike for array in one.arrays]
        name, shape = max(arrays, key=lambda array: math.prod(array[1]))
        rows.append(
            {
                "kind": kind,
                "axes": list(axes),
                "devices": alike[0].devices,
                "types": sorted({name for name, _ in arrays}),
                "count": sum(one.times for one in alike),
                "bytes": sum(one.times * one.bytes for one in alike),
                "sent": sum(one.sent for one in alike),
                "why": reason,
                "largest": f"{name}[{','.join(map(str, shape))}]",
            }
        )
    return sorted(rows, key=lambda row: -row["bytes"])
