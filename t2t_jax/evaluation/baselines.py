"""Reads another system's answers to the test sets, for a comparison."""

from pathlib import Path

from t2t_jax.data.corpus import Corpus, split_places
from t2t_jax.data.text_files import read_lines
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.bootstrap import LONGEST


def read_baselines(files: str, corpora: list[Corpus]) -> list[list[str]]:
    """Reads another system's answers, one file per test set.

    Args:
      files: names of text files, plain or `.gz`, separated by commas; each has one
        line for each line of its set.
      corpora: the test sets, in the same order.

    Raises:
      UserError: the number of files differs from the number of sets; a file does not
        exist, is not UTF-8 or differs in length from its set; a set is too long for a
        bootstrap.
    """
    names = split_places(files)
    if len(names) != len(corpora):
        sets = ", ".join(corpus.name for corpus in corpora)
        raise UserError(
            f"--baseline={files!r} names {len(names)} files for {len(corpora)} test "
            f"sets ({sets}); want one file per set, in this order, separated by commas"
        )
    pairs = zip(names, corpora, strict=True)
    return [_read(Path(name).expanduser(), corpus) for name, corpus in pairs]


def _read(file: Path, corpus: Corpus) -> list[str]:
    if not file.is_file():
        raise UserError(
            f"--baseline: {file} is not a file; want another system's answers to "
            f"{corpus.name}, one line for each example of the set"
        )
    lines, wanted = list(read_lines(file)), sum(1 for _ in corpus.pairs())
    if len(lines) != wanted:
        raise UserError(
            f"--baseline: {file} has {len(lines):,} lines, but {corpus.place} has "
            f"{wanted:,}; want an answer to each example, in the same order"
        )
    if wanted > LONGEST:
        raise UserError(
            f"--baseline: {corpus.place} has {wanted:,} lines, but the bootstrap takes "
            f"at most {LONGEST:,}; use a part of the set"
        )
    return lines
