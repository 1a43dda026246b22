"""The documentation is true: its code runs, and what it names exists.

`tests/documents.py` takes the pages apart. Code that is cheap is run here; what needs
a trained model is run by the slow tests, on a small one. What is not run at all (it
needs a TPU, or hours) is at least checked word by word.
"""

import ast
import contextlib
import dataclasses
import gzip
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import t2t_jax
from t2t_jax.commands import config_files
from t2t_jax.config import SECTIONS, field_names
from t2t_jax.experiment import Experiment
from t2t_jax.model.positions import POSITIONS
from t2t_jax.terminal import ideas
from tests.documents import (
    LANGUAGES,
    PAGES,
    Block,
    anchors,
    blocks,
    commands,
    links,
    name_of,
    prose,
)
from tests.small_run import FIELDS, ROOT, config_for

BLOCKS = [block for page in PAGES for block in blocks(page)]
CODE = [block for block in BLOCKS if block.language in LANGUAGES]
SHELL = [block for block in CODE if block.language != "python"]
PYTHON = [block for block in CODE if block.language == "python"]
# docs/your-idea.md quotes these; tests/test_your_idea.py compares and runs them.
QUOTED = {p.read_text(encoding="utf-8") for p in (ROOT / "docs/ideas").glob("*.py")}
TO_RUN = [b for b in CODE if not b.mark and b.code not in QUOTED]
TEXTS = ("train", "dev", "test", "val", "test_2016_flickr")  # names in the pages


def is_cheap(block: Block) -> bool:
    """Needs no other process and no trained model."""
    return block.language == "python" and "runs/" not in block.code


@pytest.fixture(scope="module")
def generated():
    """The module that makes the site's reference of the code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs/site")
        import generated

        yield generated


# ------------------------------------------------------------------------------- marks


def test_a_block_that_is_not_run_says_why():
    for block in CODE:
        kind, _, rest = block.mark.partition(": ")
        if kind == "run by":
            assert (ROOT / rest.partition(",")[0]).exists(), block
        elif kind:
            assert len(rest.split()) >= 3, f"{block}: give a reason"
    run = [block for block in TO_RUN if block.language != "console"]
    assert run == TO_RUN, "a transcript cannot be run; mark it"
    assert len(run) >= 20


def test_commands_stand_in_blocks_that_are_run():
    begins = re.compile(r"^ *(?:\$ )?(?:python -m|pip install|bash |sbatch |t2t_jax )")
    for page in PAGES:
        shown = [b.code for b in blocks(page) if b.language not in LANGUAGES]
        indented = re.findall(r"(?m)^    .*$", prose(page))
        for line in [line for code in shown for line in code.splitlines()] + indented:
            assert not begins.match(line), f"{name_of(page)}: {line}: wants ```bash"


# ---------------------------------------------------------------------- word by word


OURS = re.compile(
    r"python -m (?P<module>(?:t2t_jax|benchmarks|tests|pytest)\b[\w.]*)"
    r"|(?:bash|sbatch .*?) ?(?P<script>launch/[\w.]+)"
)


def module_and_arguments(words: list[str]) -> tuple[str, list[str]]:
    """A module or a script of ours, and its arguments; empty if it is another's."""
    line = " ".join(words).replace("[--", "--").replace("] ", " ").rstrip("]")
    match = OURS.search(line)
    if not match:
        return "", []
    module, arguments = match["module"] or match["script"], line[match.end() :].split()
    if module == "t2t_jax" and arguments:
        return f"t2t_jax.{arguments[0]}", arguments[1:]
    return module, arguments


def known_flags(generated, module: str, arguments: list[str]) -> set[str]:
    """The flags that a module or a script takes."""
    package, _, name = module.partition(".")
    if package == "t2t_jax":
        shipped = {*config_files.shipped_names("experiments")} & {*arguments}
        named = shipped if name == "experiment" else ()
        return {*generated.flags_of(name, *named)} if name else set()
    if package in ("benchmarks", "tests"):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
        files = (ROOT / package).rglob("*.py")
        text = "".join(path.read_text(encoding="utf-8") for path in files)
        return {"ideas", *re.findall(r"\"(?:--)?(\w+)\"", text)}
    if package == "pytest":
        return {"ideas"}
    in_script = re.findall(r"--(\w+)", (ROOT / module).read_text())
    trains = [*generated.flags_of("main"), *generated.flags_of("experiment")]
    return {*in_script, *trains}


