"""The documentation is true: what it names exists, and what is not run says why.

`tests/documents.py` takes the pages apart, `tests/test_docs_run.py` runs their code.
Here every command, also one that needs a TPU or hours, is checked word by word.
"""

import ast
import dataclasses
import re
import shlex
import subprocess
import sys

import pytest

from t2t_jax.commands import config_files
from t2t_jax.config import SECTIONS, field_names
from tests.documents import (
    CODE,
    PAGES,
    PYTHON,
    QUOTED,
    SHELL,
    TO_RUN,
    anchors,
    commands,
    links,
    name_of,
    prose,
)
from tests.small_run import ROOT

LOADED = r'<(?:script|link|img|iframe)[^>]*(?:src|href)="([^"]+)"'
# Others have commands, fields and files of older versions.
NOW = [page for page in PAGES if page.name != "CHANGELOG.md"]


@pytest.fixture(scope="module")
def conf():
    """The module that builds the site, with the others that it imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs/site")
        patch.syspath_prepend(ROOT / "docs")
        import conf

        yield conf
        for name in ("conf", "live", "notebook_pages", "generated", "pictures"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def generated(conf):
    """The module that makes the site's reference of the code."""
    return conf.generated


def test_a_block_that_is_not_run_says_why():
    for block in CODE:
        kind, _, reason = block.mark.partition(": ")
        if kind == "run by":
            assert (ROOT / reason.partition(",")[0]).exists(), block
        elif kind:
            assert len(reason.split()) >= 3, f"{block}: give a reason"
    assert len(TO_RUN) >= 20


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
        parameters = set()
        if name == "experiment" and not shipped:  # a file that the page shows
            code = "\n".join(block.code for block in PYTHON)
            for signature in re.findall(r"def get_experiment\((.*?)\):", code):
                parameters |= {*re.findall(r"(\w+)=", signature)}
        return parameters | {*(generated.flags_of(name, *named) if name else ())}
    if package in ("benchmarks", "tests"):
        file = ROOT / f"{module.replace('.', '/')}.py"
        assert file.exists(), module
        files = [*(ROOT / package).rglob("*.py")]
        if package == "benchmarks":  # its own flags, and those that several share
            shared = "benchmarks/measuring.py", "t2t_jax/commands/flags.py"
            files = [file, *(ROOT / name for name in shared)]
        text = "".join(path.read_text(encoding="utf-8") for path in files)
        return {"ideas", *re.findall(r"\"(?:--)?(\w+)\"", text)}
    if package == "pytest":
        return {"ideas"}
    in_script = re.findall(r"--(\w+)", (ROOT / module).read_text())
    trains = [*generated.flags_of("main"), *generated.flags_of("experiment")]
    return {*in_script, *trains}


def test_every_flag_of_a_command_exists(generated):
    command_lines = [(str(block), words) for block in SHELL for words in block.commands]
    for page in NOW:
        for text in re.findall(r"`(python -m [^`]+)`", prose(page)):
            line = " ".join(text.split())
            command_lines += [(name_of(page), words) for words in commands(line)]
    checked = 0
    for place, words in command_lines:
        module, arguments = module_and_arguments(words)
        if not module or re.search(r"[A-Z]", module):
            continue  # `python -m t2t_jax COMMAND`, or no program of ours
        flags = {"help", *known_flags(generated, module, arguments)}
        for word in arguments:
            flag, _, value = word.removeprefix("--").partition("=")
            if word[:2] != "--" or flag.startswith("config."):
                continue
            assert flag in flags or flag.removeprefix("no") in flags, (place, word)
            if flag == "config" and re.fullmatch(r"[a-z0-9_/.]*[a-z0-9_]", value):
                config_files.resolve(value)
            checked += 1
    assert checked > 100


def test_every_field_of_the_config_exists():
    names = {*field_names(), *SECTIONS}
    for page in NOW:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"(?:--|`)config\.([a-z]\w*(?:\.[a-z]\w*)+)", text):
            if name.split(".")[0] not in SECTIONS:
                continue  # a variable of an example
            option = name.partition(".options.")[2]
            in_an_idea = option and f"    {option}: " in "".join(QUOTED)
            exists = name in names or in_an_idea or name.endswith(".options")
            assert exists, f"{name_of(page)}: config.{name}"


