"""The shape of the project: imports point to earlier folders, TensorFlow stays out."""

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "t2t_jax"
# The core, in the order of the data: a module imports its own folder and earlier ones.
CORE = [
    "io",
    "text",
    "data",
    "parallel",
    "workdir",
    "model",
    "metrics",
    "search",
    "training",
    "decoding",
    "tasks",
    "evaluation",
    "costs",
    "run",
    "commands",
]
# The middle storey: what is built on the core, which does not import it. Tables of the
# core have its addresses. Its rooms are those of the core, in the same order.
MIDDLE = "extensions"
ANYWHERE = {"config", "sections", "__version__"}
# The tools, and which others each may import beside the core. Pages are for all.
TOOLS = {
    "pages": set(),
    "plan": {"pages"},
    "bridges": {"pages"},
    "doctor": {"pages"},
    "compare": {"pages"},
    "explain": {"pages"},
    "experiment": {"pages", "plan"},
    "verify": {"pages", "plan"},
    "serve": {"pages"},
    "learn": {"pages"},
}


class Imported(ast.NodeVisitor):
    """The names below t2t_jax that a file may import when it runs: `data.corpus`."""

    def __init__(self):
        self.names = set()

    def visit_If(self, node):
        if getattr(node.test, "id", "") != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_ImportFrom(self, node):
        for alias in node.names:
            self.visit_Import(node, f"{node.module}.{alias.name}")

    def visit_Import(self, node, *names):
        for name in names or [alias.name for alias in node.names]:
            package, _, below = name.partition(".")
            if package == "t2t_jax" and below:
                self.names.add(below)


@functools.cache
def imports_of(path):
    imported = Imported()
    imported.visit(ast.parse(path.read_text(encoding="utf-8")))
    return imported.names


def files_of(folder):
    """The modules of a folder; a room of one module is a file of that name."""
    path = PACKAGE / folder
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


# Lines that can be reached from a module by imports, its own included: imports anywhere
# in a file, but not under TYPE_CHECKING, and no addresses in tables. It may fall.
REACH = {
    "model.transformer": 3_880,
    "training.step": 6_000,
    "training.loop": 15_100,
    "decoding.translator": 14_900,
    "evaluation.scores": 18_800,
    "commands.train": 26_800,
}


CORE_LINES = 27_700  # at most; it may fall


@pytest.fixture(scope="module")
def graph():
    """Of each module: its lines, and the modules of the package that it imports."""
    modules = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        lines = path.read_text(encoding="utf-8").count("\n")
        imported = imports_of(path)
        imported = imported | {name.rpartition(".")[0] for name in imported}
        modules[name.removesuffix(".__init__")] = lines, imported
    return {n: (lines, used & modules.keys()) for n, (lines, used) in modules.items()}


@pytest.mark.parametrize("module", REACH)
def test_what_is_reached_from_a_module_does_not_grow(module, graph):
    reached, left = set(), {module}
    while left:
        name = left.pop()
        reached.add(name)
        left |= graph[name][1] - reached
    lines = sum(graph[name][0] for name in reached)
    assert 0.99 * REACH[module] < lines <= REACH[module], "lower its number"


def test_the_core_stands_without_the_storeys_above(graph):
    above = re.compile(rf"({MIDDLE}|commands|tools)(\..+)?|main|__main__|__init__")
    core = {name for name in graph if not above.fullmatch(name)}
    lines = 0
    for name in sorted(core):
        assert not graph[name][1] - core, f"{name} imports a storey above"
        lines += graph[name][0]
    assert 0.99 * CORE_LINES < lines <= CORE_LINES


@pytest.mark.parametrize(
    "room", sorted((PACKAGE / MIDDLE).glob("[a-z]*/")), ids=lambda p: p.name
)
def test_the_middle_imports_the_core_and_its_own_earlier_rooms(room):
    rooms = ["grammar", *CORE[: CORE.index("commands")]]
    own = {f"{MIDDLE}.{name}" for name in rooms[: rooms.index(room.name) + 1]}
    for path in room.rglob("*.py"):
        for name in imports_of(path):
            used = ".".join(name.split(".")[:2])
            assert used in own or name.split(".")[0] in {*rooms, *ANYWHERE}, path


@pytest.mark.parametrize("folder", CORE)
def test_the_core_imports_earlier_folders_and_no_tool(folder):
    allowed = {*CORE[: CORE.index(folder) + 1], *ANYWHERE}
    if folder == "commands":
        allowed.add(MIDDLE)
    for path in files_of(folder):
        assert {name.split(".")[0] for name in imports_of(path)} <= allowed, path


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_imports_the_core_and_no_other_tool(tool):
    allowed = {tool, *TOOLS[tool]}
    for path in files_of(f"tools/{tool}"):
        used = {
            name.split(".")[1] for name in imports_of(path) if name.startswith("tools.")
        }
        assert used <= allowed, path


# What other packages do not promise to keep -> the only module that names it.
PRIVATE = {
    r"^\s*(import|from) orbax\b": "training/orbax_files.py",
    r"\bjax\._src\b|\b_jax\b": "parallel/jax_internals.py",
}


@pytest.mark.parametrize("pattern", PRIVATE)
def test_one_module_knows_the_inner_names_of_another_package(pattern):
    named = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named == {PRIVATE[pattern]}


def test_every_folder_is_listed():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == {*CORE, MIDDLE, "tools"} - {"workdir"}
    tools = {path.parent.name for path in PACKAGE.glob("tools/*/__init__.py")}
    assert tools == {*TOOLS}


def test_no_modules_import_each_other_in_a_circle(graph):
    edges = {name: used - {name} for name, (_, used) in graph.items()}
    graphlib.TopologicalSorter(edges).prepare()  # raises CycleError, which names it


def test_the_config_imports_only_errors():
    for file, allowed in {"config": {"io", "sections"}, "sections": {"io"}}.items():
        names = imports_of(PACKAGE / f"{file}.py")
        assert {name.split(".")[0] for name in names} == allowed


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


def test_modules_of_the_middle_have_their_earlier_addresses():
    from t2t_jax.extensions.grammar.dice import Dice
    from t2t_jax.extensions.text import terms

    assert importlib.import_module("t2t_jax.grammar.dice").Dice is Dice
    assert importlib.import_module("t2t_jax.text.terms") is terms
    assert terms.__spec__.name == terms.__name__
    with pytest.raises(ModuleNotFoundError, match="t2t_jax.text.nothing"):
        importlib.import_module("t2t_jax.text.nothing")


def test_describe_loads_no_orbax_and_no_command_loads_tensorflow():
    code = (
        "import sys; from t2t_jax import load_config; "
        "from t2t_jax.tools.plan.describe import describe; "
        "describe(load_config('base')); "
        "print({'tensorflow', 'orbax', 'tensorflow_datasets'} & {*sys.modules}); "
        "from t2t_jax.commands import launch; "
        "[launch.module_of(name) for name in launch.commands()]; "
        "print('tensorflow' in sys.modules)"
    )
    assert run_python(code).splitlines() == ["set()", "False"]
