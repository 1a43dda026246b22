"""The shape of the project: imports point to earlier folders, TensorFlow stays out."""

import ast
import keyword
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "t2t_jax"
# The way the data goes; a module imports from its own folder and those before it.
FOLDERS = [
    *("terminal", "files", "viewing", "grammar", "data", "parallel", "workdir"),
    *("model", "metrics", "search", "training", "decoding", "tasks", "evaluation"),
    *("bridges", "planning", "analysis", "pipeline", "verification", "doctor"),
    *("comparison", "experiment", "commands"),
]
ANYWHERE = {"config", "sections", "__version__"}


def imports_of(path):
    """The (package, module below it) pairs of t2t_jax that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "t2t_jax" and len(parts) > 1:
                yield parts[1]


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_to_earlier_folders(folder):
    allowed = {*FOLDERS[: FOLDERS.index(folder) + 1], *ANYWHERE}
    files = sorted((PACKAGE / folder).rglob("*.py"))
    assert len(files) > 1
    for path in files:
        if path.name == "__main__.py":  # starts the command of the folder's name
            continue
        assert set(imports_of(path)) <= allowed, path


def test_the_config_imports_only_errors():
    assert {*imports_of(PACKAGE / "config.py")} == {"terminal", "sections"}
    assert {*imports_of(PACKAGE / "sections.py")} == {"terminal"}


def test_every_listed_command_has_its_module():
    from t2t_jax.commands.launch import COMMANDS

    names = {name for group in COMMANDS.values() for name in group}
    for name in names:
        module = f"{name}_" if keyword.iskeyword(name) else name
        assert (PACKAGE / "commands" / f"{module}.py").exists()


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light():
    code = "import sys, t2t_jax; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    loaded = run_python(code).split()
    assert not {"tensorflow", "jax", "numpy", "orbax", "sacrebleu"} & set(loaded)
    code = code.replace("t2t_jax;", "t2t_jax.commands.launch;")
    assert not {"jax", "numpy", "absl"} & set(run_python(code).split())


def test_all_public_names_are_there():
    run_python("import t2t_jax; [getattr(t2t_jax, n) for n in t2t_jax.__all__]")


def test_training_and_decoding_import_no_tensorflow():
    modules = sorted((PACKAGE / "commands").glob("[!_]*.py"))
    names = ", ".join(f"t2t_jax.commands.{path.stem}" for path in modules)
    code = f"import sys, {names}; print('tensorflow' in sys.modules)"
    assert run_python(code).strip() == "False"
