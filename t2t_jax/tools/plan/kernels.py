"""Kernels of a compiled program: which there are, what made them, what bounds them.

A roofline: a kernel takes as long as its products or its memory traffic, whichever is
longer, at rates that an H200 reached, and on a GPU at least the time of a launch. For a
TPU, the compiler's own estimate of cycles.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from pathlib import PurePath

from t2t_jax.costs.chips import REACHED_BANDWIDTH, REACHED_PEAK, Chip
from t2t_jax.tools.plan.hlo import Executed, Operation, Program, arrays, size

LAUNCH = 2e-6  # seconds that a kernel of a GPU takes at least
LARGEST = 15  # kernels that a table lists
BY_RATES = (
    f"{REACHED_PEAK} of the peak and {REACHED_BANDWIDTH} of the memory's bandwidth, as "
    f"one H200 reached, and at least {1e6 * LAUNCH:.0f} us a kernel"
)
BY_COMPILER = "the compiler's estimate of cycles"

# The file of ours that traced an operation -> the part of the model that it is. Files
# and functions that serve several parts have none: their callers have one.
PARTS = {
    "model/attention.py": "attention",
    "model/decoder_cache.py": "attention",
    "model/kernels.py": "attention",
    "model/mask.py": "attention",
    "model/embedding.py": "embedding",
    "model/positions.py": "embedding",
    "model/transformer.py": "norms",
    "model/feed_forward.py": "feed-forward",
    "model/layers.py": "norms",
    "extensions/model/parts.py": "attention",
    "training/cross_entropy.py": "loss",
    "training/losses.py": "loss",
    "training/optimizers.py": "update",
    "training/schedules.py": "update",
    "training/step.py": "update",
}
SERVES = {"model/products.py", "model/architecture.py", "linear", "project"}
MEANINGS = {
    "norms": "layer norms, residual connections, dropout",
    "update": "optimizer, norm of the gradient, averages",
    "copies": "copies, and conversions to another type",
    "exchange": "between devices",
    "other": "of no known part",
}
COPIES, EXCHANGE, OTHER = "copies", "exchange", "other"

# Operations that run no kernel.
_FREE = {
    *("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "after-all"),
    *("partition-id", "replica-id", "opt-barrier", "add-dependency"),
    *("while", "conditional", "call"),
}
# Operations of kernels that move numbers and compute none.
_MOVES = _FREE | {
    *("broadcast", "concatenate", "convert", "copy", "copy-start", "dynamic-slice"),
    *("dynamic-update-slice", "iota", "pad", "reshape", "reverse", "slice"),
    *("slice-start", "transpose", "fusion"),
}
_SENDS = ("all-", "reduce-scatter", "collective-")
_SLICES = ("slice", "dynamic-slice", "gather")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel, with its cost for one execution."""

    part: str  # of the model: a value of PARTS, or a name of MEANINGS
    line: str  # of this package, that made it: model/layers.py:12; empty if unknown
    kind: str  # how XLA made it
    name: str  # JAX's name of what it is for
    result: str  # its type
    times: int  # executions in a step, or in a position of a search
    flops: float  # of products
    bytes: float  # to and from the memory of the chip
    seconds: float
    bound: str  # products, memory, launch, compiler (its estimate), or overlapped


def kernels(program: Program, chip: Chip, computation: str = "") -> list[Kernel]:
    """Lists the kernels of a program for a chip.

    Args:
      computation: that runs; the program's entry if empty.
    """
    executed = program.executed(_enters(program), computation)
    return [
        _kernel(program, kernel, chip) for kernel in executed if _runs(kernel, chip)
    ]


def _runs(executed: Executed, chip: Chip) -> bool:
    """True if an operation is a kernel."""
    operation = executed.operation
    if operation.kind in _FREE or operation.kind.endswith(("-done", "-update")):
        return False
    # The scalar core of a TPU computes small arrays at the same time.
    has_cost = "estimated_cycles" in operation.attributes or _is_product(operation)
    return chip.kind != "tpu" or has_cost or operation.bytes > 4096


def stops(program: Program, computation: str = "") -> int:
    """Counts the waits of a GPU for its host, to choose a branch or to end a loop."""
    return sum(
        executed.times
        for executed in program.executed(_enters(program), computation)
        if executed.operation.kind == "conditional"
        or (
            executed.operation.kind == "while"
            and "known_trip_count" not in executed.operation.attributes
        )
    )


def search_loop(program: Program) -> str:
    """The computation of a search that runs once for each position."""
    loops = [
        operation
        for operation in program.computations[program.entry].values()
        if operation.kind == "while"
    ]
    return max(
        (operation.called[0] for operation in loops),
        key=lambda body: len(program.computations[body]),
    )