def inline_commands(page: Path) -> list[list[str]]:
    """The commands that stand in a sentence or a table."""
    texts = re.findall(r"`(python -m [^`]+)`", prose(page))
    return [words for text in texts for words in commands(" ".join(text.split()))]


def test_every_flag_of_a_command_exists(generated):
    found = [(str(block), words) for block in SHELL for words in block.commands]
    for page in PAGES:
        found += [(name_of(page), words) for words in inline_commands(page)]
    checked = 0
    for place, words in found:
        module, arguments = module_and_arguments(words)
        if not module or re.search(r"[A-Z]", module):
            continue  # `python -m t2t_jax COMMAND`, or no program of ours
        known = {"help", *known_flags(generated, module, arguments)}
        for word in arguments:
            flag, _, value = word.removeprefix("--").partition("=")
            if word[:2] != "--" or flag.startswith("config."):
                continue
            assert flag in known or flag.removeprefix("no") in known, (place, word)
            if flag == "config" and re.fullmatch(r"[a-z0-9_/.]*[a-z0-9_]", value):
                config_files.resolve(value)
            checked += 1
    assert checked > 100


def test_every_field_of_the_config_exists():
    known = {*field_names(), *SECTIONS}
    sources = "".join(QUOTED)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page.name == "CHANGELOG.md":  # fields that older versions had
            continue
        for name in re.findall(r"(?:--|`)config\.([a-z]\w*(?:\.[a-z]\w*)+)", text):
            if name.split(".")[0] not in SECTIONS:
                continue  # a variable of an example
            option = name.partition(".options.")[2]
            in_an_idea = option and f"    {option}: " in sources
            assert name in known or in_an_idea or name.endswith(".options"), (
                f"{name_of(page)}: config.{name}"
            )


