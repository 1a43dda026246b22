"""Compiled programs of a translator, kept in files: a start that finds them is quick.

JAX's own cache is asked with a traced program, and tracing takes longer than loading;
and JAX keeps what it has traced in memory. Here a file is found by what a program is
traced from: the model's config, the code, the algorithm, and the shapes of the arrays.
XLA cannot write a program that it has read, so there are files only with JAX's own
cache turned off, as `serve` does on a CPU.
"""

import contextlib
import copy
import functools
import hashlib
import pickle
import sys
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize

import t2t_jax
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.programs import run_by
from t2t_jax.io import ideas
from t2t_jax.io.atomic import (
    checked_json,
    read_checked_json,
    sha256_of,
    write_atomically,
)
from t2t_jax.io.locations import is_local
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.parallel.process_setup import claim

FOLDER = "executables"  # in the folder of JAX's own cache


class NotCompiledError(Exception):
    """A program is needed that is still to be compiled."""


@functools.cache
def _environment() -> list:
    """All that compiled programs depend on besides their model, arrays and options."""
    digest, package = hashlib.sha256(), Path(t2t_jax.__file__).parent
    for room in ("model", "search", "decoding", "parallel", "extensions"):
        for file in sorted((package / room).rglob("*.py")):
            digest.update(file.read_bytes())
    options = {k: repr(v) for k, v in jax.config.values.items() if "cache" not in k}
    return [describe_machine(), sys.version, options, digest.hexdigest()]


def _folder() -> Path | None:
    """The folder of the files; None if nothing can be kept."""
    cache = jax.config.jax_compilation_cache_dir
    if not cache or jax.config.jax_enable_compilation_cache or not is_local(cache):
        return None
    try:
        claim(folder := Path(cache) / FOLDER)
    except OSError:
        return None
    return folder


class Executables:
    """Calls the programs of a translator, in place of `jax.jit`; as `Once` does."""

    def __init__(self, members: Sequence[Member], sizes: Sequence[int]):
        # Definitions by their id, with the number of the first equal one: to hash one
        # takes a millisecond.
        self._definitions: dict[int, tuple[Any, int]] = {}
        for member in members:
            self._number(member.model.definition)
        sections = [s for m in members for s in (m.config.model, m.config.decode)]
        code = ideas.code_of(*(entry for s in sections for entry in s.entries()))
        self._devices = [*members[0].mesh.devices.flat]
        names = [repr(part) for part in (*sections, *self._devices)]
        # An adapter adds arrays to its base's.
        shapes = [str(jax.tree.map(jax.numpy.shape, m.parameters)) for m in members]
        facts = [_environment(), names, code, sizes, shapes]
        self.facts = sha256_of(facts)
        self._loaded: dict[tuple, Callable] = {}
        self._kept = self._loaded  # those that cannot be loaded again
        self._names: set[str] = set()  # of the files that were used
        self._folder = _folder()

    def compiler(self) -> "Executables":
        """The same programs, which it does not keep in memory if they are in files."""
        compiler = copy.copy(self)
        compiler._names = set()
        if self._folder:
            compiler._loaded = {}
        return compiler

    def __call__(self, program: Callable, *arrays: Any, **options: Any) -> Any:
        """Calls a function with these programs; compiles those that are missing."""
        with run_by(self._run):
            return program(*arrays, **options)

    def call_compiled(self, function: Callable, *arguments: Any) -> Any:
        """Calls a function; raises NotCompiledError if a program is missing."""
        with run_by(partial(self._run, compiles=False)):
            return function(*arguments)

    def _run(
        self, program: Callable, arrays: tuple, fields: dict, compiles: bool = True
    ) -> Any:
        leaves, tree = jax.tree.flatten(arrays)
        numbers = tuple(map(self._number, fields.get("definitions", ())))
        shapes = tuple(leaf.shape for leaf in leaves)
        # All have the same mesh.
        static = (v for k, v in fields.items() if k not in ("definitions", "mesh"))
        key = program.__name__, tree, shapes, numbers, *static
        if (executable := self._loaded.get(key)) is None:
            executable = self._load(program, key, arrays, fields, compiles)
            self._loaded[key] = executable
        return executable(*arrays)

    def _number(self, definition: Any) -> int:
        if (known := self._definitions.get(id(definition))) is None:
            numbered = [*self._definitions.values()]
            equal = [n for other, n in numbered if other == definition]
            number = equal[0] if equal else len({n for _, n in numbered})
            known = self._definitions[id(definition)] = definition, number
        return known[1]

    def _load(
        self, program: Callable, key: tuple, arrays: tuple, fields: dict, compiles: bool
    ) -> Any:
        """A program from its file; or else it is compiled, and kept in one."""
        types = [str(leaf.dtype) for leaf in jax.tree.leaves(arrays)]
        name = sha256_of([self.facts, repr(key), types])[:32]
        file = self._folder and self._folder / f"{name}.program"
        self._names.add(name)
        if file and file.exists():
            try:
                content = pickle.loads(zlib.decompress(file.read_bytes()))
                return deserialize_and_load(*content, execution_devices=self._devices)
            except Exception:  # cut off, or of another machine after all
                file.unlink(missing_ok=True)
        if not compiles:
            raise NotCompiledError("this program is still to be compiled")
        executable = program.jitted().lower(*arrays, **fields).compile()
        program.jitted().clear_cache()  # of what was traced
        try:
            content = pickle.dumps(serialize(executable))
        except Exception:  # jaxlib cannot write those of this device
            file = None
        if not (file and _write(file, zlib.compress(content, 1))):
            self._kept[key] = executable
        return executable

    # ------------------------------------------------------------ what was found out

    def recall(self, *about: Any) -> bool | None:
        """What `remember` was told, if the programs of then are still there."""
        if self._folder is None:
            return None
        try:
            record = read_checked_json(self._record(about))
        except (OSError, ValueError):
            return None
        files = (self._folder / f"{name}.program" for name in record["programs"])
        return record["result"] if all(file.exists() for file in files) else None

    def remember(self, result: bool, *about: Any) -> None:
        """Keeps a result that was found out with the programs used so far."""
        if self._folder:
            record = {"result": result, "programs": sorted(self._names)}
            _write(self._record(about), checked_json(record))

    def _record(self, about: tuple) -> Path:
        name = sha256_of([self.facts, repr(about)])[:32]
        return self._folder / f"{name}.json"


def _write(file: Path, content: bytes) -> bool:
    """Writes a file; returns False if the disk does not let it."""
    with contextlib.suppress(OSError):
        write_atomically(file, content)
    return file.exists()