def summary(program: Program, chip: Chip, loop: str = "") -> dict:
    """The `table` of a program's kernels on a chip, and what their times are.

    Args:
      loop: the computation that counts, and runs once for each position of a search.

    Returns:
      That of `table`, and `stops`, how often the host is waited for; `by`, where the
      times are from; `outside`, the table of what runs before and after the loop.
    """
    sums = table(kernels(program, chip, loop)) | {
        "stops": stops(program, loop) + bool(loop),  # the loop may end
        "by": BY_COMPILER if chip.clock else BY_RATES,
    }
    if loop:
        called = program.executed(lambda executed: [])
        outside = [
            _kernel(program, executed, chip)
            for executed in called
            if _runs(executed, chip)
        ]
        sums["outside"] = table(outside)
    return sums


def table(executed_kernels: Iterable[Kernel]) -> dict:
    """Sums kernels by part, and lists the largest.

    Returns:
      `count`, `seconds`, `flops`, `bytes` of all; `parts`: the same by part, with the
      seconds by what bounds them; `largest`: kernels alike are one row.
    """
    executed_kernels = list(executed_kernels)
    parts, rows = collections.defaultdict(list), collections.defaultdict(list)
    for kernel in executed_kernels:
        parts[kernel.part].append(kernel)
        rows[kernel.part, kernel.line, kernel.kind, kernel.result].append(kernel)
    sums = {part: _sums(alike) for part, alike in parts.items()}
    largest = sorted(map(_sums, rows.values()), key=lambda row: -row["seconds"])
    return {
        **_sums(executed_kernels),
        "parts": dict(sorted(sums.items(), key=lambda item: -item[1]["seconds"])),
        "largest": largest[:LARGEST],
    }


def _sums(alike: list[Kernel]) -> dict:
    """Sums of kernels, and what the first of them is."""
    bounds = collections.Counter[str]()
    for kernel in alike:
        bounds[kernel.bound] += kernel.times * kernel.seconds
    example = alike[0] if alike else None
    return {
        "count": sum(kernel.times for kernel in alike),
        "seconds": sum(bounds.values()),
        "flops": sum(kernel.times * kernel.flops for kernel in alike),
        "bytes": sum(kernel.times * kernel.bytes for kernel in alike),
        "bounds": dict(bounds),
        **({name: getattr(example, name) for name in _SHOWN} if example else {}),
    }


_SHOWN = ("part", "line", "kind", "name", "result")


def _enters(program: Program) -> Callable[[Operation], list[str]]:
    """Returns what lists the computations that an operation runs as kernels.

    Of a condition, the longest branch.
    """

    def enters(operation: Operation) -> list[str]:
        called = operation.called
        if operation.kind == "conditional":
            return [max(called, key=lambda name: len(program.computations[name]))]
        return called if operation.kind in ("while", "call", "async-start") else []

    return enters


def _kernel(program: Program, executed: Executed, chip: Chip) -> Kernel:
    operation = executed.operation
    operands = program.computations[executed.computation]
    body = _body(program, operation)
    products = [
        (p, b) for p, b in _inside(program, operation, operands) if _is_product(p)
    ]
    flops = sum(
        _flops(product, operations_by_name) for product, operations_by_name in products
    )
    moved = _moved(operation, operands, body)
    seconds, bound = _time(operation, flops, moved, products, chip)
    # A product says what a kernel is for better than what XLA fused with it.
    part, line = _place(program, [p for p, _ in products] + [operation, *body.values()])
    if operation.kind.startswith(_SENDS):
        part = EXCHANGE
    elif all(step.kind in _MOVES for step, _ in _inside(program, operation, operands)):
        part = COPIES
    kind = operation.attribute(r'"kind": *"(__\w+[$\w]*)"') or operation.attribute(
        r'custom_call_target="([^"]*)"'
    )
    kind = kind or operation.attribute(r"\bkind=(\w+)") or operation.kind
    named = next((p.op_name for p, _ in products if p.op_name), operation.op_name)
    times = executed.times
    return Kernel(
        part, line, kind, named, operation.type, times, flops, moved, seconds, bound
    )


def _body(program: Program, operation: Operation) -> dict[str, Operation]:
    """The operations of a fusion; empty for another operation."""
    return (
        program.computations[operation.called[0]] if operation.kind == "fusion" else {}
    )


def _inside(program: Program, operation: Operation, operands: dict[str, Operation]):
    """Yields the operations of a kernel, each with those that its operands name."""
    yield operation, operands
    body = _body(program, operation)
    for inner in body.values():
        yield from _inside(program, inner, body)


def _is_product(operation: Operation) -> bool:
    target = operation.attribute(r'custom_call_target="([^"]*)"') or ""
    return operation.kind in ("dot", "convolution") or any(
        word in target for word in ("gemm", "matmul", "fmha", "tpu_custom_call")
    )


