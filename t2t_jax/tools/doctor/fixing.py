"""Writes the pairs that are kept and, next to them, those that are not and why.

    PREFIX.en, PREFIX.de   the kept pairs, in Unicode's form NFC (ü is one character);
                           the endings are the languages
    PREFIX.hashes          their hashes (`data/text_files.py`), which training checks
    PREFIX.removed.tsv     corpus, line, rules, reasons, source, target of all others

All four appear together when they are complete, and none replaces an earlier file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO
from unicodedata import normalize

from t2t_jax.data.cleaning import read_chunks
from t2t_jax.data.corpus import Pair
from t2t_jax.data.text_files import HASHES_ENDING, find_file
from t2t_jax.extensions.run.synthetic_text import write_sides
from t2t_jax.io import atomic
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import Progress
from t2t_jax.io.output_files import check_folder
from t2t_jax.tools.doctor.examination import Examination

HEADER = "corpus", "line", "rules", "reasons", "source", "target"
# A line of a table has no tab. Of text, so that nothing is lost, both are escaped.
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\r": r"\r", "\n": r"\n"})


def check_prefix(prefix: Path, languages: tuple[str, str]) -> None:
    """Raises UserError unless the files of a fix can have these names."""
    if languages[0] == languages[1]:
        raise UserError(
            f"--fix: both sides end in {languages[0]!r} and would be one file; want "
            "two languages"
        )
    check_folder("fix", prefix)
    existing = find_file(prefix, *languages, HASHES_ENDING) or _removed(prefix)
    if existing.exists():
        raise UserError(
            f"--fix={prefix}: {existing} already exists and is not overwritten; give "
            "another prefix, or remove it"
        )


def write_fix(
    examination: Examination, prefix: Path, languages: tuple[str, str]
) -> tuple[int, int]:
    """Writes the files of a fix; returns the number of pairs kept and removed.

    Raises UserError if a file exists, or the text has changed since it was examined.
    """
    check_prefix(prefix, languages)
    endings, removed = (*languages, HASHES_ENDING), 0
    files = [*(Path(f"{prefix}.{e}") for e in endings), _removed(prefix)]

    def kept(table: IO[str]) -> Iterator[Pair]:
        """Yields the pairs that are kept, and writes the others to the table."""
        nonlocal removed
        table.write("\t".join(HEADER) + "\n")
        for line, corpus, pair, reasons in _judged(examination):
            if not reasons:
                # A line of TFDS may have line feeds, which would shift those behind it.
                yield tuple(normalize("NFC", side.replace("\n", " ")) for side in pair)
                continue
            removed += 1
            rules, notes = zip(*reasons, strict=True)
            row = corpus.spec, str(line), ",".join(rules), "; ".join(notes), *pair
            table.write("\t".join(cell.translate(_ESCAPES) for cell in row) + "\n")

    with atomic.together(files) as (*sides, draft):
        with draft.open("w", encoding="utf-8", newline="") as table:
            count = write_sides(sides, kept(table), languages).lines
        if count + removed != len(examination):
            raise UserError(
                f"{count + removed:,} pairs were read, but {len(examination):,} when "
                "they were examined: the text has changed meanwhile; run the command "
                "again"
            )
        check_prefix(prefix, languages)  # another process may have been quicker
    return count, removed


def _removed(prefix: Path) -> Path:
    return Path(f"{prefix}.removed.tsv")


def _judged(examination: Examination) -> Iterator[tuple]:
    """Yields (line, corpus, pair, its (rule, note)s if it is dropped)."""
    reasons = examination.reasons()
    next_place, pair_reasons = next(reasons, (-1, []))
    place = 0
    with Progress("writing", "pairs", len(examination)) as progress:
        for chunk in read_chunks(examination.corpora, examination.options.chunk):
            corpus = examination.corpora[chunk.corpus]
            lines = (chunk.lines + corpus.skipped).tolist()
            for line, pair in zip(lines, chunk.pairs, strict=True):
                yield line, corpus, pair, pair_reasons if place == next_place else []
                if place == next_place:
                    next_place, pair_reasons = next(reasons, (-1, []))
                place += 1
            progress.add(len(chunk.pairs))
