"""What devices send each other in a step: the collectives of compiled HLO."""

import collections
import dataclasses
import math
import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np

Shapes = Collection[tuple[int, ...]]

KINDS = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all"),
    "collective-permute",
)
_BITS = {"pred": 8, "bf16": 16}
_OP = re.compile(rf" = (.*?) ({'|'.join(KINDS)})(-start)?\(")
_ARRAY = re.compile(r"([a-z]+[0-9]*)\[([\d,]*)\]")
_CALLS = re.compile(r"(?:calls|body|to_apply|computation)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective operation.

    Attributes:
      kind: one of KINDS.
      axes: the mesh axes along which devices take part.
      devices: how many take part together.
      arrays: (type, shape) of what is combined, whole: all that an all-gather makes
        and a reduce-scatter takes, on one device.
      times: how often in a step; more than once in a loop.
      name: the operation of the program that it is for, as JAX names it.
    """

    kind: str
    axes: tuple[str, ...]
    devices: int
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    times: int
    name: str

    @property
    def bytes(self) -> int:
        """Of `arrays`, once."""
        return sum(_size(kind, shape) for kind, shape in self.arrays)

    @property
    def sent(self) -> float:
        """Bytes that a device sends in a step if they are passed round a ring."""
        share = (self.devices - 1) / self.devices
        factor = {"all-reduce": 2 * share, "collective-permute": 1.0}
        return self.times * self.bytes * factor.get(self.kind, share)

    @property
    def largest(self) -> int:
        """Elements of the largest array."""
        return max((math.prod(shape) for _, shape in self.arrays), default=0)


def _size(kind: str, shape: tuple[int, ...]) -> int:
    bits = _BITS.get(kind) or int(re.sub(r"\D", "", kind.partition("e")[0]) or 8)
    return math.prod(shape) * bits // 8


def read(hlo: str, mesh: Mapping[str, int]) -> list[Collective]:
    """The collectives of a step.

    Args:
      hlo: `compiled.as_text()`, of a CPU, GPU or TPU.
      mesh: sizes of the mesh's axes, by name, in their order.
    """
    entry, bodies = _computations(hlo)
    found = []
    for line, times, inside, caller in _lines(entry, bodies):
        op = _OP.search(line)
        if not op:
            continue
        kind = op[2]
        group = _group(line, mesh)
        if len(group) < 2:
            continue
        arrays = _arrays(op[1], kind, bool(op[3]), len(group))
        # A TPU's reduce-scatter is an all-reduce in a computation of this name.
        if kind == "all-reduce" and inside.startswith("all-reduce-scatter"):
            kind = "reduce-scatter"
        name = _NAME.search(line) or _NAME.search(caller)
        found.append(
            Collective(
                kind,
                _axes(group, mesh),
                len(group),
                arrays,
                times,
                name[1] if name else "",
            )
        )
    return found


def _computations(hlo: str) -> tuple[str, dict[str, list[str]]]:
    entry, bodies, current = "", {}, []
    for line in hlo.splitlines():
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
    """Yields (line, how often it runs, its computation, the line that called it)."""
    for line in bodies.get(name, ()):
        yield line, times, name, caller
        # A TPU carries a collective through computations between its start and its
        # end, each of which names it again.
        if line.lstrip().startswith("%async-collective-done"):
            continue
        often = times * (_trips(line, bodies) if " while(" in line else 1)
        called = _CALLS.findall(line)
        for several in _BRANCHES.findall(line):
            called += [branch.strip().lstrip("%") for branch in several.split(",")]
        for body in called:
            if not body.startswith("async_collective_fusion"):
                yield from _lines(body, bodies, often, line)


def _trips(line: str, bodies: dict) -> int:
    """How often a loop runs: as XLA says, or the bound in its condition."""
    known = re.search(r"known_trip_count\W+n\W+(\d+)", line)
    if known:
        return int(known[1])
    condition = re.search(r"condition=%?([\w.-]+)", line)
    bounds = [
        int(n)
        for body in bodies.get(condition[1] if condition else "", ())
        for n in re.findall(r"s32\[\]\S* constant\((\d+)\)", body)
    ]
    return max(bounds, default=1)


def _arrays(text: str, kind: str, start: bool, devices: int):
    """The arrays of a result type, made whole."""
    arrays = [
        (name, tuple(int(n) for n in sizes.split(",") if n))
        for name, sizes in _ARRAY.findall(text)
    ]
    if start and kind in ("all-gather", "collective-permute"):  # (from, to, counters)
        arrays = [a for a in arrays if a[0] != "u32" or a[1]]
        arrays = arrays[len(arrays) // 2 :]
    if kind == "reduce-scatter":  # the result is a part
        arrays = [(name, (devices, *shape)) for name, shape in arrays]
    return tuple(arrays)


def _group(line: str, mesh: Mapping[str, int]) -> list[int]:
    """The devices of one group, as indices into the mesh, row by row."""
    if named := re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^{]*)\))? \{([^}]*)\}",
        line,
    ):
        return _mesh_group(*named.groups())
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=(\S+?),? ", line + " "):
        return [int(n) for n in _iota(iota[3]).reshape(int(iota[1]), int(iota[2]))[0]]
    if listed := re.search(
        r"(?:replica_groups|source_target_pairs)=\{\{([\d,]+)\}", line
    ):
        return [int(n) for n in listed[1].split(",")]
    return [*range(math.prod(mesh.values()))]


def _iota(text: str) -> np.ndarray:
    """`[2,4]T(1,0)`: the numbers of a 2 x 4 array, transposed."""
    sizes = [int(n) for n in re.search(r"\[([\d,]+)\]", text)[1].split(",")]
    devices = np.arange(math.prod(sizes)).reshape(sizes)
    if order := re.search(r"T\(([\d,]+)\)", text):
        devices = devices.transpose([int(n) for n in order[1].split(",")])
    return devices.ravel()


def _mesh_group(axes: str, ids: str | None, taken: str) -> list[int]:
    """`mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a','b':(1)2}`: the first group.

    `'b':(1)2` is the part of size 2 of the axis that has 1 before it.
    """
    sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", axes)}
    devices = _iota(ids) if ids else np.arange(math.prod(sizes.values()))
    parts = re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", taken)
    shape, index = [], []
    for name, n in sizes.items():
        cuts = [(int(a or 1), int(b or n)) for part, a, b in parts if part == name]
        at = 1
        for before, size in sorted(cuts):
            shape += [before // at, size]
            index += [0, slice(None)]
            at = before * size
        shape.append(n // at)
        index.append(0)
    return [int(n) for n in devices.reshape(shape)[tuple(index)].ravel()]


def _axes(group: list[int], mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes along which the devices of a group differ."""
    places = np.unravel_index(group, tuple(mesh.values()))
    return tuple(
        name for name, at in zip(mesh, places, strict=True) if len(set(at)) > 1
    )


SMALL = 4096  # elements: counts and sums, not arrays
SCALARS = "counts of tokens, sums of the loss, the gradient's norm"
GRADIENTS = "gradients, summed over the rows of the batch"
PARTS = "gradients, summed; each device keeps its part"
WEIGHTS = "weights, made whole before they are used"
PARTIAL = "partial sums of products whose weights are divided"
SOFTMAX = "softmax over a vocabulary that is divided"
ACTIVATIONS = "activations"
OTHER = "edges of arrays that do not divide evenly, and other moves"


def why(found: Collective, length: int, weights: Shapes = ()) -> str:
    """What a collective is for, by kind, mesh axes and shapes.

    Args:
      length: of the rows of a batch: arrays of three axes with this second one are
        activations.
      weights: shapes of parameters; no array that could be part of one is.
    """
    shapes = [shape for _, shape in found.arrays]
    activations = any(
        len(shape) > 2 and shape[1] == length and not _part_of(shape, weights)
        for shape in shapes
    )
    if found.kind == "collective-permute":
        return OTHER
    if all(not shape for shape in shapes):
        return SCALARS
    if found.axes == ("tensor",) and found.kind == "all-reduce":
        rows = all(len(shape) == 2 and shape[1] == length for shape in shapes if shape)
        return SOFTMAX if rows else PARTIAL
    if found.kind == "all-gather":
        return WEIGHTS if "fsdp" in found.axes else ACTIVATIONS
    if found.kind == "reduce-scatter":
        return PARTS
    if found.kind == "all-to-all" or (activations and found.largest > SMALL):
        return ACTIVATIONS
    return GRADIENTS


def _part_of(shape: tuple[int, ...], weights: Shapes) -> bool:
    return any(
        len(whole) == len(shape)
        and all(n % part == 0 for n, part in zip(whole, shape, strict=True))
        for whole in weights
    )


def table(found: list[Collective], length: int, weights: Shapes = ()) -> list[dict]:
    """Collectives of one kind, along the same axes, for the same reason, as one row.

    Returns:
      Rows with `kind`, `axes`, `devices`, `types`, `count` (operations that run in a
      step), `bytes` (of what is combined, a device), `sent`, `why`, `largest` (the
      largest array); most bytes first.
    """
    rows: dict[tuple, dict] = collections.OrderedDict()
    for one in found:
        reason = why(one, length, weights)
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
                "_size": -1,
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