def _flops(product: Operation, operations: dict[str, Operation]) -> float:
    """FLOPs of a product, whose operands are found by name in `operations`."""
    if counted := product.attribute(r'cost_estimate":\{"flops":"(\d+)"'):
        return float(counted)  # Pallas' own
    if scores := product.attribute(
        r'intermediate_tensor_shape": *\{[^[]*"dimensions": *\[(.*?)]'
    ):
        # cuDNN's attention: two products of the scores' size, five for the gradients.
        elements = math.prod(int(n) for n in re.findall(r"\d+", scores))
        width = operations[product.operands[0]].arrays[0][1][-1]
        return (10 if "Backward" in product.attributes else 4) * elements * width
    result = arrays(product.type)[0][1]
    if not all(name in operations for name in product.operands[:2]):
        return 0.0
    left, right = (operations[name].arrays[0][1] for name in product.operands[:2])
    if product.kind == "convolution":
        # How a TPU writes a product [m, k] [k, n] -> [m, n].
        return 2 * math.sqrt(math.prod(left) * math.prod(right) * math.prod(result))
    summed = product.numbers("lhs_contracting_dim(?:ension)?s")
    return 2.0 * math.prod(result) * math.prod(left[i] for i in summed)


def _time(
    operation: Operation, flops, moved, products, chip: Chip
) -> tuple[float, str]:
    """Seconds of a kernel, and what bounds it."""
    traffic = moved / (REACHED_BANDWIDTH * chip.bandwidth)
    if chip.kind == "tpu":
        if operation.kind.endswith("-start"):
            return 0.0, "overlapped"
        # The clock of a TPU that is not in `CHIPS` is unknown.
        cycles = operation.attribute(r'"estimated_cycles":"(\d+)"')
        if cycles and chip.clock:
            return int(cycles) / chip.clock, "compiler"
    is_float32 = any(
        kind == "f32"
        for product, operations in products
        for name in product.operands[:2]
        for kind, _ in (operations[name].arrays if name in operations else [])
    )
    peak = REACHED_PEAK * chip.peak("float32" if is_float32 else "bfloat16")
    shortest = 0.0 if chip.kind == "tpu" else LAUNCH
    times = {"products": flops / peak, "memory": traffic, "launch": shortest}
    bound = max(times, key=times.__getitem__)
    return times[bound], bound


def _place(program: Program, operations: Iterable[Operation]) -> tuple[str, str]:
    """The part and the line of this package that made the first operation it can."""
    for operation in operations:
        line = ""
        for frame in program.frames(operation):
            _, is_ours, inside = frame.file.rpartition("/t2t_jax/")
            if not is_ours or {inside, frame.function} & SERVES:
                continue
            folder = PurePath(inside).parent.name
            part = PARTS.get(inside) or ("search" if folder == "search" else "")
            if folder == "model":  # another kind of model is a part by itself
                part = part or PurePath(inside).stem
            line = line or f"{inside}:{frame.line}"
            if part:
                return part, f"{inside}:{frame.line}"
        if line:
            return OTHER, line
    return OTHER, ""


def _moved(operation: Operation, operands: dict[str, Operation], body: dict) -> int:
    """Bytes that a kernel reads from the chip's memory and writes there."""
    if body:
        return _fused(body)
    if operation.kind in _SLICES:
        return 2 * _stored(operation)
    if operation.kind == "dynamic-update-slice":  # in place
        return 2 * _stored(operands[operation.operands[1]])
    read = (operands[name] for name in operation.operands if name in operands)
    return _stored(operation) + sum(map(_stored, read))


def _fused(body: dict[str, Operation]) -> int:
    """`_moved` of a fusion: only its parameters and results pass through the memory."""
    users = collections.defaultdict(list)
    for operation in body.values():
        for name in operation.operands:
            users[name].append(operation)
    total, in_place = 0, set()
    root = next(operation for operation in body.values() if operation.root)
    names = root.operands if root.kind == "tuple" else [root.name]
    for result in (_through_bitcasts(body, name) for name in names):
        if result.kind in ("dynamic-update-slice", "scatter"):
            updated = 1 if result.kind == "dynamic-update-slice" else -1
            total += _stored(body[result.operands[updated]])
            in_place.add(_through_bitcasts(body, result.operands[0]).name)
        elif result.kind != "parameter":
            total += _stored(result)

    def read(operation: Operation) -> int:
        """Bytes read of a parameter: those of its slices, if only these are used."""
        used = 0
        for user in users[operation.name]:
            if user.kind in _SLICES and user.operands[0] == operation.name:
                used += _stored(user)
            elif user.kind == "bitcast":
                used += read(user)
            elif user.kind != "dynamic-update-slice" or operation.name not in in_place:
                return _stored(operation)
        return min(used, _stored(operation))

    return total + sum(
        read(operation) for operation in body.values() if operation.kind == "parameter"
    )


def _through_bitcasts(body: dict[str, Operation], name: str) -> Operation:
    while body[name].kind == "bitcast":
        name = body[name].operands[0]
    return body[name]


# An array with its layout, in whose `S(1)` a TPU names a memory other than the chip's.
_LAID_OUT = re.compile(r"\b([a-z]\w*\[[\d,]*\])(\{[^}]*\})?")


def _stored(operation: Operation) -> int:
    """Bytes of a result in the memory of the chip, without a library's workspace."""
    total = 0
    for text, layout in _LAID_OUT.findall(operation.type):
        ((kind, shape),) = arrays(text) or [("token", ())]
        workspace = (
            operation.kind == "custom-call" and kind in ("u8", "s8") and len(shape) == 1
        )
        if "S(" not in layout and not workspace:
            total += size((kind, shape))
    return total
