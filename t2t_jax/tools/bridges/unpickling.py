"""Reads pickles without running them: only values, containers and inert records.

Python's `pickle` calls whatever a file names, so a file from elsewhere could run any
program. Here a small stack machine reads the opcodes. It calls nothing but the few
functions of a table, by their names, and refuses every other name.
"""

import dataclasses
import pickletools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from t2t_jax.io.errors import UserError


class Record(dict):
    """An object of which only the attributes were read: they are its items."""


@dataclasses.dataclass(frozen=True)
class _Name:
    """A class or function that a pickle names; nothing is imported."""

    path: str


_MARK = object()

# Types and objects of these are read as records.
RECORDS = {
    "argparse.Namespace",
    "fairseq.meters.AverageMeter",
    "fairseq.meters.StopwatchMeter",
    "fairseq.meters.TimeMeter",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy.dtype",
    "numpy.ndarray",
    "pathlib.PosixPath",
    "torch.device",
}


def _key(x: Any) -> Any:
    """A key of a dict or member of a set: a plain value."""
    # The hash of tuples in tuples, thousands deep, would overflow Python's stack.
    if isinstance(x, tuple) and any(isinstance(part, tuple) for part in x):
        raise ValueError("a key of nested tuples")
    return x


def _dict(items: Iterable[tuple[Any, Any]] = ()) -> dict:
    return {_key(key): value for key, value in items}


def _set(items: Iterable[Any] = ()) -> set:
    return {_key(item) for item in items}


def _encode(text: str, _: str = "latin1") -> bytes:
    """Bytes, which old protocols store as Latin-1 text."""
    return text.encode("latin1")


# What a pickle may call. Each returns a new object.
CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _dict,
    "collections.defaultdict": lambda kind=None: {},
    "collections.Counter": lambda counts=(): {**counts},
    "_codecs.encode": _encode,
}
for _module in ("builtins", "__builtin__"):  # Python 3's and 2's
    RECORDS |= {f"{_module}.{name}" for name in ("dict", "float", "int", "list", "str")}
    CALLS |= {
        f"{_module}.set": _set,
        f"{_module}.frozenset": _set,
        f"{_module}.bytearray": _encode,
    }


def unpickle(
    stream: Any,
    name: str,
    persistent: Callable[[Any], Any] | None = None,
    calls: Mapping[str, Callable[..., Any]] | None = None,
    names: frozenset[str] | set[str] = frozenset(),
) -> Any:
    """Reads one pickle from a stream; the stream is then behind it.

    Args:
      stream: has `read`, `readline` and `tell`; not larger than the file.
      persistent: makes an object from its persistent id.
      calls: functions that this pickle may name besides `CALLS`.
      names: more names that may occur and are not called, such as dtypes.

    Raises UserError if it is damaged, or names another class or function.
    """
    machine = _Machine(name, persistent, {**CALLS, **(calls or {})}, names)
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            machine.step(opcode.name, argument)
        return machine.pop()
    except UserError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, MemoryError) as e:
        raise UserError(
            f"{name} is damaged or truncated: its pickle cannot be "
            f"read ({e}); download it again"
        ) from None


_LITERALS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT",
    "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "BYTEARRAY8",
}  # fmt: skip
_CONSTANTS = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
    "MARK": lambda: _MARK,
}
# What becomes of the values since the last mark.
_MARKED: dict[str, Callable[[list], Any]] = {
    "TUPLE": tuple,
    "LIST": list,
    "DICT": lambda items: _dict(_pairs(items)),
    "FROZENSET": _set,
}
_IGNORED = {"PROTO", "FRAME", "STOP"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}


def _pairs(items: list) -> zip:
    return zip(items[::2], items[1::2], strict=True)


