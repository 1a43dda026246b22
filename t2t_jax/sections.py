"""Sections of the config: fields that choose from tables, and how values are checked.

`config.py` names the fields. A table is a literal dict in the module of its idea; a
field knows its address, so that entries can be added before a value is checked.
"""

import ast
import dataclasses
import importlib
import math
import operator
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_collections

from t2t_jax.io.errors import UserError, did_you_mean

# How a limit of a field is worded -> whether a value keeps it.
_LIMITS = {
    "at least": operator.ge,
    "above": operator.gt,
    "at most": operator.le,
    "below": operator.lt,
}


def field(
    default: Any,
    choices: tuple = (),
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
    safe: bool = False,
    table: str = "",
    help: str = "",
    hint: str = "",
):
    """A dataclass field with its constraints.

    Args:
      default: The value in the paper's base model; its type is the field's type.
      choices: The values allowed; empty allows all.
      low, above: The least value allowed, or what all allowed ones are above.
      high, below: The greatest value allowed, or what all allowed ones are below.
      safe: True if the field may change when a stopped run is continued.
      table: The address of a dict whose keys are the values allowed, as
        `MODULE.NAME` below `t2t_jax`; the default is one of them. It is read when a
        value is checked, so that entries may be added, and so that this module imports
        none of the tables.
      help: The text for --help of a field that is a flag, too. Other fields have a
        comment above them.
      hint: What to write instead of a value outside the limits; ends the error.
    """
    limits = {
        words: limit
        for words, limit in zip(_LIMITS, (low, above, high, below), strict=True)
        if limit is not None
    }
    notes = {
        "choices": choices,
        "limits": limits,
        "safe": safe,
        "table": table,
        "help": help,
        "hint": hint,
    }
    return dataclasses.field(default=default, metadata=notes)


class Options(dict):
    """Hyperparameters of the chosen variants, by name; hashable and read-only.

    Only those that differ from their defaults: so configs are equal that mean the same.
    """

    def __hash__(self):
        return hash(frozenset(self.items()))

    def _refuse(self, *_, **__):
        raise TypeError("the options of a config are read-only")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = _refuse


NO_OPTIONS = Options()


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the config, with access to the tables that its fields choose from.

    A table entry may have an attribute `Options`, a frozen dataclass of hyperparameters
    of its own. They are set as `--config.SECTION.options.NAME`. It may have an
    attribute `fixes`: names of fields of the section that are otherwise safe to change
    when a stopped run is continued, and are not if this entry is chosen.

    Raises UserError if a field has a wrong type or is out of range. Names of table
    entries and their options are checked where they are used (`variant`): tables import
    what they list, and a config is also made where none of that is needed.
    """

    def __post_init__(self):
        section, config, _ = type(self).__name__.lower().partition("config")
        if not config:  # such as SearchOptions, whose values have names of their own
            return
        for config_field in dataclasses.fields(self):
            if config_field.name != "options":
                checked(
                    f"config.{section}.{config_field.name}",
                    config_field,
                    getattr(self, config_field.name),
                    tables=False,
                )

    def variant(self, name: str) -> Any:
        """The table entry that the field `name` chooses.

        Raises:
          UserError: the table has no such entry.
        """
        (config_field,) = (f for f in dataclasses.fields(self) if f.name == name)
        value, entries = getattr(self, name), table_of(config_field)
        if value not in entries:
            raise UserError(f"config {name}={value!r}{_no_entry(config_field, value)}")
        return entries[value]

    def entries(self) -> list[Any]:
        """The table entries that the fields choose, and options of these entries."""
        entries = [self.variant(chooser.name) for chooser in self.choosers()]
        for options in filter(None, map(self.own_options, [*entries])):
            tables = [f for f in dataclasses.fields(options) if f.metadata.get("table")]
            entries += [table_of(f)[getattr(options, f.name)] for f in tables]
        return entries

    def choosers(self) -> list[dataclasses.Field]:
        """The fields that choose from a table."""
        return [f for f in dataclasses.fields(self) if f.metadata["table"]]

    def fixed(self) -> dict[str, Any]:
        """The values of the fields that may not change when a run is continued."""
        fields = dataclasses.fields(self)
        return {f.name: getattr(self, f.name) for f in fields if not f.metadata["safe"]}

    def fixed_by(self, name: str) -> str:
        """The choice that does not let a safe field change, as `schedule='linear'`."""
        for chooser in self.choosers():
            entry = table_of(chooser).get(getattr(self, chooser.name))
            if name in getattr(entry, "fixes", ()):
                return f"{chooser.name}={getattr(self, chooser.name)!r}"
        return ""

    def own_options(self, entry: Any) -> Any:
        """The values of an entry's `Options`; None if it has no such class."""
        kind = getattr(entry, "Options", None)
        return kind and kind(
            **{
                option.name: self.options[option.name]
                for option in dataclasses.fields(kind)
                if option.name in self.options
            }
        )


