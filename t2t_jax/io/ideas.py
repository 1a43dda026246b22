"""The user's own modules, given as --ideas=MODULE, which add entries to the tables.

Only the command line names them. A workdir records them (`workdir.py`), but
they are never imported because a workdir or a config says so.
"""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from t2t_jax.io.errors import UserError, did_you_mean

# The modules imported, as they were named, and the SHA-256 of their source.
imported: dict[str, str] = {}


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
    """Hashes the source of a module; of a package, of all its modules."""
    file = Path(module.__file__)
    package = file.name == "__init__.py"
    files = sorted(file.parent.rglob("*.py")) if package else [file]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()