class _Machine:
    """The stack and memo of one pickle."""

    def __init__(self, name, persistent, calls, names):
        self._file, self._persistent = name, persistent
        self._calls, self._names = calls, names
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        return self._stack.pop()

    def _since_mark(self) -> list:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:  # IndexError below the stack
            at -= 1
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def step(self, opcode: str, argument: Any) -> None:
        """Executes one opcode; they are described in `pickletools`."""
        stack, memo = self._stack, self._memo
        if opcode in _LITERALS:
            stack.append(argument)
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode]())
        elif opcode in _MARKED:
            stack.append(_MARKED[opcode](self._since_mark()))
        elif opcode in ("TUPLE1", "TUPLE2", "TUPLE3"):
            items = [stack.pop() for _ in range(int(opcode[-1]))]
            stack.append(tuple(items[::-1]))
        elif opcode in _GETS:
            stack.append(memo[int(argument)])
        elif opcode in _PUTS:
            memo[int(argument)] = stack[-1]
        elif opcode == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif opcode in _IGNORED:
            pass
        elif method := getattr(self, f"_{opcode.lower()}", None):
            method(argument)
        else:
            raise UserError(
                f"{self._file} uses the pickle opcode {opcode}, which a file of "
                "tensors does not need; save it again with torch.save or safetensors"
            )

    def _dup(self, _):
        self._stack.append(self._stack[-1])

    def _pop(self, _):
        self._stack.pop()

    def _pop_mark(self, _):
        self._since_mark()

    def _append(self, _):
        self._extend([self._stack.pop()])

    def _appends(self, _):
        self._extend(self._since_mark())

    def _extend(self, items: list) -> None:
        if not isinstance(self._stack[-1], list):
            raise TypeError("an item is appended to what is not a list")
        self._stack[-1].extend(items)

    def _setitem(self, _):
        value, key = self._stack.pop(), self._stack.pop()
        self._update([key, value])

    def _setitems(self, _):
        self._update(self._since_mark())

    def _update(self, items: list) -> None:
        if not isinstance(self._stack[-1], dict):
            raise TypeError("an item is set in what is not a dict")
        self._stack[-1].update(_dict(_pairs(items)))

    def _additems(self, _):
        items = self._since_mark()
        self._stack[-1].update(_set(items))

    def _global(self, argument):
        self._stack.append(self._named(argument.replace(" ", ".", 1)))

    def _stack_global(self, _):
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(self._named(f"{module}.{name}"))

    def _named(self, path: str) -> _Name:
        if path in self._calls or path in RECORDS or path in self._names:
            return _Name(path)
        raise UserError(
            f"{self._file} holds an object of {path}. A file from elsewhere could run "
            "any program through it, so only tensors and plain containers are read, "
            "and nothing was run; save its state_dict alone, or use safetensors"
        )

    def _reduce(self, _):
        arguments, function = self._stack.pop(), self._stack.pop()
        self._stack.append(self._call(function, arguments))

    _newobj = _reduce

    def _newobj_ex(self, _):
        self._stack.pop()  # keyword arguments
        self._reduce(None)

    def _obj(self, _):
        function, *arguments = self._since_mark()
        self._stack.append(self._call(function, tuple(arguments)))

    def _inst(self, argument):
        function = self._named(argument.replace(" ", ".", 1))
        self._stack.append(self._call(function, tuple(self._since_mark())))

    def _call(self, function: Any, arguments: Any) -> Any:
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise TypeError("a call of what is not a function")
        if call := self._calls.get(function.path):
            return call(*arguments)
        return Record({"arguments": arguments} if arguments else {})

    def _build(self, _):
        """Gives an object its state: only records keep it."""
        state, made = self._stack.pop(), self._stack[-1]
        if isinstance(made, Record):
            made.update(state if isinstance(state, dict) else {"state": state})
        # Other state is PyTorch's `_metadata` of a state_dict: versions of modules.

    def _persid(self, argument):
        self._stack.append(self._from_id(argument))

    def _binpersid(self, _):
        self._stack.append(self._from_id(self._stack.pop()))

    def _from_id(self, key: Any) -> Any:
        if self._persistent is None:
            raise TypeError("an object that is stored elsewhere")
        return self._persistent(key)
