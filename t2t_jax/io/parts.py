"""Work in parts: `--part=2/12` does the second of twelve, on a machine of its own.

A part of `NAME` is `NAME.02-of-12`; once it is finished, `NAME.02-of-12.json` records
what it was made from. Merging checks the records of all parts, and their bytes.
"""

import fnmatch
import glob
import hashlib
import itertools
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from t2t_jax.io.atomic import read_checked_json, together
from t2t_jax.io.errors import UserError
from t2t_jax.io.lock import exclusive
from t2t_jax.io.messages import say
from t2t_jax.io.output_files import changes, check_output

Item = TypeVar("Item")
REMAKE = "bring it back, or remove the part and make it again"


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields `size` items at a time; fewer at the end."""
    items = iter(items)
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def parse_part(part: str) -> tuple[int, int]:
    """Parses `"2/4"`, the second of four parts, into (2, 4)."""
    number, _, count = part.partition("/")
    if number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise UserError(
        f"--part={part!r}; want I/N, the I-th of N parts, from 1/N to N/N; or array/N "
        "in a Slurm array"
    )


def part_of(file: Path, part: tuple[int, int]) -> Path:
    """Returns the name of a part of a file: `FILE.02-of-12`; of 1/1 it is `FILE`."""
    number, count = part
    if count == 1:
        return file
    width = len(str(count))  # zero-padded, so that `cat FILE.*` is in order
    return file.with_name(f"{file.name}.{number:0{width}}-of-{count}")


def share_of(total: int, part: tuple[int, int]) -> tuple[int, int]:
    """Returns where a part of `total` items begins and ends, counted from 0."""
    number, count = part
    return total * (number - 1) // count, total * number // count


def finished_parts(file: Path, ending: str = "", needed: bool = True) -> list[Path]:
    """Returns the N parts of a file, in order; of several N, of the one with all parts.

    Args:
      ending: of the last file of a part to appear, such as ".hashes".
      needed: raises an error if there is no part.

    Raises:
      UserError: parts are missing or unfinished, and named; or several N have all.
    """
    names = {path.name for path in file.parent.glob(f"{glob.escape(file.name)}.*")}
    pattern = re.compile(
        rf"{re.escape(file.name)}\.\d+-of-(\d{{1,5}})({re.escape(ending)}|.*\.partial)",
        re.DOTALL,
    )
    complete, states = [], []
    for count in sorted({int(m[1]) for m in map(pattern.fullmatch, names) if m}):
        parts = [part_of(file, (i, count)) for i in range(1, count + 1)]
        missing = [part.name for part in parts if f"{part.name}{ending}" not in names]
        if not missing:
            complete.append(parts)
        states.append(f"{count - len(missing)} of {count} parts are finished")
        for part in missing[:8]:
            begun = fnmatch.filter(names, f"{glob.escape(part)}.*partial")
            state = "unfinished (.partial)" if begun else "missing"
            states.append(f"{part} is {state}")
        states += ["..."] * (len(missing) > 8)
    if len(complete) == 1 or not (states or needed):
        return complete[0] if complete else []
    remedy = "which the same command makes with --part=I/N"
    if complete:
        remedy = "so remove those of the others"
    raise UserError(
        f"{file}: {', '.join(states) or 'no part is there'}. Want all parts of one N, "
        f"{remedy}"
    )


def read_record(part: Path) -> dict:
    """Reads the record of a finished part; raises UserError if it is not intact."""
    try:
        record = read_checked_json(Path(f"{part}.json"))
        if not {"part", "whole_input", "lines", "made_from"} <= record.keys():
            raise ValueError("it is not the record of a part")
        return record
    except (OSError, ValueError) as e:
        raise UserError(f"{part}.json is missing or damaged ({e}); {REMAKE}") from None


def read_records(parts: Sequence[Path]) -> list[dict]:
    """Reads the records of all parts.

    Raises UserError for one that is not the part of its name, or that differs from the
    first part in what it was made from.
    """
    records = [read_record(part) for part in parts]
    text, made_from = records[0]["whole_input"], records[0]["made_from"]
    for number, (part, record) in enumerate(zip(parts, records, strict=True), 1):
        begin, end = share_of(text["lines"], (number, len(parts)))
        expected = {"part": f"{number}/{len(parts)}", "whole_input": text}
        expected |= {"lines": end - begin, **made_from}
        recorded = {name: record[name] for name in ("part", "whole_input", "lines")}
        recorded |= record["made_from"]
        if changed := changes(expected, recorded, ("wanted", "there")):
            raise UserError(
                f"{part} does not go with {parts[0].name}:{changed}\nMake one of them "
                "again, from the same input, model and options"
            )
    return records


def checked_parts(parts: Sequence[Path]) -> Iterator[Path]:
    """Yields finished parts, each after its bytes are checked, all after the records.

    Raises UserError as `read_records` and `check_bytes` do.
    """
    for part, record in zip(parts, read_records(parts), strict=True):
        check_bytes(part, record["output_sha256"])
        yield part


def check_bytes(file: Path, sha256: str) -> None:
    """Raises UserError if a file of a part is not the one that was recorded."""
    with file.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != sha256:
            raise UserError(f"{file} was changed after it was written; {REMAKE}")


def merge(output: Path) -> None:
    """Joins the finished parts of an output, which stay; raises UserError as above."""
    check_output(output)
    parts = finished_parts(output)
    with (
        exclusive(output.parent),
        together([output]) as (draft,),
        draft.open("wb") as joined,
    ):
        for part in checked_parts(parts):
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, joined)
    say(f"{len(parts)} parts are merged to {output}, and can be removed")
