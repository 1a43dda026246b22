"""Sentence pairs in columns of one file: `.tsv` or `.jsonl`, plain or `.gz`.

`config.data.columns` are the columns of source and target: numbers, from 1, in a
`.tsv`; keys in a `.jsonl`, such as `translation.en` for a key in an object. Tabs alone
separate the columns of a `.tsv`, and quotes mean nothing. White space around a text of
a `.jsonl` that ends a line is left out, and inside it becomes a space: a pair is two
lines.

With `config.data.score_column`, pairs of a score below `config.data.min_score` are
`LowScore`s: training and the doctor count them and leave them out; dev and test sets
keep them. No row is skipped: one that cannot be read is an error.
"""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_jax.config import DataConfig
from t2t_jax.data.corpus import Corpus, LowScore, named_hash
from t2t_jax.data.text_files import file_hash, not_empty, read_lines, similar_files
from t2t_jax.io.errors import UserError
from t2t_jax.text.units import Pair


def table_corpus(
    file: Path, source: str, target: str, data: DataConfig | None = None
) -> Corpus:
    """Opens a file of pairs in columns; the languages are the default keys.

    Raises UserError if there is no such file, or the columns cannot be those of its
    kind; while it is read, at the first row without them.
    """
    data = data or DataConfig()
    file = next(filter(Path.is_file, (file, Path(f"{file}.gz"))), file)
    if not file.is_file():
        raise UserError(f"{file} does not exist; {similar_files(file)}")
    plain = Path(file.name.removesuffix(".gz"))
    tabs = plain.suffix == ".tsv"
    named = [name.strip() for name in data.columns.split(",")] if data.columns else []
    columns = named or (["1", "2"] if tabs else [source, target])
    score = data.score_column.strip()
    wanted = [*columns, score] if score else columns
    valid = [re.fullmatch(r"[1-9]\d{0,5}", c, re.A) for c in wanted if tabs]
    if len(columns) != 2 or score in columns or not (all(wanted) and all(valid)):
        kind = "numbers from 1, such as 2,3" if tabs else "keys, such as en,de"
        raise UserError(
            f"config.data.columns={data.columns!r} with score_column="
            f"{data.score_column!r}: {file} has a source, a target and perhaps a "
            f"score in columns of their own, {kind}"
        )
    if data.min_score and not score:
        raise UserError(
            f"config.data.min_score={data.min_score:g} needs the column of the scores: "
            "--config.data.score_column"
        )

    def cells(line: str) -> list[Any]:
        if not tabs:
            return _values(line, wanted)
        row = line.split("\t")
        if not named and len(row) != 2:
            raise ValueError(
                f"{len(row)} columns; want two, or --config.data.columns=2,3 for "
                "those of source and target"
            )
        if len(row) < max(map(int, wanted)):
            raise ValueError(
                f"{len(row)} columns, separated by tabs; config.data.columns"
                f"{' and score_column' * bool(score)} want {', '.join(wanted)}"
            )
        return [row[int(column) - 1] for column in wanted]

    def pairs_after(skipped: int) -> Iterator[Pair]:
        lines = read_lines(file, skipped)
        if not skipped:
            lines = not_empty(lines, f"{file} is empty; want a pair a line")
        for number, line in enumerate(lines, skipped + 1):
            try:
                source_line, target_line, *scores = cells(line)
                low = scores and _number(scores[0]) < data.min_score
            except ValueError as e:
                raise UserError(f"{file}, line {number:,}: {e}") from None
            pair = source_line, target_line
            yield LowScore(pair) if low else pair

    options = [wanted, data.min_score if score else None]
    return Corpus(
        str(file),
        plain.stem,
        source,
        target,
        lambda: pairs_after(0),
        lambda: named_hash(f"columns {json.dumps(options)}", file_hash(file)),
        pairs_after=pairs_after,
    )


def _values(line: str, names: list[str]) -> list[Any]:
    """The values of keys of a JSON object; of the first two, lines of text.

    Raises ValueError if it has none of them.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"not JSON ({e}); want an object a line") from None
    values = []
    for name in names:
        value, keys = row, [name]
        if isinstance(row, dict) and name not in row:
            keys = name.split(".")
        for key in keys:
            if not isinstance(value, dict) or key not in value:
                there = ", ".join(value) if isinstance(value, dict) else "no object"
                raise ValueError(
                    f"no key {name!r}, but {there}; want --config.data.columns=KEY,KEY "
                    "of source and target"
                )
            value = value[key]
        values.append(value)
    for name, value in zip(names[:2], values, strict=False):
        if not isinstance(value, str):
            raise ValueError(f"{name!r} is {value!r}; want a text")
    return [*map(_line, values[:2]), *values[2:]]


def _line(text: str) -> str:
    """A text as one line, as those of TFDS are read."""
    if "\n" in text or "\r" in text:
        text = re.sub(r"[\r\n]+", " ", text.strip("\r\n"))
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise ValueError(f"{e.object[e.start]!r} is no character") from None
    return text


def _number(score: Any) -> float:
    """A score as a number; raises ValueError if it is none."""
    try:
        number = math.nan if isinstance(score, bool) else float(score)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"the score is {score!r}; want a number")
    return number