def table_of(config_field: dataclasses.Field) -> Mapping[str, Any]:
    """The table that a field chooses from; empty if it has none."""
    if not config_field.metadata["table"]:
        return {}
    return at_address(config_field.metadata["table"])


class Table(dict[str, Any]):
    """A table whose entries may be addresses, which are imported when asked for.

    So who imports the table does not import what only some configs choose.
    """

    def __getitem__(self, name: str) -> Any:
        entry = super().__getitem__(name)
        if isinstance(entry, str):
            self[name] = entry = at_address(entry)
        return entry

    def __iter__(self) -> Iterator[str]:  # so that `dict(table)` asks for entries, too
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401  (by __getitem__)

    def values(self) -> list[Any]:  # type: ignore[override]
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, Any]]:  # type: ignore[override]
        return [(name, self[name]) for name in self]


def at_address(address: str) -> Any:
    """Imports a name of this package by its address, such as `model.model.MODELS`."""
    module, _, name = address.rpartition(".")
    return getattr(importlib.import_module(f"t2t_jax.{module}"), name)


def table_names(address: str) -> list[str]:
    """The keys of a table, without an import of its module, which may import JAX.

    Only a module that is imported already can have got further entries. The keys of
    another are those of the literal dict in its source.

    Args:
      address: of the table, as `field` takes it.
    """
    module, _, name = address.rpartition(".")
    if imported := sys.modules.get(f"t2t_jax.{module}"):
        return [*getattr(imported, name)]
    file = Path(__file__).parent / f"{module.replace('.', '/')}.py"
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if name in [getattr(target, "id", "") for target in targets]:
            literal = node.value.args[0] if ast.Call is type(node.value) else node.value
            return [ast.literal_eval(key) for key in literal.keys]
    raise LookupError(f"{file} has no table {name}")


def _no_entry(config_field: dataclasses.Field, value: Any) -> str:
    """The end of a message about a value that the field's table does not have."""
    module, _, name = config_field.metadata["table"].rpartition(".")
    return (
        f"{did_you_mean(value, table_names(config_field.metadata['table']))}; if it is "
        f"an idea of your own, name the module that adds it to {name} "
        f"(t2t_jax.{module}): --ideas=MODULE; in Python, run its cell or import it"
    )


def known_options(section: Section) -> dict[str, tuple[dataclasses.Field, list[str]]]:
    """The options of all entries of a section's tables.

    Returns:
      By name, the field of the `Options` dataclass, and the choices that have it, such
      as "positions='relative'".
    """
    options: dict[str, tuple[dataclasses.Field, list[str]]] = {}
    entries = [
        (f"{chooser.name}={name!r}", entry)
        for chooser in dataclasses.fields(section)
        for name, entry in table_of(chooser).items()
    ]
    for choice, entry in entries:
        for option in dataclasses.fields(getattr(entry, "Options", None) or Section):
            earlier, choices = options.setdefault(option.name, (option, []))
            if repr(earlier.default) != repr(option.default):
                raise UserError(
                    f"{choice} and {choices[0]} both have an option {option.name!r}, "
                    f"with the defaults {option.default!r} and {earlier.default!r}; "
                    "rename one of them"
                )
            choices.append(choice)
    return options


def checked(
    name: str, config_field: dataclasses.Field, value: Any, tables: bool = True
) -> Any:
    """Returns `value` if its field allows it.

    Args:
      name: What the user calls it, such as `config.decode.beam` or `--beam`.
      tables: also look into the table that the field chooses from, if it has one.
    """
    expected = type(config_field.default)
    # NumPy's scalars count as Python's.
    value = value.item() if hasattr(value, "item") else value
    if expected is float and type(value) is int:
        value = float(value)
    # Not isinstance: a bool is an int, too.
    if type(value) is not expected:
        raise UserError(
            f"{name}={value!r} is of type {type(value).__name__}; "
            f"want {expected.__name__}, such as {config_field.default!r}"
        )
    # The fields of an entry's `Options` may be plain ones, without constraints.
    notes = {"choices": (), "limits": {}, "table": "", "hint": ""}
    notes |= dict(config_field.metadata)
    choices, limits = notes["choices"], notes["limits"]
    if choices and value not in choices:
        raise UserError(f"{name}={value!r}{did_you_mean(value, choices)}")
    named = not (tables and notes["table"]) or value == config_field.default
    if not named and value not in table_names(notes["table"]):
        raise UserError(f"{name}={value!r}{_no_entry(config_field, value)}")
    if expected is float and not math.isfinite(value):
        raise UserError(f"{name}={value!r}; want a finite number")
    for words, limit in limits.items():
        if not _LIMITS[words](value, limit):
            size = "small" if words in ("at least", "above") else "large"
            raise UserError(
                f"{name}={value!r} is too {size}; want "
                + " and ".join(f"{words} {limit:,}" for words, limit in limits.items())
                + (f"; {notes['hint']}" if notes["hint"] else "")
            )
    return value


