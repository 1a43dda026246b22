"""Lines of text files, and hashes of sentence pairs that show two files are in step.

Text is UTF-8 with one sentence a line. Only a line feed ends a line; a carriage return
before it is dropped. So no other Unicode line separator can misalign two files.

`PREFIX.hashes` is next to `PREFIX.en` and `PREFIX.de` (or is `PREFIX.hashes.gz`).
Its line N is a hash of their lines N. What writes pairs by machine writes it too, and
it is checked when it is there: a line that was lost, sorted away or edited in one file
would otherwise shift all pairs behind it, without any error. A hash does not depend on
the direction, so one file serves a model and its reverse. Parts are joined like their
texts, by `cat`.
"""

import gzip
import hashlib
import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from t2t_jax.io.errors import UserError

T = TypeVar("T")

UTF_16_MARKS = b"\xff\xfe", b"\xfe\xff"  # how such a file begins


def find_file(prefix: Path, *endings: str) -> Path | None:
    """The first file PREFIX.ENDING that exists, plain or gzipped; None if none does."""
    files = (Path(f"{prefix}.{e}{gz}") for e in endings for gz in ("", ".gz"))
    return next(filter(Path.is_file, files), None)


def similar_files(prefix: Path) -> str:
    """Says which files begin like one that is missing, for an error message."""
    if not prefix.parent.is_dir():
        return f"there is no folder {prefix.parent}"
    name = re.split(r"[*?[]", prefix.name)[0]  # it may be a pattern
    names = sorted(f.name for f in prefix.parent.glob(f"{name}*"))
    if not names:
        return f"that folder has no file {name}*"
    return f"that folder has {', '.join(names[:6])}"


def not_empty(items: Iterable[T], complaint: str) -> Iterator[T]:
    """Yields the items; raises UserError with this complaint if there are none."""
    empty = True
    for item in items:
        empty = False
        yield item
    if empty:
        raise UserError(complaint)


def file_hash(file: Path) -> str:
    """Hashes a file as it is stored, by SHA-256."""
    with open(file, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def read_lines(file: Path, skip: int = 0) -> Iterator[str]:
    """Yields the lines of a UTF-8 file without line ends; decompresses `.gz` files.

    The first `skip` lines are left out without being decoded.

    Raises UserError at bytes that are not UTF-8, or an incomplete or damaged gzip file.
    """
    open_file = gzip.open if file.name.endswith(".gz") else open
    with open_file(file, "rb") as f:
        try:
            skipped = sum(1 for _ in itertools.islice(f, skip))
            yield from decode_lines(f, str(file), skipped)
        except (gzip.BadGzipFile, EOFError, zlib.error) as e:
            raise UserError(
                f"{file} is not a complete gzip file ({e}); compress or copy it again"
            ) from e


def decode_lines(raw_lines, name: str, lines_before: int = 0) -> Iterator[str]:
    """Decodes lines of bytes, which follow other lines, and strips their line ends.

    Raises UserError, with the file's `name`, the line and the byte, if it is not UTF-8.
    """
    for number, raw in enumerate(raw_lines, lines_before + 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as e:
            utf_16 = number == 1 and raw.startswith(UTF_16_MARKS)
            raise UserError(
                f"{name}, line {number:,}: byte {e.start + 1} (0x{raw[e.start]:02x}) "
                "is not UTF-8; convert the file, e.g. iconv -f "
                f"{'UTF-16' if utf_16 else 'ISO-8859-1'} -t UTF-8"
            ) from None
        if number == 1:
            line = line.removeprefix("\ufeff")  # a byte order mark is not text
        # Not `strip`: white space at the end of a line is part of the text.
        yield line.removesuffix("\n").removesuffix("\r")


def read_text(file: Path) -> str:
    """Reads a whole text file, with its line ends and byte order mark.

    Raises UserError as `decode_lines` does.
    """
    content = file.read_bytes()
    if file.name.endswith(".gz"):
        list(read_lines(file))  # raises an error if it is damaged
        content = gzip.decompress(content)
    for _ in decode_lines(content.split(b"\n"), str(file)):
        pass
    return content.decode()


def encode_line(line: str, number: int) -> bytes:
    """Encodes line `number`, from 1, so that `read_lines` returns it unchanged.

    It takes away a carriage return before the line feed, and a byte order mark at the
    beginning of the file. A line with one of its own there gets another.
    """
    mark = "\ufeff" if number == 1 and line.startswith("\ufeff") else ""
    end = "\r\n" if line.endswith("\r") else "\n"
    return f"{mark}{line}{end}".encode()


HASHES_ENDING = "hashes"  # of the file's name
_BYTES = 8  # of each hash: a chance of 5e-20 that a wrong line goes unnoticed


def pair_hasher(source: str, target: str) -> Callable[[tuple[str, str]], str]:
    """Returns the function that hashes a pair of lines to 16 hexadecimal digits.

    Lines are without line ends; the languages are the endings of the two files.
    """
    # In the order of the endings: both directions have the same hashes.
    in_order = source <= target

    def hash_pair(pair: tuple[str, str]) -> str:
        first, second = pair if in_order else pair[::-1]
        # A line has no line feed, so it separates the two unambiguously.
        content = f"{first}\n{second}".encode()
        return hashlib.blake2b(content, digest_size=_BYTES).hexdigest()

    return hash_pair


def check_hashes(
    pairs: Iterable[tuple[str, str]],
    hash_pair: Callable[[tuple[str, str]], str],
    files: tuple[Path, Path],
    hashes: Path,
    skip: int = 0,
) -> Iterator[tuple[str, str]]:
    """Yields the pairs of two files, each after its hash is compared with a stored one.

    The pairs are those after the first `skip` ones of the files.

    Raises:
      UserError: a pair is not the one that was hashed, or there are more or fewer
        pairs than hashes; the message has the number of the first such line.
    """
    remedy = (
        "Make the pairs again, or bring the three files of one time together; if the "
        f"change is meant, remove {hashes}"
    )
    both_files = " and ".join(map(str, files))
    rows = itertools.zip_longest(pairs, read_lines(hashes, skip))
    for number, (pair, stored_hash) in enumerate(rows, skip + 1):
        if pair is None or stored_hash is None:
            longer, shorter = both_files, hashes
            if pair is None:
                longer, shorter = shorter, longer
            raise UserError(
                f"{shorter}: no line {number:,}, which {longer} has; the files are no "
                f"longer in step. {remedy}"
            )
        if hash_pair(pair) != stored_hash:
            raise UserError(
                f"{both_files}, line {number:,}: {hashes} was written for another pair "
                "of lines; since then a line of one file was lost, moved or edited. "
                f"{remedy}"
            )
        yield pair
