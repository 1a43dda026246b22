"""Markdown made of the code: fields of the config, table entries, flags of commands.

    python docs/site/generated.py

rewrites what pages of the reference have between `<!-- generated: NAME ARGUMENT -->`
and `<!-- end -->`; a test fails if a page is stale. A mark without an end is filled
only when the site is built.
"""

import ast
import dataclasses
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import live
import notebook_pages
from absl import flags

from t2t_jax import config as fields
from t2t_jax.commands.flags import define_ideas_flag, define_process_flags
from t2t_jax.commands.launch import COMMANDS, module_of
from t2t_jax.sections import table_of

DOCS = Path(__file__).parents[1]
README = (DOCS.parent / "README.md").read_text(encoding="utf-8")
MARK = re.compile(r"^<!-- generated: (\w+)(?: (\w+))? -->$", re.MULTILINE)
END = "<!-- end -->"
STORED = re.compile(rf"({MARK.pattern})\n.*?^{END}$", re.MULTILINE | re.DOTALL)


def stored(text: str) -> str:
    """A page with fresh Markdown between each of its marks and the mark's end."""
    return STORED.sub(lambda m: f"{m[1]}\n\n{_made(m[2], m[3])}\n\n{END}", text)


def fill(text: str) -> str:
    """Replaces each mark of a page by the Markdown that it names."""
    return MARK.sub(lambda m: _made(m[1], m[2]), STORED.sub(r"\1", text))


def _made(maker: str, argument: str | None) -> str:
    makers = {
        "config": config_section,
        "tables": tables,
        "commands": commands,
        "command_list": command_list,
        "claims": claims,
        "files": files,
        "public_names": public_names,
        "explorer": live.frame,
        "notebooks": notebook_pages.listing,
    }
    return makers[maker](*filter(None, [argument]))


def public_names() -> str:
    """The names that a fork may import, by module."""
    listed = (DOCS.parent / "tests/golden/public_names.txt").read_text().split()
    names_of = defaultdict(list)
    for name in listed:
        module, _, leaf = name.rpartition(".")
        names_of[module].append(f"`{leaf}`")
    rows = [(f"`{module}`", ", ".join(names)) for module, names in names_of.items()]
    return _table(("from", "import"), rows)


def claims() -> str:
    """The README's claims, with links from this folder."""
    section = re.search(r"^## What is different here\n.*?(?=^## )", README, re.M | re.S)
    return re.sub(
        r"\]\((docs/)?", lambda m: "](" if m[1] else "](../", section[0].rstrip()
    )


# ------------------------------------------------------------------------------ files


def files(folder: str) -> str:
    """Each module of a package, folder by folder: the first line of its docstring."""
    parts, root = [], DOCS.parent
    for package in sorted((root / folder).rglob("__init__.py")):
        title = package.parent.relative_to(root).as_posix()
        modules = sorted(package.parent.glob("*.py"))
        modules.remove(package)
        rows = [(f"`{module.name}`", _purpose(module)) for module in modules]
        parts.append(f"## {title}\n\n{_purpose(package)}")
        if rows:
            parts.append(_table(("file", "purpose"), rows))
    return "\n\n".join(parts)


