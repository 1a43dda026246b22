"""Another system's translations of our test sets, read for a comparison."""

from pathlib import Path

from t2t_jax.data.corpus import Corpus, read_lines, split_places
from t2t_jax.metrics.bootstrap import LONGEST
from t2t_jax.terminal.errors import UserError


def read_baselines(files: str, corpora: list[Corpus]) -> list[list[str]]:
    """The translations of another system, one file for each test set.

    Args:
      files: names of text files, plain or `.gz`, separated by commas; a line for each
        line of the set.
      corpora: the test sets, in the same order.

    Raises:
      UserError: not a file for each set, one that is not there or not UTF-8, or one
        with another number of lines than its set.
    """
    names = split_places(files)
    if len(names) != len(corpora):
        sets = ", ".join(corpus.name for corpus in corpora)
        raise UserError(
            f"--baseline={files!r} names {len(names)} files for {len(corpora)} test "
            f"sets ({sets}); want one for each, in this order, with commas"
        )
    pairs = zip(names, corpora, strict=True)
    return [_read(Path(name).expanduser(), corpus) for name, corpus in pairs]


def _read(file: Path, corpus: Corpus) -> list[str]:
    if not file.is_file():
        raise UserError(
            f"--baseline: {file} is not a file; want the translations of {corpus.name} "
            "by another system, a line for each line of the set"
        )
    lines, wanted = list(read_lines(file)), sum(1 for _ in corpus.pairs())
    if len(lines) != wanted:
        raise UserError(
            f"--baseline: {file} has {len(lines):,} lines, but {corpus.place} has "
            f"{wanted:,}; want a translation for each line, in the same order"
        )
    if wanted > LONGEST:
        raise UserError(
            f"--baseline: {corpus.place} has {wanted:,} lines; a bootstrap takes at "
            f"most {LONGEST:,}, so want a part of the set"
        )
    return lines
