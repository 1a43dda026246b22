"""The user's own modules, given as --ideas=MODULE, which add entries to the tables.

Only the command line names them. A workdir records them (`workdir.py`), but
they are never imported because a workdir or a config says so.
"""

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import sys
import traceback
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

from t2t_jax.io.errors import UserError, did_you_mean

# The modules imported, as they were named, and the SHA-256 of their source.
imported: dict[str, str] = {}
# The code of functions and classes of other modules, as it was when they were first
# met: their file may be edited while the program runs.
_met_code: dict[Any, list[tuple[str, str]]] = {}
VERSIONED = "t2t_jax", "jax", "jaxlib", "flax", "builtins"
_PROGRAM = uuid.uuid4().hex


def named(argv: list[str]) -> list[str]:
    """The modules that a command line names: `--ideas=MODULE` or `--ideas MODULE`.

    It is read before its flags are parsed, since a module may define new ones: the
    options of its entries.
    """
    modules = []
    for i, argument in enumerate(argv):
        name, equals, value = argument.partition("=")
        if name in ("--ideas", "-ideas") and (equals or i + 1 < len(argv)):
            modules.append(value if equals else argv[i + 1])
    return modules


def load(name: str) -> None:
    """Imports a module by its name or its path, which ends in .py; only once.

    Raises:
      UserError: there is no such module, or importing it fails; with the traceback.
    """
    if name in imported:
        return
    try:
        module = _from_file(Path(name)) if name.endswith(".py") else _by_name(name)
    except UserError:
        raise
    except Exception as e:
        raise UserError(f"--ideas={name} cannot be imported:\n{_its_own(e)}") from None
    imported[name] = _sha256(module)


def code_of(*entries: Any) -> list[tuple[str, str]]:
    """Identifies the code of entries of tables, for the reuse of what it computed.

    Returns:
      The name of each function, class and constant that they are made of, and its code:
      "" if it is of this package or of JAX, whose versions identify it; the SHA-256 of
      its file; or, without a file, as in a notebook, a name that nothing else has: what
      another program defines counts as different.
    """
    code = []
    for part in entries:
        if isinstance(part, functools.partial):
            code += code_of(part.func, *part.args, *part.keywords.items())
        elif isinstance(part, tuple | list):
            code += code_of(*part)
        elif hasattr(part, "__qualname__"):
            code += _code_of_definition(part)
        elif hasattr(part, "__dict__") and not _is_versioned(type(part).__module__):
            code += code_of(type(part), *vars(part).items())
        else:
            code.append((repr(part), ""))
    return code


def _code_of_definition(part: Any) -> list[tuple[str, str]]:
    """`code_of` of a function or a class."""
    if part not in _met_code:
        # As before `extensions` was a folder, so that what was computed is used again.
        address = part.__module__.replace("t2t_jax.extensions.", "t2t_jax.", 1)
        name = f"{address}.{part.__qualname__}"
        _met_code[part] = [(name, "")]  # ends the recursion if functions are a cycle
        if not _is_versioned(name):
            module = sys.modules.get(part.__module__)
            has_file = getattr(module, "__file__", None)
            code = _sha256(module) if has_file else f"{_PROGRAM}-{len(_met_code)}"
            # A class depends on its bases, and a function on the one that made it.
            dependencies = [*getattr(part, "__mro__", ())[1:]]
            for cell in getattr(part, "__closure__", None) or ():
                with contextlib.suppress(ValueError):  # it is empty
                    dependencies.append(cell.cell_contents)
            _met_code[part] = [(name, code), *code_of(*dependencies)]
    return _met_code[part]


def _is_versioned(name: str) -> bool:
    return name.partition(".")[0] in VERSIONED


def foreign_code(*entries: Any) -> dict[str, str]:
    """Returns the part of `code_of` that is not this package's, by name."""
    return {name: code for name, code in code_of(*entries) if code}


def modules() -> dict[str, str]:
    """Returns the SHA-256 of the modules of --ideas, wherever they were, by name."""
    return {Path(name).name.removesuffix(".py"): x for name, x in imported.items()}


def _from_file(path: Path) -> ModuleType:
    """Imports a file under its own name, as if its folder were on `sys.path`."""
    if not path.is_file():
        raise UserError(f"--ideas={path}: no such file{_similar(path.parent, path)}")
    if path.stem in sys.modules:
        raise UserError(
            f"--ideas={path}: another module {path.stem!r} is already imported; rename "
            "the file"
        )
    path = path.resolve()
    _make_importable(path.parent)  # for what it imports from its own folder
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _by_name(name: str) -> ModuleType:
    """Imports a module by its name."""
    folder = Path.cwd()
    want = (
        "want the name of a module, such as my_idea for my_idea.py, or a path that "
        f"ends in .py{_similar(folder, Path(f'{name}.py'))}"
    )
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"--ideas={name}: not the name of a module; {want}")
    _make_importable(folder)  # the console script has its own folder there instead
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as e:
        if not f"{name}.".startswith(f"{e.name}."):
            raise  # the module is there, and imports one that is not
        raise UserError(
            f"--ideas={name}: there is no module {e.name!r} in {folder} or on "
            f"sys.path; {want}"
        ) from None
    if getattr(module, "__file__", None) is None:
        raise UserError(f"--ideas={name} has no code of its own; {want}")
    return module


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _similar(folder: Path, path: Path) -> str:
    """A hint at the files of a folder; empty if it has none that can be imported."""
    files = sorted(file.name for file in folder.glob("*.py"))
    return did_you_mean(path.name, files) if files else ""


def _its_own(error: Exception) -> str:
    """The traceback from the module's own first line on."""
    step = error.__traceback__
    while step and (
        step.tb_frame.f_code.co_filename == __file__
        or "importlib" in step.tb_frame.f_code.co_filename
    ):
        step = step.tb_next
    return "".join(traceback.format_exception(type(error), error, step)).rstrip()


def _sha256(module: ModuleType) -> str:
    """Hashes the source of a module; of a package, of all its modules.

    With the files of its folder that it imports, since it runs their code, too.
    """
    source = Path(module.__file__)
    package = source.name == "__init__.py"
    package_of = {
        getattr(loaded, "__file__", None): getattr(loaded, "__package__", None) or ""
        for loaded in [*sys.modules.values()]
    }
    files, unread = set(), [*source.parent.rglob("*.py")] if package else [source]
    while unread:
        if (file := unread.pop()) in files or file.suffix != ".py":
            continue
        files.add(file)
        for node in ast.walk(ast.parse(file.read_bytes())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            above = getattr(node, "module", None) or ""
            for name in (above, *(f"{above}.{a.name}".strip(".") for a in node.names)):
                level = getattr(node, "level", 0)  # of `from .name import x`
                if level and (anchor := package_of.get(str(file))):
                    name = importlib.util.resolve_name("." * level + name, anchor)
                target = Path(getattr(sys.modules.get(name), "__file__", None) or "/")
                installed = "site-packages" in target.parts or _is_versioned(name)
                if source.parent in target.parents and not installed:
                    unread.append(target)
    return hashlib.sha256(b"".join(f.read_bytes() for f in sorted(files))).hexdigest()