def _purpose(module: Path) -> str:
    """The first sentence of a module's docstring."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n\n")[0]


# ----------------------------------------------------------------------------- config


def config_section(name: str) -> str:
    """The fields of a section: default, values, meaning."""
    section = fields.SECTIONS[name]
    meanings = comments(type(section))
    rows = [
        (
            f"`{field.name}`",
            _value(field.default),
            _values(field),
            meanings[field.name],
            "yes" if field.metadata["safe"] else "",
        )
        for field in dataclasses.fields(section)
        if field.name != "options"
    ]
    heads = ("field", "default", "values", "meaning", "may change")
    return f"{_text(type(section))}\n\n{_table(heads, rows)}"


def comments(section: type) -> dict[str, str]:
    """The help of each field, or the comment above it; one above several is of all."""
    meanings = {
        field.name: field.metadata["help"] for field in dataclasses.fields(section)
    }
    block, fresh = [], False
    for line in inspect.getsource(section).splitlines():
        line = line.strip()
        if line.startswith("# "):
            block = [*block, line[2:]] if fresh else [line[2:]]
            fresh = True
        elif match := re.match(r"(\w+): .* = field\(", line):
            meanings[match[1]] = " ".join(block)
            fresh = False
    return meanings


def _values(field: dataclasses.Field) -> str:
    """The values that a field may have."""
    notes = {"choices": (), "limits": {}, "table": ""} | dict(field.metadata)
    if notes["table"]:
        name = notes["table"].rpartition(".")[2]
        if notes["table"] not in _listed_tables():
            return f"an entry of `{name}`"
        return f"[`{name}`](tables.md#{name.lower()})"
    if notes["choices"]:
        return ", ".join(map(_value, notes["choices"]))
    limits = [f"{words} {limit:,}" for words, limit in notes["limits"].items()]
    return ", ".join([type(field.default).__name__, *limits])


# ----------------------------------------------------------------------------- tables


def tables() -> str:
    """Every table that a config chooses from, with its entries and their options."""
    parts = []
    for section, values in fields.SECTIONS.items():
        for chooser in values.choosers():
            module, _, name = chooser.metadata["table"].rpartition(".")
            address = f"`t2t_jax/{module.replace('.', '/')}.py`"
            parts += [
                f"## {name}",
                f"`config.{section}.{chooser.name}`, a table of {address}; "
                f"the default is {_value(chooser.default)}.",
                _table(("entry", "what it is", "options"), _entries(chooser)),
            ]
    return "\n\n".join(parts)


def _listed_tables() -> set[str]:
    return {
        chooser.metadata["table"]
        for values in fields.SECTIONS.values()
        for chooser in values.choosers()
    }


def _entries(field: dataclasses.Field) -> Iterable[tuple[str, ...]]:
    for name, entry in table_of(field).items():
        kind = getattr(entry, "Options", None)
        options = [
            f"`{option.name}` = {_value(option.default)} ({_values(option)})"
            for option in (dataclasses.fields(kind) if kind else ())
        ]
        yield f"`{name}`", _meaning(entry), "<br>".join(options)


def _meaning(entry) -> str:
    """The first sentence of the docstring of an entry, or of the function it holds."""
    if entry is None:
        return ""
    while not inspect.isclass(entry) and not inspect.isfunction(entry):
        entry = entry.func if hasattr(entry, "func") else entry[0]
    return _text(entry).partition("\n\n")[0]


# --------------------------------------------------------------------------- commands


def names() -> list[str]:
    """The names of all commands, without aliases."""
    return [name for group in COMMANDS.values() for name in group]


def command_list() -> str:
    """The commands by group."""
    return _table(
        ("", "command", ""),
        [
            (group, f"[`{name}`](#{name})", does)
            for group, listed in COMMANDS.items()
            for name, does in listed.items()
        ],
    )


def commands() -> str:
    """Each command with its flags."""
    return "\n\n".join(
        f"## {name}\n\n{_text(module_of(name))}\n\n{_flag_table(name)}"
        for name in names()
    )


def flags_of(name: str, *arguments: str) -> dict[str, flags.Flag]:
    """The flags of a command; `experiment` has more when an experiment is named."""
    module, all_flags = module_of(name), flags.FLAGS
    before = {*all_flags}
    with mock.patch.object(sys, "argv", [name, *arguments]):
        module.define_flags()
    define_ideas_flag()
    if getattr(module, "DISTRIBUTED", False):
        define_process_flags()
    defined = {flag: all_flags[flag] for flag in all_flags if flag not in before}
    for flag in defined:
        delattr(all_flags, flag)  # the next command may have one of the same name
    return defined


def _flag_table(name: str) -> str:
    rows = []
    for flag_name, flag in flags_of(name).items():
        shown = flag.default not in (None, False, "", []) and flag_name != "config"
        default = _value(flag.default) if shown else ""
        rows.append(
            (f"`--{flag_name}`", default, (flag.help or "").replace("<", r"\<"))
        )
    return _table(("flag", "default", "meaning"), rows)


# ----------------------------------------------------------------------------- Markdown


def _text(thing) -> str:
    """A docstring as Markdown, which it nearly is."""
    return inspect.getdoc(thing) or ""


def _value(value) -> str:
    return "empty" if value == "" else f"`{value}`"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells):
        cells = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
        return f"| {' | '.join(cells)} |"

    heads = [*heads]
    return "\n".join([line(heads), line(["---"] * len(heads)), *map(line, rows)])


if __name__ == "__main__":
    for page in sorted((DOCS / "reference").glob("*.md")):
        page.write_text(stored(page.read_text(encoding="utf-8")), encoding="utf-8")