def checked_options(
    kind: type, options: Mapping[str, Any], label: str = ""
) -> dict[str, Any]:
    """Returns the values of some fields of a dataclass, without those that are None.

    Args:
      label: Stands before the names in messages, such as "--".
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}
    values = {}
    for name, value in options.items():
        if name not in fields:
            raise UserError(
                f"{label}{name}: no such option{did_you_mean(name, fields)}"
            )
        if value is not None:
            values[name] = checked(f"{label}{name}", fields[name], value)
    return values


def parse_variant(
    label: str, written: str, kinds: Mapping[str, type | None]
) -> tuple[str, dict[str, Any]]:
    """Parses `mbr:samples=32,utility=bleu`: an entry of a table, with options.

    Args:
      label: What it is the value of, for messages, such as "--choose".
      kinds: Each entry's `Options`, a dataclass; None for an entry without.

    Returns:
      The name of the entry, and the values written, of the types of the defaults.
    """
    setting = f"{label}={written!r}"
    name, _, written_options = written.partition(":")
    if name not in kinds:
        raise UserError(f"{setting}{did_you_mean(name, kinds)}")
    fields = {f.name: f for f in dataclasses.fields(kinds[name] or Section)}
    values: dict[str, Any] = {}
    for part in filter(None, written_options.split(",")):
        option, equals, value = part.partition("=")
        if not fields:
            raise UserError(f"{setting}: {name} has no options; want {name!r}")
        if not equals:
            example = ",".join(f"{f.name}={f.default}" for f in [*fields.values()][:2])
            raise UserError(
                f"{setting}: {part!r} is not OPTION=VALUE; write for example "
                f"{name}:{example} (a comma separates options, so no value has one)"
            )
        if option not in fields:
            raise UserError(
                f"{setting}: no option {option!r}{did_you_mean(option, fields)}"
            )
        if option in values:
            raise UserError(f"{setting}: {option} is given twice; want it once")
        kind = type(fields[option].default)
        try:
            values[option] = kind(value)
        except ValueError:
            raise UserError(
                f"{setting}: {option}={value!r}; want {kind.__name__}, such as "
                f"{fields[option].default!r}"
            ) from None
    return name, values


def checked_section(name: str, default: Section, values: Mapping) -> Section:
    """Builds a section from a dict of its fields, whose names exist.

    Args:
      default: gives the fields that are missing.
    """
    fields = {f.name: f for f in dataclasses.fields(default)}
    values = dict(values)
    options = values.pop("options", {}) if "options" in fields else {}
    section = dataclasses.replace(
        default,
        **{
            field_name: checked(
                f"config.{name}.{field_name}", fields[field_name], value
            )
            for field_name, value in values.items()
        },
    )
    if options:
        options = _checked_options(f"{name}.options", section, options)
        section = dataclasses.replace(section, options=options)
        for chooser in section.choosers():
            # The dataclasses of options may have checks of their own.
            section.own_options(section.variant(chooser.name))
    return section


def _checked_options(name: str, section: Section, values: Any) -> Options:
    """Checks the options of a section; returns those that differ from the defaults.

    Args:
      values: by name; also those of variants that are not chosen, at their defaults.
    """
    if not isinstance(values, Mapping | ml_collections.ConfigDict):
        raise UserError(f"config.{name}={values!r}; want a dict")
    available, changed = known_options(section), {}
    choices = {f"{f.name}={getattr(section, f.name)!r}" for f in section.choosers()}
    for option_name, value in dict(values).items():
        full = f"{name}.{option_name}"
        if option_name not in available:
            raise UserError(
                f"config.{full}: no such option{did_you_mean(option_name, available)}; "
                "options of your own idea need --ideas=MODULE, in Python its cell first"
            )
        option, owners = available[option_name]
        value = checked(f"config.{full}", option, value)
        if value == option.default:
            continue
        if choices.isdisjoint(owners):
            raise UserError(
                f"config.{full}={value!r} is an option of config."
                f"{name.partition('.')[0]}.{' and '.join(owners)}, which this config "
                "does not choose"
            )
        changed[option_name] = value
    return Options(changed)