def test_every_extra_exists():
    setup = (ROOT / "setup.py").read_text()
    extras = set(re.findall(r'^        "(\w+)": \[', setup, re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for names in re.findall(r"'(?:\.|t2t_jax)\[([\w,]+)\]'", text):
            assert {*names.split(",")} <= extras, (name_of(page), names)


def test_every_file_that_is_named_exists():
    ours = [path.name for path in (ROOT / "t2t_jax").iterdir() if path.is_dir()]
    tops = "t2t_jax|tests|docs|benchmarks|configs|launch|notebooks|" + "|".join(ours)
    path_of = re.compile(
        rf"`((?:{tops})/[\w./-]+\.(?:py|md|sh|sbatch|yaml|ipynb))[`:,]"
    )
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # files that older versions had
            continue
        for name in path_of.findall(page.read_text(encoding="utf-8")):
            if re.search(r"[A-Z]{4}", name) and "README" not in name:
                continue  # configs/NAME.py
            places = (ROOT, ROOT / "t2t_jax", page.parent)
            assert any((p / name).exists() for p in places), (name_of(page), name)


def test_every_file_of_a_workdir_is_one_that_the_code_writes():
    files = [*(ROOT / "t2t_jax").rglob("*.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    for page in ("README.md", "docs/runs.md", "docs/surviving.md", "docs/design.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        names = re.findall(r"(?<![\w*/.])([a-z_]+\.(?:jsonl?|npz|model))\b", text)
        for name in names:
            assert f"{name}" in source, (page, name)


# -------------------------------------------------------------------------------- links


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in links(page):
        target, _, anchor = link.partition("#")
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{name_of(page)}: {link}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{name_of(page)}: {link}"


def test_every_page_is_in_the_contents():
    listed = set()
    for block in blocks(ROOT / "docs/index.md"):
        if block.language == "{toctree}":
            listed |= {f"docs/{name}.md" for name in block.code.split()}
    pages = {name_of(p) for p in PAGES if name_of(p).startswith("docs/")}
    assert pages - listed == {"docs/index.md"}


# ---------------------------------------------------------------------------- reference


def test_the_reference_has_every_field_with_a_meaning(generated):
    for name, section in SECTIONS.items():
        meanings = generated.comments(type(section))
        fields = {f.name for f in dataclasses.fields(section)}
        assert {*meanings} == fields
        assert all(meanings.values()), meanings
        page = generated.config_section(name)
        assert all(f"| `{field}` |" in page for field in fields - {"options"})


def test_the_reference_has_every_entry_and_every_flag(generated):
    page = generated.tables()
    for section in SECTIONS.values():
        for known in section.choosers():
            for entry, what, _ in generated._entries(known):
                assert f"| {entry} |" in page
                assert "partial" not in what
                assert len(what) > 15, (known.name, entry)
    page = generated.commands()
    for name in generated.names():
        assert f"## {name}\n" in page
        assert all(f"| `--{flag}` |" in page for flag in generated.flags_of(name))


# ------------------------------------------------------------------------- code is run


def imports_resolve(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert importlib.util.find_spec(node.module), node.module
            module = importlib.import_module(node.module)
            missing = [a.name for a in node.names if not hasattr(module, a.name)]
            assert not missing, (node.module, missing)


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_can_be_read_and_finds_its_imports(block):
    imports_resolve(block.code)


@pytest.fixture
def kerple():
    """The idea of the pages, as if a command had been given `--ideas`."""
    with contextlib.ExitStack() as stack:
        for table in (POSITIONS, ideas.imported):
            stack.enter_context(mock.patch.dict(table))
        ideas.load(str(ROOT / "docs/ideas/kerple.py"))
        yield
    del sys.modules["kerple"]


@pytest.mark.usefixtures("kerple")
@pytest.mark.parametrize("block", [b for b in TO_RUN if is_cheap(b)], ids=str)
def test_python_runs(block):
    names: dict = {"__name__": "page"}
    exec(compile(block.code, str(block), "exec"), names)
    if "get_experiment" in names:
        made = names["get_experiment"]()
        assert isinstance(made, Experiment)
        assert len(made.rows) >= 2


@pytest.fixture
def workplace(tmp_path, text):
    """A folder as the pages' commands expect it: text, the idea, a small `python`."""
    for name in ("mine", "news", "multi30k", "tatoeba"):
        (tmp_path / name).mkdir()
        for part in TEXTS:
            source = part if part in ("train", "dev") else "test"
            for language in ("en", "de"):
                copy = tmp_path / name / f"{part}.{language}"
                shutil.copy(text / f"{source}.{language}", copy)
    for language in ("en", "de"):
        shutil.copy(text / f"test.{language}", tmp_path / f"news.{language}")
    shutil.copy(text / "test.en", tmp_path / "source.en")
    big = gzip.compress((text / "test.en").read_bytes())
    (tmp_path / "big.en.gz").write_bytes(big)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    fields = {s: dict(values) for s, values in FIELDS.items()}
    fields["data"] |= {name: f"mine/{name}" for name in ("train", "dev", "test")}
    fields["train"]["peak_learning_rate"] = 0.001
    small = [
        f"--config.{section}.{name}={value}"
        for section, values in fields.items()
        for name, value in values.items()
    ]
    # Before the page's own flags, which so come last and count; but few steps.
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        "words = sys.argv[1:]\n"
        "if 't2t_jax.main' in words or words[1:3] == ['t2t_jax', 'main']:\n"
        "    at = 1 + [w.startswith('--config=') for w in words].index(True)\n"
        f"    words[at:at] = {small}\n"
        f"    words.append('--config.train.steps={FIELDS['train']['steps']}')\n"
        "os.execv(sys.executable, [sys.executable, *words])\n"
    )
    python.chmod(0o755)
    return tmp_path


def needed(block: Block) -> set[str]:
    """The workdirs that a block reads and does not train itself."""
    trained = set()
    for words in block.commands if block.language == "bash" else ():
        if {"t2t_jax.main", "main"} & {*words}:
            trained |= {word[10:] for word in words if word.startswith("--workdir=")}
    if re.search(r"^train\(", block.code, re.MULTILINE):
        trained |= {"runs/tiny"}
    return {*re.findall(r"\bruns/[\w-]+|\bDIR\b", block.code)} - trained


@pytest.mark.slow
@pytest.mark.parametrize("block", [b for b in TO_RUN if not is_cheap(b)], ids=str)
def test_blocks_run(block, workplace, trained, text, monkeypatch):
    for name in needed(block):
        shutil.copytree(trained[0], workplace / name)
    if block.language == "python":
        monkeypatch.chdir(workplace)

        def small(*_, **__):
            return config_for(text)

        monkeypatch.setattr(t2t_jax, "load_config", small, raising=False)
        return exec(compile(block.code, str(block), "exec"), {"__name__": "page"})
    environment = os.environ | {
        "PATH": f"{workplace / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        cwd=workplace,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return None
