"""The shape of the project: imports point backwards, TensorFlow stays out."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The way the data goes; a module imports from its own stage and those before it.
STAGES = ["data", "parallel", "model", "training", "decoding", "evaluation"]
COMMON = {"errors", "config", "files", "workdir", "screen", "huge_pages"}
COMMANDS = {"command", "main", "describe", "plan", "translate", "evaluate", "score"}
COMMANDS |= {"whatwas"}


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


@pytest.mark.parametrize("stage", STAGES)
def test_imports_point_only_backwards(stage):
    allowed = {*STAGES[: STAGES.index(stage) + 1], *COMMON, "__version__"}
    files = sorted((ROOT / "t2t_jax" / stage).glob("*.py"))
    assert len(files) > 1
    for path in files:
        assert set(imports_of(path)) <= allowed, path


def test_every_module_has_its_place():
    files = {path.stem for path in (ROOT / "t2t_jax").glob("*.py")}
    assert files == COMMON | COMMANDS | {"__init__"}


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


def test_all_public_names_are_there():
    run_python("import t2t_jax; [getattr(t2t_jax, n) for n in t2t_jax.__all__]")


def test_training_and_decoding_import_no_tensorflow():
    names = ", ".join(f"t2t_jax.{name}" for name in sorted(COMMANDS))
    code = f"import sys, {names}; print('tensorflow' in sys.modules)"
    assert run_python(code).strip() == "False"
