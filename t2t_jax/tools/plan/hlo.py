"""Reads XLA's programs: the HLO text of `compiled.as_text()`, for any device.

XLA has no stable interface for this. What is read here, and nowhere else in the
package: computations and their operations, what calls what, how often loops run, and
the lines of source that made an operation.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

Array = tuple[str, tuple[int, ...]]  # element type and shape: ("f32", (8, 16))

# `  ROOT %x = f32[8,16]{1,0} add(%a, %b), metadata={...}`
_OPERATION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = ")
_ARRAY = re.compile(r"\b([a-z]+\d*(?:e\d+m\d+\w*)?)\[([\d,]*)\]")
_INDEX = re.compile(r"/\*index=\d+\*/")
# Other computations that an operation runs: fusions, loop bodies, reductions, calls.
_CALLS = re.compile(r"(?:calls|body|to_apply|computation)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")  # of a conditional
_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')  # from metadata={...}
# Bits of an element; other types name theirs, as f32 does.
_BITS = {"pred": 8, "bf16": 16, "token": 0, "opaque": 0}


class Frame(NamedTuple):
    """A place in the source that was being traced."""

    file: str
    function: str
    line: int


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation of a computation."""

    name: str
    type: str  # of the result: `f32[8,16]{1,0}`, or a tuple of types
    kind: str  # HLO's opcode, such as `fusion`
    operands: tuple[str, ...]  # names; of a parameter, its number
    attributes: str  # the text after the operands
    root: bool  # the result of its computation

    @cached_property
    def arrays(self) -> list[Array]:
        """Element types and shapes of the result."""
        return arrays(self.type)

    @property
    def bytes(self) -> int:
        """Size of the result."""
        return sum(map(size, self.arrays))

    @property
    def op_name(self) -> str:
        """JAX's name of what the operation is for; empty if unknown."""
        named = _NAME.search(self.attributes)
        return named[1] if named else ""

    @property
    def called(self) -> list[str]:
        """Names of the computations that the operation runs."""
        called = _CALLS.findall(self.attributes)
        for branches in _BRANCHES.findall(self.attributes):
            called += [branch.strip().lstrip("%") for branch in branches.split(",")]
        return called

    def attribute(self, pattern: str) -> str | None:
        """The first group of a pattern in the attributes."""
        match = re.search(pattern, self.attributes)
        return match and match[1]

    def numbers(self, name: str) -> list[int]:
        """Numbers of an attribute such as `lhs_contracting_dims={1,2}`."""
        digits = self.attribute(rf'"?{name}"?[=:][{{\[]([\d,"]*)')
        return [int(n) for n in re.findall(r"\d+", digits or "")]


def arrays(text: str) -> list[Array]:
    """Element types and shapes of a type, whose tuple may be nested."""
    matches = _ARRAY.findall(text)
    return [(kind, tuple(int(n) for n in d.split(",") if n)) for kind, d in matches]


def size(array: Array) -> int:
    """Bytes of an array."""
    kind, shape = array
    # The bits are the digits before an `e`: f8e4m3fn has 8.
    bits = _BITS.get(kind, -1)
    if bits < 0:
        bits = int(re.sub(r"\D", "", kind.partition("e")[0]) or 8)
    return math.prod(shape) * bits // 8


class Executed(NamedTuple):
    """An operation where a program runs it."""

    operation: Operation
    times: int  # more than one inside a loop
    computation: str  # in which it is
    caller: Operation | None  # that runs this computation; None: the program


class Program:
    """A compiled program.

    Attributes:
      entry: the name of the computation that runs first.
      computations: {name: {name of an operation: the operation}}, in order.
    """

    def __init__(self, text: str):
        self.entry = ""
        self.computations = dict[str, dict[str, Operation]]()
        self._tables = dict[str, dict[int, str]]()  # of the lines of source
        current = table = {}
        for line in text.splitlines():
            # A computation starts in column 0: `[ENTRY] %name (...) -> ... {`.
            if line and not line[0].isspace() and line.rstrip().endswith("{"):
                words = line.split()
                name = words[words[0] == "ENTRY"].lstrip("%")
                if words[0] == "ENTRY":
                    self.entry = name
                current = self.computations.setdefault(name, {})
            elif match := _OPERATION.match(line):
                current[match[1]] = _operation(match[1], line, match.end())
            elif not self.computations and line.strip():
                number, _, entry = line.partition(" ")
                if number.isdecimal():
                    table[int(number)] = entry
                else:
                    table = self._tables.setdefault(line.strip(), {})

    def executed(
        self,
        enters: Callable[[Operation], list[str]] = lambda operation: operation.called,
        computation: str = "",
        times: int = 1,
        caller: Operation | None = None,
    ) -> Iterator[Executed]:
        """Yields operations in the order in which they are in the text, recursively.

        Args:
          enters: the computations of an operation whose operations to yield, too.
        """
        computation = computation or self.entry
        for operation in self.computations.get(computation, {}).values():
            yield Executed(operation, times, computation, caller)
            trips = times * (self.trips(operation) if operation.kind == "while" else 1)
            for name in enters(operation):
                yield from self.executed(enters, name, trips, operation)

    def trips(self, loop: Operation) -> int:
        """Number of iterations of a loop: XLA's own count, or its condition's bound."""
        if count := loop.attribute(r"known_trip_count\W+n\W+(\d+)"):
            return int(count)
        condition = self.computations.get(loop.attribute(r"condition=%?([\w.-]+)"), {})
        # `i < N` compares with a constant; the largest one in the condition is the
        # bound.
        bounds = [
            int(operation.operands[0])
            for operation in condition.values()
            if operation.kind == "constant" and operation.type.startswith("s32[]")
        ]
        return max(bounds, default=1)

    def frames(self, operation: Operation) -> list[Frame]:
        """The lines of source that made an operation, innermost first."""
        stacks, frames = self._tables.get("StackFrames", {}), []
        # A frame without a parent has this one's: 0, or 1 where parents count from 1.
        no_parent = _number("parent_frame_id", stacks[1]) if stacks else 0
        number = int(operation.attribute(r"stack_frame_id=(\d+)") or 0)
        while stack := stacks.get(number):
            place = self._tables["FileLocations"][_number("file_location_id", stack)]
            frames.append(
                Frame(
                    self._quoted("FileNames", _number("file_name_id", place)),
                    self._quoted("FunctionNames", _number("function_name_id", place)),
                    _number("line", place),
                )
            )
            number = _number("parent_frame_id", stack) - no_parent
        return frames

    def _quoted(self, table: str, number: int) -> str:
        return self._tables[table][number].strip('"')


def _number(name: str, text: str) -> int:
    """The number N of `name=N`."""
    return int(re.search(rf"\b{name}=(\d+)", text)[1])


def _operation(name: str, line: str, start: int) -> Operation:
    text = _INDEX.sub("", line[start:])
    # The type is a tuple in parentheses, or ends at the first space.
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    kind, _, arguments = text[end:].strip().partition("(")
    close = _closing("(" + arguments, 0) - 1
    inside = arguments[:close]
    operands = re.findall(r"%([\w.-]+)", inside) or [inside]
    root = line.lstrip().startswith("ROOT ")
    return Operation(name, text[:end], kind, (*operands,), arguments[close + 1 :], root)


def _closing(text: str, start: int) -> int:
    """The index of the parenthesis that closes the one at `start`."""
    depth = 0
    for match in re.finditer(r"[()]", text[start:]):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return start + match.start()
    return len(text)
