"""Hashes of sentence pairs, which show that two text files are still in step.

`PREFIX.hashes` stands beside `PREFIX.en` and `PREFIX.de` (or is `PREFIX.hashes.gz`).
Its line N is a hash of their lines N. What writes pairs by machine writes it too, and
`FileCorpus` checks it when it is there: a line that was lost, sorted away or edited in
one file would otherwise shift all pairs behind it, without any error.

A hash does not depend on the direction, so one file serves a model and its reverse.
Shards are joined like their texts, by `cat`.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator

from t2t_jax.io.errors import UserError

ENDING = "hashes"  # of the file's name
_BYTES = 8  # of each hash: a chance of 5e-20 that a wrong line goes unnoticed


def pair_hasher(source: str, target: str) -> Callable[[tuple[str, str]], str]:
    """Returns the function that hashes a pair of lines.

    Args:
      source, target: the languages, which are the endings of the two files.

    Returns:
      (source line, target line) -> 16 hexadecimal digits. Lines are without line ends.
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
    stored: Iterable[str],
    hash_pair: Callable[[tuple[str, str]], str],
    names: tuple[str, str],
    hashes_name: str,
) -> Iterator[tuple[str, str]]:
    """Yields pairs, each after its hash is compared with the stored one.

    Args:
      pairs: (source line, target line), in the order of the files.
      stored: the lines of the file of hashes.
      hash_pair: as from `pair_hasher`.
      names: the source and the target file, for messages.
      hashes_name: the file of hashes, for messages.

    Raises:
      UserError: a pair is not the one that was hashed, or there are more or fewer
        pairs than hashes; the message has the number of the first such line.
    """
    remedy = (
        "Make the pairs again, or bring the three files of one time together; if the "
        f"change is meant, remove {hashes_name}"
    )
    rows = itertools.zip_longest(pairs, stored)
    for number, (pair, wanted) in enumerate(rows, 1):
        if pair is None or wanted is None:
            longer, shorter = " and ".join(names), hashes_name
            if pair is None:
                longer, shorter = shorter, longer
            raise UserError(
                f"{shorter}: no line {number:,}, which {longer} has; the files are no "
                f"longer in step. {remedy}"
            )
        if hash_pair(pair) != wanted:
            raise UserError(
                f"{names[0]} and {names[1]}, line {number:,}: {hashes_name} was "
                "written for another pair of lines; since then a line of one file was "
                f"lost, moved or edited. {remedy}"
            )
        yield pair