def test_every_extra_exists():
    setup = (ROOT / "setup.py").read_text()
    extras = set(re.findall(r'^        "(\w+)": ', setup, re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for names in re.findall(r"'(?:\.|t2t_jax)\[([\w,]+)\]'", text):
            assert {*names.split(",")} <= extras, (name_of(page), names)


def test_every_file_that_is_named_exists():
    tops = ["t2t_jax", "tests", "docs", "benchmarks", "configs", "examples"]
    tops += ["experiments", "launch", "notebooks"]
    tops += [path.name for path in (ROOT / "t2t_jax").iterdir() if path.is_dir()]
    endings = "py|md|sh|sbatch|yaml|ipynb"
    path_of = re.compile(rf"`((?:{'|'.join(tops)})/[\w./-]+\.(?:{endings}))[`:,]")
    for page in NOW:
        for name in path_of.findall(page.read_text(encoding="utf-8")):
            if re.search(r"[A-Z]{4}", name) and "README" not in name:
                continue  # configs/NAME.py
            places = (ROOT, ROOT / "t2t_jax", page.parent)
            assert any((p / name).exists() for p in places), (name_of(page), name)


def test_links_lead_somewhere():
    for page, link in ((p, link) for p in PAGES for link in links(p)):
        target, _, anchor = link.partition("#")
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{name_of(page)}: {link}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{name_of(page)}: {link}"


def test_the_reference_in_the_repository_is_fresh(generated):
    """Else: `python docs/site/generated.py`."""
    pages = sorted((ROOT / "docs/reference").glob("*.md"))
    text = {page: page.read_text(encoding="utf-8") for page in pages}
    stale = [page.name for page in pages if generated.stored(text[page]) != text[page]]
    assert not stale
    assert sum(generated.END in page_text for page_text in text.values()) >= 4


def test_each_box_of_the_architecture_names_a_file():
    picture = (ROOT / "docs/architecture.svg").read_text(encoding="utf-8")
    files = re.findall(r"[\w/]+\.py", picture)
    assert len(files) > 20
    for file in files:
        assert [*(ROOT / "t2t_jax").rglob(file)], file


def test_messages_of_the_page_of_errors_are_in_the_code():
    def text(node):
        parts = getattr(node, "values", [node])  # those of an f-string, or a constant
        return "".join(str(getattr(part, "value", "")) for part in parts)

    code = "\n".join(
        text(node)
        for module in (ROOT / "t2t_jax").rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant | ast.JoinedStr)
    )
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(messages) > 35
    for message in messages:
        for part in re.split(r"\.{3,}", message):
            assert part.strip() in code, message


def test_the_reference_has_every_field_and_flag_with_a_meaning(generated):
    for name, section in SECTIONS.items():
        meanings = generated.comments(type(section))
        assert {*meanings} == {field.name for field in dataclasses.fields(section)}
        assert all(meanings.values()), (name, meanings)
    page = generated.commands()
    for name in generated.names():
        assert f"## {name}\n" in page
        assert all(f"| `--{flag}` |" in page for flag in generated.flags_of(name))


# ------------------------------------------------------------------- the site


def test_links_out_of_the_docs_lead_to_pages_of_the_site(conf):
    for place, link, target in (
        ("page", "../CONTRIBUTING.md#b", "contributing.md#b"),
        ("page", "../notebooks/1_paper.ipynb", "_notebooks/1_paper.md"),
        ("tutorials/page", "../../CONTRIBUTING.md", "../contributing.md"),
    ):
        page = [f"[a]({link})\n[b]({link})"]
        conf.on_the_site(None, place, page)
        assert page == [f"[a]({target})\n[b]({target})"]


def test_commands_fit_on_a_screen_and_stay_the_same(conf):
    def words(code):
        return shlex.split(code.replace("\\\n", " "), comments=True)

    blocks = conf.SHELL.findall("\n".join(page.read_text("utf-8") for page in PAGES))
    narrowed = ["\n".join(map(conf.narrow, block.split("\n"))) for block in blocks]
    assert [*map(words, narrowed)] == [*map(words, blocks)]
    lines = [line for block in narrowed for line in block.split("\n")]
    wide = [line for line in lines if len(line) > conf.WIDTH]
    assert len(lines) > 300
    assert all(" -" not in line.strip() for line in wide), wide


def test_flags_are_kept_whole_and_tags_as_they_are(conf):
    body = '<a title="a --b">--c=d</a> low-e <!-- --f --> -m'
    context = {"body": body, "furo_navigation_tree": ""}
    pytest.importorskip("bs4")
    conf.arrange(None, "page", None, context, None)
    kept = '<span class="flag">{}</span>'
    expected = body.replace("--c", kept.format("--c")).replace("-m", kept.format("-m"))
    assert context["body"] == expected


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing(conf, tmp_path):
    """`.ci/run` does the same with what `[docs]` installs."""
    pytest.importorskip("sphinx_copybutton")
    bs4 = pytest.importorskip("bs4")
    built = tmp_path / "site"
    options = ["-q", "-W", "--keep-going", "-n", "-b", "html", "-d", tmp_path / "kept"]
    words = [sys.executable, "-m", "sphinx", *options, ROOT / "docs", built]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    pages = {p: p.read_text(encoding="utf-8") for p in built.rglob("*.html")}
    for path, text in pages.items():
        for file in re.findall(LOADED, text):
            assert not re.match(r"(?:https?:)?//", file), (path, file)
    python = pages[built / "reference/python.html"]
    assert 'id="t2t_jax.Translator.translate"' in python
    front = pages[built / "index.html"]
    assert 'id="what-is-different-here"' in front
    assert "_static/favicon.svg" in front
    assert f"t2t_jax {conf.version}" in front
    for path, text in pages.items():  # of the folded groups, few entries are open
        tree = bs4.BeautifulSoup(text, "html.parser").find(class_="sidebar-tree")
        groups = tree.find_all("details", open=True) if tree else []
        assert len(groups) < 2, path
        assert all(len(g.find_all("li", "toctree-l1")) <= 12 for g in groups), path
    assert pages[built / "_notebooks/1_the_paper.html"].count("<math") > 10
