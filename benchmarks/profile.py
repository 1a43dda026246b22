"""Time of compiled programs by operation, from XLA's own trace on a CPU.

    rows = profile(lambda: trainer.step(batch), times=10)

A row is all instructions of one kind that came from one function of this package: XLA
fuses, and names a fused instruction by one of its parts.
"""

import glob
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple

import jax

import t2t_jax
from t2t_jax.io.errors import UserError

PACKAGE = str(Path(t2t_jax.__file__).parent)
PRODUCTS = "model/products.py"


class Instruction(NamedTuple):
    """An instruction of a compiled program.

    Attributes:
      kind: `product` with its einsum, or the JAX primitive that it is named by; the end
        ' marks the backward pass.
      function: of this package, that the primitive was traced in; "" if unknown.
      flops: of its matrix products.
    """

    kind: str
    function: str
    flops: float


def profile(call: Callable[[], object], times: int = 10) -> list[dict]:
    """Calls a function some times; rows with milliseconds a call, longest first.

    The time of an instruction is its median times how often it ran, without that of the
    instructions that it calls. So a pause by another process does not count; waiting
    for other threads of this one does, mostly in `cond` and `while`.

    Args:
      call: returns what is to be waited for, or waits itself. Compiled before.

    Raises:
      UserError: on a GPU or TPU, whose trace names operations in another way.
    """
    if jax.default_backend() != "cpu":
        raise UserError(
            f"a profile by operation is made on a CPU, not on a {jax.default_backend()}"
        )
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for _ in range(times):
                jax.block_until_ready(call())
        file = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)[0]
        spent = defaultdict(list)
        for plane in jax.profiler.ProfileData.from_file(file).planes:
            for line in plane.lines:
                for name, nanoseconds in _own_times(line.events):
                    spent[name].append(nanoseconds)
    programs = {}
    for executable in jax.devices()[0].client.live_executables():
        for module in executable.hlo_modules():
            if any(module.name == program for program, _ in spent):
                programs[module.name] = instructions(module.to_string())
    unknown = Instruction("unknown", "", 0)
    rows = defaultdict(lambda: {"ms": 0.0, "runs": 0.0, "flops": 0.0})
    for (program, name), values in spent.items():
        operation = programs.get(program, {}).get(name, unknown)
        row, runs = rows[operation.kind, operation.function], len(values) / times
        row["ms"] += statistics.median(values) * runs / 1e6
        row["runs"] += runs
        row["flops"] += operation.flops * runs
    total = sum(row["ms"] for row in rows.values())
    return [
        {"operation": kind, "function": function, "ms": row["ms"]}
        | {"share": row["ms"] / total, "runs": round(row["runs"])}
        | {"GFLOP/s": row["flops"] / row["ms"] / 1e6 or None}
        for (kind, function), row in sorted(rows.items(), key=lambda x: -x[1]["ms"])
    ]


def _own_times(events) -> Iterator[tuple[tuple[str, str], float]]:
    """((program, instruction), nanoseconds) of a thread's events, less inner ones."""
    times = []  # [key, nanoseconds]
    outer = []  # (end, index in `times`) of the events that are not over
    for event in sorted(events, key=lambda e: (e.start_ns, -e.duration_ns)):
        stats = dict(event.stats)
        if "hlo_op" not in stats or event.name.startswith("end: "):
            continue
        while outer and event.start_ns >= outer[-1][0]:
            outer.pop()
        if outer:
            times[outer[-1][1]][1] -= event.duration_ns
        outer.append((event.start_ns + event.duration_ns, len(times)))
        times.append([(stats["hlo_module"], stats["hlo_op"]), event.duration_ns])
    return map(tuple, times)


def instructions(hlo: str) -> dict[str, Instruction]:
    """Parses the text of a compiled program: its instructions by name."""
    function_of = _functions(hlo)
    shapes, flops, named, computation = {}, defaultdict(float), {}, ""
    lines = re.findall(r"^(?:ENTRY )?%(\S+) \(|^ +(?:ROOT )?%(\S+) = (.*)", hlo, re.M)
    for opened, name, text in lines:
        computation = opened or computation
        if opened:
            continue
        if dims := re.match(r"\w+\[([\d,]*)\]", text):
            shapes[name] = [int(n) for n in dims[1].split(",") if n]
        dot = re.search(r" dot\(%([^,]+).*lhs_contracting_dims={([\d,]*)}", text)
        if dot:
            summed = prod(shapes[dot[1]][int(axis)] for axis in dot[2].split(","))
            flops[name] = 2 * summed * prod(shapes[name])
            flops[computation] += flops[name]
        if called := re.search(r" fusion\(.*calls=%([^,\s]+)", text):
            flops[name] = flops[called[1]]
        # Without metadata an instruction is taken for part of its first operand.
        metadata = re.search(r'op_name="([^"]*)" stack_frame_id=(\d+)', text)
        operand = re.search(r"\(%([^,)]+)", text)
        around = named.get(operand[1] if operand else "", Instruction("", "", 0))
        function, back = around.function, around.kind.endswith("'")
        kind = re.sub(r"[.\d]*$", "", name)
        if metadata:
            path, function = metadata[1], function_of.get(metadata[2], "")
            kind, back = path.split("/")[-1], "transpose(jvp" in path
        if flops[name]:
            equation = re.search(r"[a-z]+,[a-z]+->[a-z]+", text)  # of an einsum
            kind = f"product {equation[0]}" if equation else "product"
        named[name] = Instruction(kind + "'" * back, function, flops[name])
    return named


def _functions(hlo: str) -> dict[str, str]:
    """Frame -> the innermost function of this package that it is in or called by."""
    head = hlo.split("\nENTRY", 1)[0]
    files, names = (
        dict(
            re.findall(r'^(\d+) "(.*)"$', head.split(table)[-1].split("\n\n")[0], re.M)
        )
        for table in ("FileNames", "FunctionNames")
    )
    places = {
        # Products are those of the function that asks for them.
        place: names[function]
        if files[file].startswith(PACKAGE) and not files[file].endswith(PRODUCTS)
        else ""
        for place, file, function in re.findall(
            r"^(\d+) {file_name_id=(\d+) function_name_id=(\d+)", head, re.M
        )
    }
    functions: dict[str, str] = {}  # a frame comes after that which called it
    for frame, place, parent in re.findall(
        r"^(\d+) {file_location_id=(\d+)(?: parent_frame_id=(\d+))?", head, re.M
    ):
        # XLA prints the number of the caller plus 1.
        caller = functions.get(str(int(parent or 0) - 1), "")
        functions[frame] = places[place] or caller
    return functions
