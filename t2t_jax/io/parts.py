"""Work in parts: `--part=2/12` does the second of twelve, on a machine of its own.

A part of `NAME` is `NAME.02-of-12`; once it is finished, `NAME.02-of-12.json` records
what it was made from. Merging checks the records of all parts, and their bytes.
"""

import glob
import hashlib
import itertools
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from t2t_jax.io.atomic import read_checked_json, together
from t2t_jax.io.errors import UserError
from t2t_jax.io.lock import exclusive
from t2t_jax.io.messages import say
from t2t_jax.io.output_files import changes, check_output


def parse_part(part: str) -> tuple[int, int]:
    """Parses `"2/4"`, the second of four parts, into (2, 4)."""
    number, _, count = part.partition("/")
    if number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise UserError(
        f"--part={part!r}; want I/N, the I-th of N parts, from 1/N to N/N (array/N is "
        "for launch/slurm.sbatch in a job array)"
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


def finished_parts(file: Path, ending: str = "", required: bool = True) -> list[Path]:
    """Returns the parts of a file, in order, once all of them are finished.

    Where parts of several divisions are there, those of the complete one.

    Args:
      file: the name that the parts have in common.
      ending: of the last file of a part to appear, such as ".hashes".
      required: refuses if no part is there.

    Raises:
      UserError: parts are missing or unfinished (there is a `.partial`), which it
        names; or several divisions are complete.
    """
    found: dict[int, dict[int, bool]] = {}  # count -> number -> is it finished?
    pattern = re.compile(re.escape(file.name) + r"\.(\d+)-of-(\d+)(.*)", re.DOTALL)
    for path in file.parent.glob(f"{glob.escape(file.name)}.*-of-*"):
        if not (match := pattern.fullmatch(path.name)):
            continue
        number, count = part = int(match[1]), int(match[2])
        named = 0 < number <= count and part_of(file, part).name
        finished = path.name == f"{named}{ending}"
        if named and (finished or match[3].endswith(".partial")):
            numbers = found.setdefault(count, {})
            numbers[number] = numbers.get(number, False) or finished
    complete = [n for n, numbers in found.items() if sum(numbers.values()) == n]
    if len(complete) == 1:
        (count,) = complete
        return [part_of(file, (i, count)) for i in range(1, count + 1)]
    if not found and not required:
        return []
    if not found:
        raise UserError(
            f"{file} has no part; want {part_of(file, (1, 2)).name}{ending} and so on, "
            "as --part=1/2 writes them"
        )
    if complete:
        divisions = " and of ".join(map(str, sorted(complete)))
        raise UserError(
            f"{file}.* are all parts of {divisions}; remove those of one of them"
        )
    states = " ".join(_state(n, found[n]) for n in sorted(found))
    raise UserError(
        f"{file}: {states} Give the commands of these parts again; --resume continues "
        "unfinished ones"
    )


def _state(count: int, numbers: dict[int, bool]) -> str:
    """Says which of `count` parts are missing or unfinished."""
    groups = {
        "missing": (i for i in range(1, count + 1) if i not in numbers),
        "unfinished (.partial)": (i for i in sorted(numbers) if not numbers[i]),
    }
    text = f"{sum(numbers.values())} of {count} parts are finished"
    for state, which in groups.items():
        names = [f"--part={i}/{count}" for i in itertools.islice(which, 9)]
        text += f"; {state}: {', '.join(names[:8])}" if names else ""
        text += ", ..." if len(names) > 8 else ""
    return text + "."


def read_record(part: Path) -> dict:
    """Reads the record of a finished part; raises UserError if it is not intact."""
    file = Path(f"{part}.json")
    try:
        return read_checked_json(file)
    except FileNotFoundError:
        wrong = f"{file} is missing, which says what {part.name} was made from"
    except (OSError, ValueError) as e:
        wrong = f"{file} is damaged ({e})"
    raise UserError(f"{wrong}; {_anew(part)}") from None


def _anew(part: Path) -> str:
    return f"bring it back, or remove {part}* and make that part again"


def read_records(parts: Sequence[Path]) -> list[dict]:
    """Reads the records of all parts, and checks that the parts belong together.

    Raises:
      UserError: a record is missing or damaged; the part is another one than its name
        says; or it was made from another input, or otherwise, than the first part.
    """
    records = [read_record(part) for part in parts]
    for number, (part, record) in enumerate(zip(parts, records, strict=True), 1):
        named = f"{number}/{len(parts)}"
        if record.get("part") != named:
            raise UserError(
                f"{part}.json is the record of part {record.get('part')}, not of "
                f"{named}; {_anew(part)}"
            )
        one, other = (
            r["made_from"] | {f"{k} of --input": x for k, x in r["whole_input"].items()}
            for r in (records[0], record)
        )
        in_files = f"in {parts[0].name}", f"in {part.name}"
        if changed := changes(one, other, in_files):
            raise UserError(
                f"{parts[0]} and {part.name} are not parts of one output:{changed}\n"
                "Make one of them again, with the options and the input of the others"
            )
        first, end = share_of(record["whole_input"]["lines"], (number, len(parts)))
        if record["lines"] != end - first:
            raise UserError(
                f"{part} is of {record['lines']:,} lines, and part {named} has "
                f"{end - first:,}: the input was changed meanwhile; {_anew(part)}"
            )
    return records


def check_bytes(file: Path, sha256: str, part: Path) -> None:
    """Raises UserError if a file of a part is not the one that was recorded."""
    with file.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != sha256:
            raise UserError(
                f"{file} was changed after it was written: its SHA-256 is not that of "
                f"{part.name}.json; {_anew(part)}"
            )


def merge(output: Path) -> None:
    """Joins the finished parts of an output, which stay.

    Raises:
      UserError: as `finished_parts`, `read_records`, `check_bytes`; or it exists.
    """
    check_output(output)
    parts = finished_parts(output)
    records = read_records(parts)
    with (
        exclusive(output.parent),
        together([output]) as (draft,),
        draft.open("wb") as joined,
    ):
        for part, record in zip(parts, records, strict=True):
            check_bytes(part, record["output_sha256"], part)
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, joined)
    say_merged(output, parts, records)


def say_merged(output: Path, parts: Sequence[Path], records: Sequence[dict]) -> None:
    """Says that parts are joined, and can be removed."""
    say(
        f"{records[0]['whole_input']['lines']:,} lines of {len(parts)} parts are "
        f"merged: {output}; {output}.*-of-{len(parts)}* can be removed"
    )
